"""What the logs of a tree say about its agents, and what is to become of each in a resume.

Reading changes nothing. Every session of the family is judged once, from its own log and its
parent's: who comes back live, who sleeps until it is asked again, who is lost, who had ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dsh_actors.agents.behaviour import Behaviour, resolve
from dsh_actors.errors import BehaviourError, StoreError
from dsh_actors.lifecycle.budget import COUNTED, Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.config.spec import AgentSpec
    from dsh_actors.sessions.events import Event, SessionHeader, SessionInfo
    from dsh_actors.sessions.recovery import Recovered
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.supervisor.core import Spec

LIVE: Final = "live"
"""It starts again."""
ASLEEP: Final = "asleep"
"""It has settled, or would have; a message starts its next life."""
LOST: Final = "lost"
"""It cannot come back, and that is still to be said."""
ENDED: Final = "ended"
"""Its log says that it has ended for good."""

_REVIVABLE: Final = ("completed", "aborted")


class Plan:
    """One session of a family, and what becomes of its agent."""

    def __init__(self, header: SessionHeader, events: list[Event]) -> None:
        from dsh_actors.sessions.recovery import closers, recover, repair

        self.header = header
        options = header.options
        found = recover(events)
        fixed = repair(events, options)
        self.recovered: Recovered = fixed.recovered
        self.closers: list[tuple[str, dict[str, Any]]] = fixed.closers
        # What is appended if it does not come back: nothing of it is tried again.
        self._giving_up = closers(found)
        self.was_live = found.is_live
        self.one_shot = bool(options.get("one_shot"))
        self.settles = bool(options.get("continuable"))
        self.parent: Plan | None = None
        self.children: list[Plan] = []
        # What a tree file says about it, if one does.
        self.declared: AgentSpec | None = None
        self.state = LIVE
        self.why: str | None = None  # it is lost
        self.entered = False  # it was visible, and then taken back
        self._read_lives(events)

    def _read_lives(self, events: list[Event]) -> None:
        """When its lives began and ended, how the last one did, and what it was told."""
        header = self.header
        self.life_began = self.span_began = self.last_time = header.created
        self.lived = 0.0  # seconds, until the last system that it lived in began
        self.is_final = False  # its end was its own, and not that of its parent
        self.can_resume = True  # its behaviour can take up where it ended
        self.noticed: set[tuple[str, int]] = set()
        for event in events:
            data = event.data if isinstance(event.data, dict) else {}
            if event.type == "agent/resumed":
                self.life_began, self.is_final = event.time, False
                after = data.get("after")
                if isinstance(after, int | float):
                    self.lived += max(0.0, after - self.span_began)
                    self.span_began = event.time
            elif event.type == "agent/ended":
                self.is_final = bool(data.get("final"))
            elif event.type == "agent/started":
                self.can_resume = data.get("resumable") is not False
            elif event.type == "child/settled" and isinstance(data.get("session"), str):
                self.noticed.add((data["session"], int(data.get("turns") or 0)))
            self.last_time = max(self.last_time, event.time)

    @property
    def id(self) -> str:
        """The id of the agent."""
        return self.declared.id if self.declared is not None else self.header.agent_id

    @property
    def session(self) -> str:
        """The id of the session."""
        return self.header.id

    @property
    def isolation(self) -> str:
        """Where the agent lived."""
        return str(self.header.options.get("isolation") or "inline")

    def walk(self) -> Iterator[Plan]:
        """This one and all below it, parents first."""
        order = [self]
        for plan in order:
            order.extend(plan.children)
            yield plan

    # -- judging -------------------------------------------------------------------------------

    def judge(self, *, top: bool = False) -> None:
        """Decide what becomes of it and of all below it.

        Parameters:
            top: it is the one that is resumed, so that it comes back whatever its log says.

        Raises:
            BehaviourError: it is the one that is resumed, and its behaviour is not found.
        """
        self.state = LIVE if top else self._by_its_log()
        if self.state in (LIVE, ASLEEP):
            try:
                self._check_behaviour()
            except BehaviourError as error:
                if top:
                    raise
                self._is_lost(str(error))
        newest: dict[str, Plan] = {}
        for child in sorted(self.children, key=lambda each: (each.was_live, each.life_began)):
            newest[child.header.agent_id] = child
        for child in self.children:
            child.judge()
            if newest[child.header.agent_id] is not child and child.state in (LIVE, ASLEEP):
                # Its id was given again, by an agent that took its place.
                if child.was_live:
                    child.lose(f"a later agent with the id {child.id!r} took its place")
                else:
                    child.state = ENDED
                    for below in child.children:
                        below._orphan(child.id)
        if self.state == ASLEEP and (
            self.recovered.inbox or any(child.state == LIVE for child in self.children)
        ):
            self.state = LIVE
        if self.state in (LOST, ENDED):
            for child in self.children:
                child._orphan(self.id)

    def _by_its_log(self) -> str:
        parent = self.parent
        if self.one_shot:
            if self.was_live:
                self._is_lost("a one-shot run ends with the turn that has started it")
            else:
                self.state = ENDED
            return self.state
        if self.was_live:
            if self.settles and not self.can_resume:
                self._is_lost("its behaviour keeps state and cannot replay it")
                return self.state
            return ASLEEP if self.settles else LIVE
        if self.is_final:
            return ENDED
        if self.settles:
            outcome = self.recovered.outcome
            return ASLEEP if outcome in _REVIVABLE and self.can_resume else ENDED
        # It ended with its parent, and so comes back with it; unless that was in an earlier life.
        with_parent = parent is None or self.life_began >= parent.life_began
        return LIVE if with_parent else ENDED

    def _check_behaviour(self) -> None:
        name = self.header.behaviour if self.declared is None else self.declared.behaviour
        if "<" in name:
            raise BehaviourError(
                f"its behaviour {name!r} was defined inside a function or is a lambda, so that it "
                "cannot be found again"
            )
        if self.isolation == "inline":
            found = resolve(name)
            if (
                self.settles
                and found.is_class
                and getattr(found.target, "replay", None) is Behaviour.replay
            ):
                raise BehaviourError("its behaviour keeps state and cannot replay it")

    def _is_lost(self, why: str) -> None:
        self.state, self.why = LOST, why

    def lose(self, why: str) -> None:
        """It does not come back after all, and so does nothing below it."""
        self._is_lost(why)
        for child in self.children:
            child._orphan(self.id)

    def _orphan(self, parent: str) -> None:
        if self.was_live:
            if self.state != LOST:
                self._is_lost(f"its parent {parent!r} does not come back")
        else:
            self.state = ENDED
        for child in self.children:
            child._orphan(self.id)

    def last_words(self) -> list[tuple[str, dict[str, Any]]]:
        """What is appended to the log of one that is lost."""
        failed = {data["id"] for type, data in self._giving_up if type == "prompt/failed"}
        left = [p for p in self.recovered.inbox if p.id not in failed]
        return [
            *self._giving_up,
            *(("prompt/failed", {"id": p.id, "reason": "lost"}) for p in left),
            ("agent/ended", {"outcome": "lost", "detail": self.why, "final": True}),
        ]

    # -- what it has used ----------------------------------------------------------------------

    def remaining(self, asked: Budget | None) -> Budget | None:
        """What is left of its budget.

        Parameters:
            asked: what a tree file gives it now; None takes what it had.
        """
        plain = self.header.options.get("budget")
        budget = asked or (Budget.from_plain(plain) if plain else None)
        if budget is None:
            return None
        used = self.used()
        left: dict[str, Any] = {"depth": budget.depth}
        for name in (*COUNTED, "wall"):
            limit = getattr(budget, name)
            if limit is not None:
                left[name] = max(type(limit)(0), limit - used[name])
        if left.get("cost") is not None:
            left["cost"] = round(left["cost"], 9)
        return Budget(**left)

    def used(self) -> dict[str, Any]:
        """What it and everything below it has used so far.

        Wall time is the time in which it could work: what lies between the last event of a
        system that ended and the resume is not counted. A child that starts again counts as one
        when it does.
        """
        used = dict.fromkeys(COUNTED, 0) | {"cost": 0.0}
        latest = self.last_time
        for plan in self.walk():
            recovered = plan.recovered
            used["turns"] += recovered.begun
            used["tokens"] += recovered.tokens
            used["cost"] += recovered.cost
            if plan is not self and plan.state != LIVE:
                used["children"] += 1
                used["processes"] += plan.isolation == "own"
            latest = max(latest, plan.last_time)
        return used | {"wall": self.lived + max(0.0, latest - self.span_began)}


class Place:
    """One agent that is to be made: from its log, from a tree file, or from both."""

    __slots__ = ("children", "declared", "plan", "session", "spec")

    def __init__(self, plan: Plan | None, declared: AgentSpec | None, session: str | None) -> None:
        self.plan = plan
        self.declared = declared
        # Of one without a log: the id that its session is to have.
        self.session = session
        self.spec: Spec | None = None
        self.children: list[Place] = []

    @classmethod
    def of(cls, plan: Plan) -> Place:
        """The place of an agent and of those below it, as their logs say."""
        place = cls(plan, None, None)
        place.children = [cls.of(child) for child in plan.children]
        return place


def read(store: SessionStore, session_id: str) -> tuple[Plan, dict[str, str]]:
    """Read a family. Nothing is judged yet.

    Returns:
        The plan of the session at its top, and whose sessions are too damaged to tell anything,
        with what is wrong.

    Raises:
        SessionNotFound: there is no such session.
        StoreError: the store cannot be read, or the session at the top cannot.
    """
    plans: dict[str, Plan] = {}
    unreadable: dict[str, str] = {}
    top: Plan | None = None
    for info in store.family(session_id):
        if top is not None and info.parent not in plans:
            _cannot_read(info, "its parent's session cannot be read", unreadable)
            continue
        try:
            log = store.load(info.id)
        except StoreError as error:
            if top is None:
                raise
            _cannot_read(info, str(error), unreadable)
            continue
        plan = plans[info.id] = Plan(log.header, log.events)
        if top is None:
            top = plan
        else:
            assert info.parent is not None
            plan.parent = plans[info.parent]
            plan.parent.children.append(plan)
    assert top is not None
    return top, unreadable


def _cannot_read(info: SessionInfo, why: str, unreadable: dict[str, str]) -> None:
    unreadable[info.agent_id or info.id] = why
