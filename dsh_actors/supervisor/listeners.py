"""Who is told of an agent's life: listeners, in the order of their registration.

Created events are a veto: a listener that raises ends the creation. Disposed events and
``cancel_requested`` are told and no more: a failure is logged, and changes nothing.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsh_actors.agents.containment import passes
from dsh_actors.errors import UsageError
from dsh_actors.supervisor.notifier import Listener, Notifier

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

    Created events and ``cancel_requested`` are told on the thread that creates or cancels.
    Disposed events are told by a notifier that no teardown waits in: a listener that hangs is
    left behind after a deadline, and the others still hear.
    """

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self.notifier = Notifier(core, supervisor, "dsh-listeners")
        self.active = False
        """Whether this was ever used: what does not listen shall not pay for it."""
        # Replaced and never changed, so that an emission has its snapshot for free.
        self._of: dict[str, tuple[Listener, ...]] = {}
        # By generation: which created events were announced of an agent that is not published.
        # Of all others, all were.
        self._told: dict[int, list[str]] = {}
        # Threads that are telling of a cancel, with whose: a cancel in there is not told again.
        self._telling: set[tuple[int, int]] = set()

    def on(self, event: str, function: Callable[[LifeEvent], Any]) -> Callable[[], None]:
        """Register a listener.

        Returns:
            A function that takes it out again; harmless when called twice.

        Raises:
            UsageError: there is no such event.
        """
        if event not in EVENTS:
            raise UsageError(f"there is no event {event!r}; the events are {', '.join(EVENTS)}")
        registered = Listener(function)
        with self._core.lock:
            self._of[event] = (*self._of.get(event, ()), registered)
            self.active = True

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

    def entered_locked(self, node: Node) -> None:
        """An agent is visible, and nobody was told of it yet."""
        self._told[node.generation] = []
        self.active = True

    def published_locked(self, node: Node) -> None:
        """All of its created events were announced."""
        del self._told[node.generation]

    def announce(self, event: str, node: Node) -> None:
        """Call every listener of a created event, also after one has raised.

        So all of them have heard of it, and all will hear of the end.

        Raises:
            BaseException: what the first one raised that did.
        """
        core = self._core
        if event in DISPOSED:
            with core.lock:
                self._told[node.generation].append(event)
        listeners = self._of.get(event, ())
        if not listeners:
            return
        life = LifeEvent(event, self._supervisor.agent(node))
        failure: BaseException | None = None
        here = get_ident()
        core.announcing.setdefault(here, []).append(node)
        try:
            for listener in listeners:
                try:
                    listener.function(life)
                except BaseException as error:
                    if failure is None:
                        failure = error
        finally:
            core.announcing[here].pop()
            if not core.announcing[here]:
                del core.announcing[here]
        if failure is not None:
            raise failure

    # -- cancel_requested: inline, contained -------------------------------------------------------

    def cancel_requested(self, node: Node, cause: str) -> None:
        """Tell of an effective cancel, before anything is cleared or set.

        Raises:
            KeyboardInterrupt: on the main thread, once all have been told.
        """
        listeners = self._of.get("cancel_requested", ())
        telling = (get_ident(), node.generation)
        if not listeners or telling in self._telling:
            return
        life = LifeEvent("cancel_requested", self._supervisor.agent(node), cause)
        interrupt: BaseException | None = None
        self._telling.add(telling)
        try:
            for listener in listeners:
                try:
                    listener.function(life)
                except BaseException as error:
                    if passes(error):
                        interrupt = error
                    else:
                        self._core.log.exception("a listener failed", about=str(life))
        finally:
            self._telling.discard(telling)
        if interrupt is not None:
            raise interrupt

    # -- disposed: by the notifier, contained ------------------------------------------------------

    def disposed(self, node: Node) -> None:
        """Tell of the end of an agent, then of its session, as far as the beginning was told."""
        with self._core.lock:
            told = self._told.pop(node.generation, None)
        for event, name in reversed(DISPOSED.items()):
            if told is not None and event not in told:
                continue
            listeners = self._of.get(name, ())
            if listeners:
                life = LifeEvent(name, self._supervisor.agent(node))
                for listener in listeners:
                    self.notifier.tell(listener, life)

    def after_those(self, call: Callable[[], None]) -> bool:
        """Call once everything that is queued has been told; False if nothing is queued."""
        return self.notifier.after_those(call)
