"""Several listeners to the events of one system, where the core knows of one at most."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

from dsh_actors.agents.containment import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.supervisor.core import Core

    Listener = Callable[[Mapping[str, Any]], Any]

__all__ = ["Observers"]


class Observers:
    """Who listens, in the order of coming. With nobody left, the system tells nothing again.

    Parameters:
        core: the shared state of the system; what it was made with comes first.
    """

    __slots__ = ("_core", "_entries", "_lock")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = allocate_lock()
        # Replaced, never changed: events go through it while others add and remove.
        self._entries: tuple[_Entry, ...] = ()
        if core.observer is not None:
            self._entries = (_Entry(core.observer),)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns what takes it out again."""
        entry = _Entry(listener)
        with self._lock:
            self._set((*self._entries, entry))
        return lambda: self._remove(entry)

    def _remove(self, entry: _Entry) -> None:
        with self._lock:
            self._set(tuple(each for each in self._entries if each is not entry))

    def _set(self, entries: tuple[_Entry, ...]) -> None:
        self._entries = entries
        if not entries:
            self._core.observer = None
        else:
            self._core.observer = entries[0].listener if len(entries) == 1 else self._tell_all
        if self._core.journal is None and len(entries) < 2:
            self._have_turns_told(bool(entries))

    def _have_turns_told(self, told: bool) -> None:
        """Inline agents are created with this; those that are there already have to follow."""
        core = self._core
        with core.lock:
            for node in core.tree.nodes.values():
                if hasattr(node.agent, "reports"):
                    node.agent.reports = told

    def _tell_all(self, event: Mapping[str, Any]) -> None:
        for entry in self._entries:
            try:
                entry.listener(dict(event))  # what one does to it is not seen by another
            except BaseException as error:
                if passes(error):
                    raise
                self._core.log.exception(
                    "an observer of the system failed", event_type=event["type"]
                )


class _Entry:
    """One call of ``observe``: the same function may listen twice."""

    __slots__ = ("listener",)

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
