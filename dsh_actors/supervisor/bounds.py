"""What agents may do and use, as their supervisor keeps it: the authority, wherever they live.

Only agents that were given a policy or a budget, and those below them, have bounds at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors.errors import BudgetExceeded, DepthExceeded, DshActorsError, UsageError
from dsh_actors.lifecycle.budget import UNLIMITED, Account, Budget
from dsh_actors.lifecycle.policy import UNBOUNDED, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.actors.timers import Timer
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core, Spec
    from dsh_actors.supervisor.supervisor import Supervisor
    from dsh_actors.workers.remote import RemoteAgent


class Limits(NamedTuple):
    """What was asked for an agent: a policy, a budget, and the depth that its log has."""

    policy: Policy | None
    budget: Budget | None
    depth: int = 0

    def to_plain(self) -> dict[str, Any]:
        """What a header says beside the effective policy."""
        return {} if self.budget is None else {"budget": self.budget.to_plain()}

    @classmethod
    def asked(cls, policy: Policy | None, budget: Budget | None, depth: int = 0) -> Limits | None:
        """Check what was asked for; None if that is nothing.

        Raises:
            UsageError: it is neither a policy nor a budget.
        """
        for what, value, kind in (("policy", policy, Policy), ("budget", budget, Budget)):
            if not (value is None or isinstance(value, kind)):
                raise UsageError(f"{what} must be a dsh_actors.{kind.__name__}, not {value!r}")
        return None if policy is None and budget is None and not depth else cls(
            policy, budget, depth
        )  # fmt: skip


def declared_limits(
    policy: Mapping[str, Any] | None, budget: Mapping[str, Any] | None
) -> Limits | None:
    """What configuration asks for, as plain data; None if that is nothing.

    Raises:
        UsageError: it is neither a policy nor a budget.
    """
    if policy is None and budget is None:
        return None
    return Limits.asked(
        None if policy is None else Policy.from_plain(policy),
        None if budget is None else Budget.from_plain(budget),
    )


class Bounds:
    """The effective policy of one agent, and the account that it uses. Guarded by the lock.

    For an agent in this process it is the meter of its turns too, and in the supervisor's
    records it is that of an agent in a worker.
    """

    __slots__ = ("_clock", "account", "error", "granted", "overdrawn", "own", "policy", "timer")

    def __init__(
        self, policy: Policy, account: Account | None, own: bool, clock: Callable[[], float]
    ) -> None:
        self.policy = policy
        self.account = account
        # Whether the account was made for this agent, so that it is closed with it.
        self.own = own
        self._clock = clock
        # The deadline of an account of its own.
        self.timer: Timer | None = None
        # What was last refused, or overdrawn.
        self.error: BudgetExceeded | None = None
        # Whether the running turn has overdrawn the account: it ends with the reason ``limit``.
        self.overdrawn = False
        # Whether a turn was counted for a worker that has not reported its end.
        self.granted = False

    def may_begin(self) -> bool:
        """Whether a turn may start; :attr:`error` says why not."""
        if self.account is not None:
            try:
                self.account.check_turn(self._clock())
            except BudgetExceeded as error:
                self.error = error
                return False
        return True

    def refuses(self) -> bool:
        """It is final: the account is at hand."""
        return True

    def begin(self) -> None:
        """A turn starts."""
        if self.account is not None:
            self.account.start_turn()

    def ask(self) -> None:
        """Nothing to ask for here: the account is at hand."""

    def why(self, agent: str) -> BudgetExceeded:
        """What ended or refused the work of the agent."""
        found = self.account.exhausted(self._clock()) if self.account is not None else None
        return (
            found or self.error or BudgetExceeded(f"the budget of agent {agent!r} has nothing left")
        )

    def to_plain(self) -> list[Any]:
        """What a worker has to know: the policy, and whether turns are counted."""
        return [self.policy.to_plain(), self.account is not None]


class Boundaries:
    """Opens, checks and closes the bounds of agents."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor

    # -- starting an agent, with the lock held -------------------------------------------------

    def check(self, parent: Node | None, spec: Spec) -> None:
        """The same refusals before anything is done for an agent: no process starts for it.

        Raises:
            DepthExceeded, PolicyError, BudgetExceeded: it may not start.
        """
        if parent is None:
            return
        with self._core.lock:
            depth = max(parent.depth + 1, spec.limits.depth if spec.limits is not None else 0)
            self._check_depth(parent, depth)
            above = parent.bounds
            if above is not None:
                above.policy.check_isolation(spec.isolation)
                if above.account is not None:
                    above.account.check_child(
                        spec.limits.budget if spec.limits is not None else None,
                        now=self._core.runtime.monotonic(), depth=depth,
                        process=spec.isolation == "own",
                    )  # fmt: skip

    def open_locked(self, node: Node, spec: Spec, follows: Node | None) -> None:
        """Give a new agent its bounds: the meet, and what is carved for it. All or nothing.

        Parameters:
            node: the agent, which is not visible yet.
            spec: what was asked for.
            follows: its earlier life, whose bounds it goes on with.

        Raises:
            DepthExceeded, PolicyError, BudgetExceeded: nothing was counted.
        """
        parent, limits = node.parent, spec.limits
        if limits is not None:
            node.depth = max(node.depth, limits.depth)
        if follows is not None and follows.bounds is not None:
            node.bounds = self._resumed(node, follows.bounds)
        else:
            above: Bounds | None = None
            if parent is not None:
                self._check_depth(parent, node.depth)
                above = parent.bounds
            if above is None and (limits is None or (limits.policy or limits.budget) is None):
                return
            node.bounds = self._started(node, spec, above)
        self._set_timer(node)

    def _started(self, node: Node, spec: Spec, above: Bounds | None) -> Bounds:
        clock = self._core.runtime.monotonic
        policy, account = UNBOUNDED, None
        if above is not None:
            policy, account = above.policy, above.account
            policy.check_isolation(spec.isolation)
        limits = spec.limits
        budget = None
        if limits is not None:
            budget = limits.budget
            if limits.policy is not None:
                policy = policy.meet(limits.policy)
        own = budget is not None
        if account is not None:
            account = account.start_child(
                budget, owner=node.id, now=clock(), depth=node.depth,
                process=spec.isolation == "own",
            )  # fmt: skip
        elif budget is not None:
            account = Account(budget, owner=node.id, depth=node.depth, now=clock())
        return Bounds(policy, account, own, clock)

    def _resumed(self, node: Node, earlier: Bounds) -> Bounds:
        """The bounds of a next life: never wider, with what the earlier ones have not used."""
        account = earlier.account
        if earlier.timer is not None:
            earlier.timer.cancel()
        if account is not None and earlier.own and account.closed:
            account = account.resume()
        return Bounds(earlier.policy, account, earlier.own, self._core.runtime.monotonic)

    def lay_down_locked(self, node: Node, spec: Spec) -> None:
        """The bounds of a child that is asleep: its next life goes on with them."""
        limits = spec.limits
        above: Bounds | None = node.parent.bounds if node.parent is not None else None
        policy = above.policy if above is not None else UNBOUNDED
        account = above.account if above is not None else None
        budget = None
        if limits is not None:
            budget = limits.budget
            if limits.policy is not None:
                policy = policy.meet(limits.policy)
        clock = self._core.runtime.monotonic
        if budget is not None:
            account = Account.closed_below(
                account, budget, owner=node.id, depth=node.depth, now=clock()
            )
        if account is not None or policy is not UNBOUNDED:
            node.bounds = Bounds(policy, account, budget is not None, clock)

    def _check_depth(self, parent: Node, depth: int) -> None:
        bounds = parent.bounds
        caps = [(self._core.settings.max_depth, "this system (max_depth)")]
        if bounds is not None:
            if bounds.policy.max_depth is not None:
                caps.append((bounds.policy.max_depth, f"the policy of agent {parent.id!r}"))
            if bounds.account is not None and bounds.account.deepest is not None:
                caps.append((bounds.account.deepest, f"the budget of agent {parent.id!r}"))
        cap, whose = min(caps, key=lambda each: each[0])
        if depth > cap:
            raise DepthExceeded(
                f"a child of agent {parent.id!r} would have depth {depth}, and {whose} allows "
                f"{cap} at most; it was not started",
                depth=depth, cap=cap,
            )  # fmt: skip

    def undo_locked(self, node: Node, spec: Spec, follows: Node | None) -> None:
        """Take back what was carved for an agent that did not come to be."""
        bounds: Bounds | None = node.bounds
        if bounds is None:
            return
        self.close_locked(node)
        above = node.parent.bounds if node.parent is not None else None
        if follows is None and above is not None and above.account is not None:
            above.account.return_child(process=spec.isolation == "own")

    # -- the end -------------------------------------------------------------------------------

    def close_locked(self, node: Node) -> None:
        """An agent has ended for good: what it has not used goes back, once."""
        bounds: Bounds | None = node.bounds
        if bounds is None:
            return
        if bounds.timer is not None:
            bounds.timer.cancel()
        account = bounds.account
        if account is None:
            return
        if bounds.granted and not node.agent.lost:
            bounds.granted = False
            account.return_turn()
        if bounds.own:
            account.close()

    # -- wall time -----------------------------------------------------------------------------

    def _set_timer(self, node: Node) -> None:
        bounds: Bounds = node.bounds
        account = bounds.account
        if account is not None and bounds.own and account.deadline is not None:
            bounds.timer = self._supervisor.timers.after(
                max(0.0, account.deadline - self._core.runtime.monotonic()),
                self._supervisor.post, self._time_is_over, node,
            )  # fmt: skip

    def _time_is_over(self, node: Node) -> None:
        """The deadline of an agent and of everything below it: running work ends, by cancel."""
        with self._core.lock:
            account = node.bounds.account
            if account.closed:
                return
        self._supervisor.teardown.cancel_work(node, tree=True, keep_inbox=False, cause="budget")

    # -- using ---------------------------------------------------------------------------------

    def left(self, node: Node) -> Budget:
        """What an agent may still use."""
        bounds: Bounds | None = node.bounds
        if bounds is None or bounds.account is None:
            return UNLIMITED
        with self._core.lock:
            return bounds.account.left(self._core.runtime.monotonic(), node.depth)

    def spend_locked(self, node: Node, tokens: int, cost: float) -> bool:
        """Count what an agent reports; whether its account is overdrawn by that."""
        bounds: Bounds | None = node.bounds
        if bounds is None or bounds.account is None:
            return False
        error = bounds.account.spend(tokens, cost)
        if error is not None:
            bounds.error = error
        return error is not None

    # -- agents in workers ---------------------------------------------------------------------

    def turn_wanted_locked(self, seat: RemoteAgent) -> bool:
        """A worker asks to start a turn of a metered agent."""
        bounds: Bounds = seat.node.bounds
        if not bounds.may_begin():
            return False
        bounds.begin()
        bounds.granted = True
        return True

    def judged(
        self, node: Node, reason: str, cause: str | None, error: Any
    ) -> tuple[str, str | None, Any]:
        """How a turn in a worker ended: it may not have heard yet that it ran out."""
        bounds: Bounds = node.bounds
        bounds.granted = False
        if bounds.overdrawn and reason in ("completed", "error"):
            reason, cause = "limit", "budget"
        bounds.overdrawn = False
        if reason == "limit" and error is None:
            error = (BudgetExceeded.__name__, str(self.why(node)), "")
        return reason, cause, error

    # -- what the asking side is told ----------------------------------------------------------

    def why(self, node: Node) -> BudgetExceeded:
        """What ended or refused the work of an agent."""
        bounds: Bounds | None = node.bounds
        if bounds is None:
            return BudgetExceeded(f"the budget of agent {node.id!r} has nothing left")
        with self._core.lock:
            return bounds.why(node.id)

    def refused(self, node: Node) -> None:
        """A turn of an agent may not start: for a one-shot, that is its outcome."""
        error: DshActorsError = self.why(node)
        node.detail = str(error)
        run = self._core.runs.get(node.generation)
        if run is not None:
            run.outcome = ("aborted", None, BudgetExceeded.__name__, str(error), "")
