"""Who is told of an agent's life: listeners, in the order of their registration.

Created events are a veto: a listener that raises ends the creation. Disposed events and
``cancel_requested`` are told and no more: a failure is logged, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsh_actors.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.handle import Agent
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor

CREATED: Final = ("session/created", "agent/created", "session-start")
"""Announced at publication, in this order. A listener may look both entries up in the first."""

DISPOSED: Final = {"session/created": "session/disposed", "agent/created": "agent/disposed"}

EVENTS: Final = (*CREATED, "agent/disposed", "session/disposed", "cancel_requested")

LISTENER_DEADLINE = 5.0
"""Seconds that a listener of a disposed event may take before it is left behind."""


class LifeEvent(NamedTuple):
    """What a listener gets.

    Attributes:
        name: the event, one of :data:`EVENTS`.
        agent: the agent that it is about; may be used, but a disposed one is gone.
        cause: of a ``cancel_requested``: ``user`` or ``parent``; else None.
    """

    name: str
    agent: Agent
    cause: str | None = None


class Listeners:
    """The listeners of one system.

    Disposed events are delivered one after the other by a notifier that nobody waits for: a
    listener that hangs is left behind after a deadline, and the others still hear.
    """

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        # Replaced and never changed, so that an emission has its snapshot for free.
        self._of: dict[str, tuple[Callable[[LifeEvent], Any], ...]] = {}
        # By generation: which created events were announced of an agent.
        self._told: dict[int, list[str]] = {}
        self._queue: deque[Callable[[], None]] = deque()
        self._working = False
        self._turn = 0

    def on(self, event: str, listener: Callable[[LifeEvent], Any]) -> Callable[[], None]:
        """Register a listener.

        Returns:
            A function that takes it out again; harmless when called twice.

        Raises:
            UsageError: there is no such event.
        """
        if event not in EVENTS:
            raise UsageError(f"there is no event {event!r}; the events are {', '.join(EVENTS)}")
        registered = _Registered(listener)
        with self._core.lock:
            self._of[event] = (*self._of.get(event, ()), registered)

        def detach() -> None:
            with self._core.lock:
                self._of[event] = tuple(
                    each for each in self._of.get(event, ()) if each is not registered
                )

        return detach

    @property
    def wanted(self) -> bool:
        """Whether anybody listens to creations. A hint, readable without the lock."""
        of = self._of
        return any(of.get(event) for event in CREATED)

    def listening(self, event: str) -> bool:
        """Whether anybody listens to this event."""
        return bool(self._of.get(event))

    # -- created: inline, a veto -------------------------------------------------------------------

    def announce(self, event: str, node: Node) -> None:
        """Call every listener of a created event, also after one has raised.

        So all of them have heard of it, and all will hear of the end.

        Raises:
            Exception: what the first one raised that did.
        """
        if event in DISPOSED:
            with self._core.lock:
                self._told.setdefault(node.generation, []).append(event)
        life = LifeEvent(event, self._supervisor.agent(node))
        failure: Exception | None = None
        for listener in self._of.get(event, ()):
            try:
                listener(life)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # -- cancel_requested: inline, contained -------------------------------------------------------

    def cancel_requested(self, node: Node, cause: str) -> None:
        """Tell of an effective cancel, before anything is cleared or set."""
        life = LifeEvent("cancel_requested", self._supervisor.agent(node), cause)
        for listener in self._of.get("cancel_requested", ()):
            self._call(listener, life)

    # -- disposed: by the notifier, contained ------------------------------------------------------

    def disposed(self, node: Node) -> None:
        """Tell of the end of an agent, then of its session, if the beginning was announced."""
        if not self._told:
            return
        with self._core.lock:
            told = self._told.pop(node.generation, [])
        for event in reversed(told):
            name = DISPOSED[event]
            for listener in self._of.get(name, ()):
                self._later(listener, LifeEvent(name, self._supervisor.agent(node)))

    def after_those(self, call: Callable[[], None]) -> bool:
        """Call once everything that is queued has been told; False if nothing is queued."""
        with self._core.lock:
            if not self._working:
                return False
            self._queue.append(call)
        return True

    def _later(self, listener: Callable[[LifeEvent], Any], life: LifeEvent) -> None:
        with self._core.lock:
            self._queue.append(lambda: self._call(listener, life))
            if self._working:
                return
            self._working = True
            self._turn += 1
            turn = self._turn
        self._core.runtime.in_background("dsh-listeners", lambda: self._work(turn))

    def _work(self, turn: int) -> None:
        while True:
            with self._core.lock:
                if turn != self._turn:
                    return  # left behind: another one goes on with the queue
                if not self._queue:
                    self._working = False
                    return
                call = self._queue.popleft()
            timer = self._supervisor.timers.after(LISTENER_DEADLINE, self._leave_behind, turn)
            call()
            timer.cancel()

    def _leave_behind(self, turn: int) -> None:
        with self._core.lock:
            if turn != self._turn or not self._working:
                return
            self._turn += 1
            turn = self._turn
        self._core.log.warning(
            "a listener takes too long and is left behind", seconds=LISTENER_DEADLINE
        )
        self._core.runtime.in_background("dsh-listeners", lambda: self._work(turn))

    def _call(self, listener: Callable[[LifeEvent], Any], life: LifeEvent) -> None:
        try:
            listener(life)
        except Exception:
            self._core.log.exception("a listener failed", event_name=life.name)


class _Registered:
    """One registration: the same function may be registered twice, and detached once."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Callable[[LifeEvent], Any]) -> None:
        self._listener = listener

    def __call__(self, life: LifeEvent) -> Any:
        return self._listener(life)
