"""What the tests of publication and ownership share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dsh_actors.supervisor.listeners import CREATED, DISPOSED
from tests.watching import PATIENCE

if TYPE_CHECKING:
    import dsh_actors as dsh

BEGINS = list(CREATED)
ENDS = ["agent/disposed", "session/disposed"]


class Heard:
    """Listens to everything, and notes for each event what a look-up finds."""

    def __init__(self, system: dsh.ActorSystem) -> None:
        self._system = system
        self.events: list[tuple[str, str]] = []
        self.found: list[tuple[str, bool]] = []
        self._changed = threading.Condition()
        for event in (*CREATED, *DISPOSED.values(), "cancel_requested"):
            system.on(event, self)

    def __call__(self, event: dsh.LifeEvent) -> None:
        node: Any = event.agent._target
        with self._changed:
            self.events.append((event.name, event.agent.id))
            there = self._system._core.tree.nodes.get(node.id) is node
            self.found.append((event.name, there))
            self._changed.notify_all()

    def of(self, id: str) -> list[str]:
        """The events of one agent so far, in order."""
        with self._changed:
            return [name for name, about in self.events if about == id]

    def until(self, id: str, count: int) -> list[str]:
        """Wait until there were so many events of one agent."""
        with self._changed:
            held = self._changed.wait_for(
                lambda: sum(about == id for _, about in self.events) >= count, PATIENCE
            )
        assert held, self.events
        return self.of(id)


def nothing_left(system: dsh.ActorSystem) -> None:
    """No agent, session, ownership or creation is on any list of the system."""
    core = system._core
    left = {
        name: getattr(core, name)
        for name in ("sessions", "owned", "publishing", "preparing", "announcing", "specs")
        if getattr(core, name)
    }
    assert not left
    assert not core.tree.nodes
    assert not core.tree.roots


def echo(turn: dsh.Turn, message: Any) -> Any:
    return message
