"""What must hold of announcements and ownerships in a simulated run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.supervisor.listeners import CREATED, DISPOSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.supervisor.listeners import LifeEvent
    from dsh_actors.supervisor.ownership import Ownership
    from dsh_actors.system import ActorSystem


class LifeWatch:
    """Hears what is announced, and follows who owns what.

    Parameters:
        system: the simulated system.
        require: raises if its condition does not hold.
    """

    def __init__(self, system: ActorSystem, require: Callable[[object, str], None]) -> None:
        self._system = system
        self._core = system._core
        self._require = require
        self._heard: dict[int, list[str]] = {}
        self._wrong: list[str] = []
        self._ownerships: dict[Ownership, None] = {}

    def listen(self) -> None:
        """Register for everything; from then on agents are announced."""
        for event in (*CREATED, *DISPOSED.values()):
            self._system.on(event, self._hear)

    def owns(self, ownership: Ownership) -> None:
        """Follow an owner or a factory."""
        self._ownerships[ownership] = None

    def _hear(self, event: LifeEvent) -> None:
        node: Any = event.agent._target
        self._heard.setdefault(node.generation, []).append(event.name)
        there = self._core.tree.exact(node.id, node.generation) is node
        if event.name in CREATED:
            if not there:
                self._wrong.append(f"{node} is announced ({event.name}) and not there")
            if getattr(node.agent, "turns", 0) and node.life is None:
                self._wrong.append(f"{node} had a turn before its {event.name}")
        elif there:
            self._wrong.append(f"{node} is still there at its {event.name}")

    def check(self) -> None:
        """After every step: what has ended owns nothing, and nothing that it owned is there."""
        self._require(not self._wrong, self._wrong[0] if self._wrong else "")
        core = self._core
        for ownership in self._ownerships:
            end = ownership._end
            if end is None:
                continue
            for node in core.tree.nodes.values():
                if ownership in core.owned.get(node.generation, ()):
                    self._require(
                        node.closing is not None, f"{ownership.name} has ended, but {node} goes on"
                    )
            if end.done() and end.exception(0) is None and not end.result(0).survivors:
                # One that was to be started again is through, and its next life will be refused.
                left = [n for n in ownership._live.values() if not (n.disposal and n.disposal.done)]
                self._require(not left, f"{ownership.name} is through, but has {left}")
                self._require(
                    not ownership._preparing, f"{ownership.name} is through, but prepares"
                )

    def at_end(self) -> None:
        """Each created event has its disposed event, in the order of a life."""
        core = self._core
        for name in ("publishing", "owned", "preparing", "announcing"):
            left = getattr(core, name)
            self._require(not left, f"the system has ended, but {name} has {left}")
        told = self._system._supervisor.listeners._told
        self._require(not told, f"the system has ended, but {told} wait to be told of")
        for ownership in self._ownerships:
            self._require(
                not ownership._live and not ownership._preparing,
                f"the system has ended, but {ownership.name} owns {ownership._live}",
            )
        for generation, heard in self._heard.items():
            begun = [event for event in heard if event in CREATED]
            self._require(
                begun == list(CREATED[: len(begun)]), f"agent {generation} was announced {heard}"
            )
            ended = [DISPOSED[event] for event in reversed(begun) if event in DISPOSED]
            self._require(heard == begun + ended, f"agent {generation} has {heard}")
