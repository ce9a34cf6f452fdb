"""Brings the tree of a session back: the same agents, with what they had accepted and not done.

Everything is read and judged before anything is done. Then the agents are made, parents first,
and none of them begins a turn before the whole tree stands.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.agents.containment import passes
from dsh_actors.agents.message import FOLLOW_UP, KIND_NAMES, NOTICE, Message
from dsh_actors.agents.resumed import ResumeReport
from dsh_actors.errors import AdmissionRefused, AgentGone, DshActorsError, StoreError
from dsh_actors.lifecycle.budget import FIELDS, Budget
from dsh_actors.lifecycle.policy import Policy
from dsh_actors.supervisor.bounds import Limits
from dsh_actors.supervisor.delivery import Reply
from dsh_actors.supervisor.lives import Life
from dsh_actors.supervisor.plans import ASLEEP, ENDED, LIVE, LOST, Place, Plan, read
from dsh_actors.supervisor.preparation import Preparation, publish
from dsh_actors.supervisor.sleepers import lay_down

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.sessions.recovery import Prompt
    from dsh_actors.supervisor.core import Core, Spec
    from dsh_actors.supervisor.journal import Journal
    from dsh_actors.supervisor.ownership import Ownership
    from dsh_actors.supervisor.supervisor import Supervisor

_NUMBERED = re.compile(r"-(\d{1,15})$")


class _Restoring(Preparation):
    """A creation whose agent has an inbox already, and begins nothing before it is released."""

    backlog: list[Message]

    def entered_locked(self, node: Node) -> None:
        super().entered_locked(node)
        self._core.publishing[node.generation] = self.backlog

    def _commit(self, node: Node) -> None:
        with self._core.lock:
            self.assert_live()
            self._through_locked()
            self._supervisor.listeners.published_locked(node)

    def _roll_back(self, error: BaseException) -> None:
        node = self.node
        if node is not None:
            with self._core.lock:  # what it had accepted stays accepted: it is still in its log
                self._core.publishing[node.generation] = []
                node.life.logged = None
        for message in self.backlog:
            message.refuse(AgentGone(f"its agent was not resumed: {error}"))
        super()._roll_back(error)


class Resume:
    """One resume. Use :meth:`read` and :meth:`make_room`, then :meth:`bring`, then :meth:`end`.

    Parameters:
        parent: the agent below which it all comes, or None.
        still_wanted: asked when an agent at the top enters.
        ownerships: what owns the agents at the top.
    """

    def __init__(
        self,
        core: Core,
        supervisor: Supervisor,
        parent: Node | None,
        still_wanted: Callable[[], bool] | None,
        ownerships: tuple[Ownership, ...] = (),
    ) -> None:
        assert core.journal is not None
        self._core = core
        self._supervisor = supervisor
        self._journal: Journal = core.journal
        self._parent = parent
        self._wanted = still_wanted
        self._ownerships = ownerships
        # The sessions that nobody else may resume meanwhile, and the leases that were taken.
        self._reserved: set[str] = set()
        self._taken: set[str] = set()
        self._agents: list[str] = []
        self._sleeping: list[str] = []
        self._lost: dict[str, str] = {}
        self._restored: dict[int, Future[Any]] = {}
        self._held: list[Node] = []

    # -- reading -------------------------------------------------------------------------------

    def read(self, session_id: str) -> Plan:
        """Take the sessions of a family, and read and judge them.

        Raises:
            SessionNotFound: there is no such session.
            SessionHeld: another process works on one of them.
            StoreError: it cannot be read, or it is live here.
            BehaviourError: that of the agent at the top cannot be found.
        """
        store = self._journal.store
        infos = store.family(session_id)
        self._reserve({info.id for info in infos})
        wanted = [i.id for i in infos if i.id == session_id or i.status == "active"]
        store.acquire(wanted)
        self._taken.update(wanted)
        plan, unreadable = read(store, session_id)
        self._lost |= unreadable
        return plan

    def _reserve(self, ids: set[str]) -> None:
        core = self._core
        with core.lock:
            live = ids & (core.resuming | set(core.sessions.values()))
            if not live:
                core.resuming |= ids
                self._reserved |= ids
        if live:
            raise StoreError(
                f"session {min(live)!r} is live in this system already; talk to its agent, or stop "
                "it before it is resumed"
            )

    def make_room(self, plans: list[Plan]) -> None:
        """Ids of messages and names of agents that the logs know are not given again."""
        core = self._core
        every = [each for plan in plans for each in plan.walk()]
        message = max((each.recovered.last_message_id for each in every), default=0)
        names = [_NUMBERED.search(each.header.agent_id) for each in every]
        name = max((int(found[1]) for found in names if found), default=0)
        with core.lock:
            core.next_message = itertools.count(max(core.next_message(), message + 1)).__next__
            core.skip_names(name)

    # -- making --------------------------------------------------------------------------------

    def bring(self, place: Place) -> Node:
        """Make the agent at the top of a tree, and all that can come back below it.

        Raises:
            Exception: the agent at the top could not be made; nothing of the tree is there.
        """
        node = self._make(place, self._parent, top=True)
        self._below(place, node)
        return node

    def _make(self, place: Place, parent: Node | None, *, top: bool = False) -> Node:
        factory = self._supervisor.factory
        spec = place.spec = self._spec(place, parent)
        wanted = self._wanted if top else None
        owned = self._ownerships if top else ()
        plan = place.plan
        if plan is None:
            if not top:
                assert parent is not None
                life = self._supervisor.declared_life(parent, spec)
                return factory.create(spec, id=self._id(place), parent=parent, life=life)
            fresh = Preparation(self._core, self._supervisor, owned, None, None)
            return fresh.publish(
                lambda made: factory.create(
                    spec, id=self._id(place), parent=parent, still_wanted=wanted, preparation=made
                )
            )
        life = self._life(plan, spec, settles=plan.settles and not top)
        life.goes_on = life.goes_on or (spec.declared and parent is not None)
        made = _Restoring(self._core, self._supervisor, owned, None, None, waits=top)
        made.backlog = [_restored(prompt) for prompt in plan.recovered.inbox]
        for message in made.backlog:
            life.hand_over(message.id, committed=True)
        for type, data in plan.closers:
            self._journal.write(plan.session, type, data)
        plan.closers = []
        try:
            node = made.publish(
                lambda made: factory.create(
                    spec, id=plan.id, parent=parent, still_wanted=wanted, preparation=made,
                    life=life,
                )
            )  # fmt: skip
        except BaseException:
            plan.entered = made.node is not None
            raise
        self._held.append(node)
        self._agents.append(node.id)
        self._taken.discard(plan.session)
        self._core.emit(
            "agent/resumed", agent=node.id, pid=node.agent.pid, session=plan.session,
            queued=len(made.backlog),
        )  # fmt: skip
        for message in made.backlog:
            if isinstance(message.reply, Reply):
                self._restored[message.id] = message.reply
        if life.settles and plan.recovered.turns:
            node.outcome = "completed"  # it may settle as soon as it is through
        return node

    def _id(self, place: Place) -> str:
        return place.plan.id if place.plan is not None else place.declared.id  # type: ignore[union-attr]

    def _below(self, place: Place, node: Node) -> None:
        for child in place.children:
            plan = child.plan
            if plan is None or plan.state == LIVE:
                self._bring_below(child, node)
            if plan is not None and plan.state == ASLEEP:
                self._put_to_sleep(child, node)
            if plan is not None and plan.state in (LOST, ENDED):
                self._lose(plan, node)  # of one that had ended, what the crash left below it
        assert place.spec is not None
        place.spec.children = tuple(
            (self._id(child), child.spec)
            for child in place.children
            if child.spec is not None and child.spec.declared
        )

    def _bring_below(self, place: Place, parent: Node) -> None:
        plan = place.plan
        try:
            node = self._make(place, parent)
        except BaseException as error:
            if passes(error):
                raise
            if plan is None:
                if isinstance(error, DshActorsError):
                    raise
                self._core.log.exception("a declared agent was not started", agent=self._id(place))
            elif self._is_ending(parent, error):
                self._core.log.info("a resume ends early", agent=plan.id, error=str(error))
                plan.state = ENDED  # its log stays as it is: it can be resumed another time
            else:
                plan.lose(f"{type(error).__name__}: {error}")
            return
        self._below(place, node)

    def _is_ending(self, parent: Node, error: BaseException) -> bool:
        closing = parent.closing is not None or not self._core.tree.accepting
        return closing or isinstance(error, AdmissionRefused)

    def _put_to_sleep(self, place: Place, parent: Node) -> None:
        plan = place.plan
        assert plan is not None
        spec = place.spec = self._spec(place, parent)
        node = lay_down(self._supervisor, plan.id, plan.header.depth, parent,
                        self._life(plan, spec, settles=True))  # fmt: skip
        if plan.was_live:
            node.outcome, node.detail = "aborted", "its system ended"
            ended = {"outcome": node.outcome, "detail": node.detail}
            for type, data in [*plan.closers, ("agent/ended", ended)]:
                self._journal.write(plan.session, type, data)
            self._journal.store.set_status(plan.session, node.outcome)
            self._taken.discard(plan.session)
            self._notify(plan, parent, node.outcome, node.detail)
        node.life.after = None  # its next life is one of this system
        self._sleeping.append(plan.id)
        self._below(place, node)

    def _lose(self, plan: Plan, parent: Node) -> None:
        """On the record, by name, and told to the parent."""
        for each in plan.walk():
            if each.state != LOST:
                continue
            self._lost[each.id] = each.why or "it could not be brought back"
            if each.was_live and not each.entered:
                for type, data in each.last_words():
                    self._journal.write(each.session, type, data)
                self._journal.store.set_status(each.session, "lost")
                self._taken.discard(each.session)
                if each is plan:
                    self._notify(each, parent, "lost", each.why)

    def _notify(self, plan: Plan, parent: Node, outcome: str, detail: str | None) -> None:
        """The parent is told once, as soon as it can be."""
        turns = plan.recovered.turns
        above = plan.parent
        if parent.life is None or (above is not None and (plan.session, turns) in above.noticed):
            return
        last = plan.recovered.last
        notice = {
            "child": plan.id, "outcome": outcome, "detail": detail,
            "last": codec.decode(last) if last is not None else None,
        }  # fmt: skip
        self._journal.write(
            parent.life.session, "child/settled",
            {**notice, "session": plan.session, "turns": turns},
        )  # fmt: skip
        if not parent.agent.takes_notices and parent.agent.is_set_up:
            return
        with self._core.lock:
            parent.life.notices = [*(parent.life.notices or ()), codec.encode(notice)]

    # -- what each is made of ------------------------------------------------------------------

    def _spec(self, place: Place, parent: Node | None) -> Spec:
        factory, declared, plan = self._supervisor.factory, place.declared, place.plan
        policy = budget = None
        if declared is not None:
            policy = None if declared.policy is None else Policy.from_plain(declared.policy)
            budget = None if declared.budget is None else Budget.from_plain(declared.budget)
        if plan is None:
            assert declared is not None
            spec = factory.spec(
                declared.behaviour, declared.isolation, declared.restart,
                dict(declared.args) or None, Limits.asked(policy, budget), declared.interrupted,
            )  # fmt: skip
            spec.declared, spec.session = True, place.session
            return spec
        header = plan.header
        options = header.options
        if header.policy:
            logged = Policy.from_plain(header.policy)
            policy = logged if policy is None else policy.meet(logged)
        budget = _fitted(plan.remaining(budget), parent, self._core)
        limits = Limits.asked(policy, budget, header.depth)
        if declared is not None:
            spec = factory.spec(
                declared.behaviour, declared.isolation, declared.restart,
                dict(declared.args) or None, limits, declared.interrupted,
            )  # fmt: skip
        else:
            spec = factory.spec(
                header.behaviour, plan.isolation, options.get("restart") or "temporary",
                options.get("args") or None, limits, options.get("interrupted"),
            )  # fmt: skip
        spec.interrupted = spec.interrupted or plan.recovered.policy  # type: ignore[assignment]
        spec.declared = declared is not None or bool(options.get("declared"))
        return spec

    def _life(self, plan: Plan, spec: Spec, *, settles: bool) -> Life:
        recovered = plan.recovered
        life = spec.life = Life(spec, settles=settles)
        life.session, life.stored, life.after = plan.session, True, plan.last_time
        life.turns, life.last = recovered.turns, recovered.last
        life.remembered, life.calls = list(recovered.remembered), recovered.carried()
        return life

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> ResumeReport:
        """The whole tree stands: let it begin."""
        core, supervisor = self._core, self._supervisor
        for node in reversed(self._held):
            publish(core, supervisor, node)
        for node in self._held:
            supervisor.settlement.give_notices(node)
        self.over()
        return ResumeReport(
            self._restored, tuple(self._agents), tuple(self._sleeping), dict(self._lost)
        )

    def over(self) -> None:
        """It is through, one way or the other: others may have what was not brought back."""
        with self._core.lock:
            self._core.resuming -= self._reserved
        for session in self._taken:
            try:
                self._journal.store.release(session)
            except StoreError as error:
                self._core.log.warning(
                    "a session was not given back", session=session, error=str(error)
                )
        self._taken.clear()


def _restored(prompt: Prompt) -> Message:
    """A message of the log, with the id that it had."""
    name = prompt.kind.removesuffix(" notice")
    kind: Any = KIND_NAMES.index(name) if name in KIND_NAMES else FOLLOW_UP
    if name != prompt.kind:
        return Message(prompt.id, kind | NOTICE, prompt.body)
    return Message(prompt.id, kind, prompt.body, Reply())


def _fitted(budget: Budget | None, parent: Node | None, core: Core) -> Budget | None:
    """A budget that was granted, as far as its parent has it still: it may have overdrawn."""
    if budget is None or parent is None or parent.bounds is None or parent.bounds.account is None:
        return budget
    with core.lock:
        left = parent.bounds.account.left(core.runtime.monotonic(), parent.depth + 1)
    found: dict[str, Any] = {}
    for name in FIELDS:
        wanted, there = getattr(budget, name), getattr(left, name)
        found[name] = wanted if wanted is None or there is None else min(wanted, there)
    return Budget(**found)
