"""How much an agent and everything below it may use, and the account of what it has used.

A child's budget is carved out of its parent's before the child starts, and what it has not used
comes back when it ends. What a child has no budget of its own for, it takes from the nearest
account above that has one. So at any time, for each resource of each account,

    limit = left + spent + what is set aside for live children.

Whole numbers throughout (costs in billionths), so that this holds exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dsh_actors.errors import BudgetExceeded, UsageError
from dsh_actors.lifecycle.policy import check_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

COUNTED: Final = ("turns", "children", "processes", "tokens", "cost")
"""The resources that are used up. Wall time passes for all at once, and depth is a bound."""

FIELDS: Final = ("wall", *COUNTED, "depth")
COST_UNIT: Final = 1_000_000_000
"""Costs are counted in billionths of whatever the user's unit is."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much an agent and everything below it may use. None is unlimited.

    Parameters:
        wall: seconds from its start.
        turns: how many turns may start, its own and those of the agents below it.
        children: how many agents may be started below it.
        depth: how many levels of agents there may be below it; 0 allows no children.
        processes: how many worker processes of their own may be started for agents below it.
        tokens: how many tokens may be used, as behaviours report them.
        cost: the same for money, in whatever unit; kept to a billionth.

    Raises:
        UsageError: a value that is negative, or no number of that kind.
    """

    wall: float | None = None
    turns: int | None = None
    children: int | None = None
    depth: int | None = None
    processes: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None:
                check_amount(f"budget.{name}", value, whole=name not in ("wall", "cost"))

    def to_plain(self) -> dict[str, Any]:
        """Plain data for a session's header or a frame: only what is limited."""
        found = ((name, getattr(self, name)) for name in FIELDS)
        return {name: value for name, value in found if value is not None}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`to_plain`.

        Raises:
            UsageError: it is no such data; the message names the field.
        """
        check_fields("budget", plain, FIELDS)
        return cls(**plain)


UNLIMITED: Final = Budget()
"""Limits nothing."""


def check_amount(what: str, value: Any, *, whole: bool) -> None:
    """Refuse what is no amount.

    Raises:
        UsageError: it is negative, not finite, or not of that kind.
    """
    kinds = int if whole else (int, float)
    # The comparison is also false for what is not a number.
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < float("inf"):
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{what} is {kind} from 0, not {value!r}")


class Account:
    """What one agent with a budget of its own may use, has used and has set aside.

    Guarded by the lock of the tree's owner. Times are in seconds on its monotonic clock.

    Parameters:
        budget: what it has. It is not taken from anywhere: see :meth:`start_child` for that.
        owner: the id of the agent, for messages.
        depth: the depth of the agent.
        now: the time of its start.
    """

    __slots__ = (
        "_above",
        "_limits",
        "_set_aside",
        "_spent",
        "closed",
        "deadline",
        "deepest",
        "owner",
    )

    def __init__(self, budget: Budget, *, owner: str, depth: int = 0, now: float = 0.0) -> None:
        self.owner = owner
        self.closed = False
        self._above: Account | None = None
        self._limits = _units(budget)
        self._spent: dict[str, int] = {}
        self._set_aside: dict[str, int] = {}
        # None where there is no limit, here or above.
        self.deadline = None if budget.wall is None else now + budget.wall
        self.deepest = None if budget.depth is None else depth + budget.depth

    # -- looking -------------------------------------------------------------------------------

    def _source(self, resource: str) -> Account | None:
        """The nearest open account, from this one upwards, that has a limit for a resource."""
        account: Account | None = self
        while account is not None and (account.closed or resource not in account._limits):
            account = account._above
        return account

    def _left(self, resource: str) -> int:
        """What this account has left of a resource that it limits; negative if overdrawn."""
        return (
            self._limits[resource] - self._spent.get(resource, 0) - self._set_aside.get(resource, 0)
        )

    def left(self, now: float, depth: int = 0) -> Budget:
        """What an agent of this account may still use, with what limits it from above.

        Parameters:
            now: the time.
            depth: the depth of the agent that asks.
        """
        found: dict[str, Any] = {}
        for resource in COUNTED:
            source = self._source(resource)
            if source is not None:
                found[resource] = _amount(resource, max(0, source._left(resource)))
        if self.deadline is not None:
            found["wall"] = max(0.0, self.deadline - now)
        if self.deepest is not None:
            found["depth"] = max(0, self.deepest - depth)
        return Budget(**found)

    def spent(self) -> Budget:
        """What was used of the resources that this account limits, by ended children too."""
        return Budget(**{name: _amount(name, self._spent.get(name, 0)) for name in self._limits})

    def exhausted(self, now: float) -> BudgetExceeded | None:
        """Why no work may go on: the time is over, or more was reported than there was."""
        if self.deadline is not None and now >= self.deadline:
            return self._exceeded("wall", 0.0, 0.0, "its time is over")
        for resource in ("tokens", "cost"):
            source = self._source(resource)
            if source is not None:
                over = source._spent.get(resource, 0) - source._limits[resource]
                if over > 0:
                    return source._overdrawn(resource, over)
        return None

    # -- using ---------------------------------------------------------------------------------

    def check_turn(self, now: float) -> None:
        """Whether a turn may start.

        Raises:
            BudgetExceeded: it may not; nothing was counted.
        """
        error = self.exhausted(now)
        if error is not None:
            raise error
        source = self._source("turns")
        if source is not None and source._left("turns") < 1:
            raise source._exceeded("turns", 0, 1, "no turn was started")

    def start_turn(self) -> None:
        """Count a turn that starts; :meth:`check_turn` has allowed it."""
        self._spend("turns", 1)

    def return_turn(self) -> None:
        """Take back a turn that was counted and never started."""
        self._spend("turns", -1)

    def spend(self, tokens: int = 0, cost: float = 0.0) -> BudgetExceeded | None:
        """Count what was used already: that is so even if there was not enough.

        Returns:
            None, or what is overdrawn now.
        """
        overdrawn: BudgetExceeded | None = None
        for resource, units in (("tokens", tokens), ("cost", _cost(cost))):
            source = self._spend(resource, units) if units else None
            if source is not None and source._left(resource) < 0 and overdrawn is None:
                overdrawn = source._overdrawn(resource, -source._left(resource))
        return overdrawn

    def _spend(self, resource: str, units: int) -> Account | None:
        source = self._source(resource)
        if source is not None:
            source._spent[resource] = source._spent.get(resource, 0) + units
        return source

    # -- children ------------------------------------------------------------------------------

    def check_child(
        self, request: Budget | None, *, now: float, depth: int, process: bool = False
    ) -> None:
        """Whether a child may start with such a budget. Changes nothing.

        Parameters:
            request: what is asked for it; None shares this account.
            now: the time.
            depth: the depth of the child.
            process: whether it needs a worker process of its own.

        Raises:
            BudgetExceeded: it may not; says of what there is how much, and what was asked for.
        """
        error = self.exhausted(now)
        if error is not None:
            raise error
        needs = _units(request) if request is not None else {}
        for resource, amount in (("children", 1), ("processes", int(process))):
            needs[resource] = needs.get(resource, 0) + amount
        for resource, units in needs.items():
            source = self._source(resource)
            if source is not None and units > max(0, source._left(resource)):
                raise source._refused(resource, source._left(resource), units)
        if request is None:
            return
        if self.deadline is not None and request.wall is not None:
            left = self.deadline - now
            if request.wall > left:
                raise self._exceeded("wall", left, request.wall, "the child was not started")
        if self.deepest is not None and request.depth is not None:
            levels = max(0, self.deepest - depth)
            if request.depth > levels:
                raise self._exceeded("depth", levels, request.depth, "the child was not started")

    def start_child(
        self,
        request: Budget | None,
        *,
        owner: str,
        now: float,
        depth: int,
        process: bool = False,
    ) -> Account:
        """Count a child, and carve its budget out of this account: all of it or nothing.

        Parameters are those of :meth:`check_child`, and ``owner``, the child's id.

        Returns:
            The child's account; this one itself if it has no budget of its own.

        Raises:
            BudgetExceeded: as for :meth:`check_child`; nothing was counted.
        """
        self.check_child(request, now=now, depth=depth, process=process)
        self._spend("children", 1)
        if process:
            self._spend("processes", 1)
        if request is None:
            return self
        child = Account(request, owner=owner, depth=depth, now=now)
        child._above = self
        child.deadline = _least(child.deadline, self.deadline)
        child.deepest = _least(child.deepest, self.deepest)
        for resource, units in child._limits.items():
            source = self._source(resource)
            if source is not None:
                source._set_aside[resource] = source._set_aside.get(resource, 0) + units
        return child

    def return_child(self, *, process: bool = False) -> None:
        """Take back the count of a child that never came to be. Its account is closed apart."""
        self._spend("children", -1)
        if process:
            self._spend("processes", -1)

    def close(self) -> bool:
        """The agent has ended: what it used is charged above, what it did not use comes back.

        What is still set aside for agents below stays so, in the account above.

        Returns:
            False if it was closed before; then nothing happens.
        """
        if self.closed:
            return False
        self.closed = True
        for resource, limit in self._limits.items():
            source = self._source(resource)
            if source is None:
                continue
            below = self._set_aside.get(resource, 0)
            source._set_aside[resource] = source._set_aside.get(resource, 0) - limit + below
            source._spent[resource] = source._spent.get(resource, 0) + self._spent.get(resource, 0)
        return True

    def resume(self) -> Account:
        """The account of a next life of the ended agent: what is unused, as far as it is there.

        Time went on meanwhile: the deadline stays.
        """
        left = {
            name: max(0, limit - self._spent.get(name, 0)) for name, limit in self._limits.items()
        }
        life = Account(UNLIMITED, owner=self.owner)
        life._above, life.deadline, life.deepest = self._above, self.deadline, self.deepest
        for resource, units in left.items():
            source = life._source(resource)
            if source is not None:
                units = min(units, max(0, source._left(resource)))
                source._set_aside[resource] = source._set_aside.get(resource, 0) + units
            life._limits[resource] = units
        return life

    @classmethod
    def closed_below(
        cls, above: Account | None, budget: Budget, *, owner: str, depth: int, now: float
    ) -> Account:
        """The account of an agent that has ended, with what it had left: see :meth:`resume`.

        Parameters:
            above: the account that the budget was carved out of, if any. It is not changed.
            budget: what was left.
            owner, depth, now: as for an account.
        """
        account = cls(budget, owner=owner, depth=depth, now=now)
        account.closed = True
        if above is not None:
            account._above = above
            account.deadline = _least(account.deadline, above.deadline)
            account.deepest = _least(account.deepest, above.deepest)
        return account

    # -- errors --------------------------------------------------------------------------------

    def _refused(self, resource: str, left: int, asked: int) -> BudgetExceeded:
        return self._exceeded(
            resource, _amount(resource, max(0, left)), _amount(resource, asked),
            "the child was not started",
        )  # fmt: skip

    def _overdrawn(self, resource: str, over: int) -> BudgetExceeded:
        amount = _amount(resource, over)
        return self._exceeded(resource, 0, amount, f"it is overdrawn by {amount}")

    def _exceeded(self, resource: str, left: float, asked: float, what: str) -> BudgetExceeded:
        name = "wall time" if resource == "wall" else resource
        have = f"{left:g} s" if resource == "wall" else f"{left:.10g}"
        wanted = (
            f"; {asked:.10g} were asked for" if asked > left and "overdrawn" not in what else ""
        )
        return BudgetExceeded(
            f"the budget of agent {self.owner!r} has {have} of {name} left{wanted}: {what}",
            resource=resource, left=left, asked=asked,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Account of {self.owner}: {self._limits}{' closed' if self.closed else ''}>"


def _cost(cost: float) -> int:
    return round(cost * COST_UNIT)


def _units(budget: Budget) -> dict[str, int]:
    """The counted resources that a budget limits, in whole units."""
    found = {name: getattr(budget, name) for name in COUNTED}
    if found["cost"] is not None:
        found["cost"] = _cost(found["cost"])
    return {name: value for name, value in found.items() if value is not None}


def _amount(resource: str, units: int) -> Any:
    return units / COST_UNIT if resource == "cost" else units


def _least(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
