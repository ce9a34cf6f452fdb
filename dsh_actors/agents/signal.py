"""The cancel signal of one turn: a level, not an edge, with the first cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.lifecycle.causes import Cause


class Signal:
    """Set at most once, from any thread, without blocking.

    Setting and telling are two steps: :meth:`set` is a memory write that the mark phase makes
    under its lock, and returns the callbacks for the notify phase to call afterwards.

    There is one signal for each turn, so it has no lock of its own. Whoever adds a callback
    first adds and then looks at the cause; whoever sets first sets and then takes the callbacks.
    Taking one out of the list is atomic, so that exactly one of the two calls it.
    """

    __slots__ = ("_callbacks", "cause")

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self._callbacks: list[Callable[[], None]] | None = None

    def is_set(self) -> bool:
        """Whether the turn is cancelled."""
        return self.cause is not None

    def set(self, cause: Cause) -> list[Callable[[], None]]:
        """Set the cause if none is set, and return the callbacks that are now due.

        Called under the lock of the host: only adding and removing may happen meanwhile.
        """
        if self.cause is not None:
            return []
        self.cause = cause
        due = []
        callbacks = self._callbacks
        while callbacks:
            try:
                due.append(callbacks.pop())
            except IndexError:
                break
        return due

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call back once the signal is set, at once if it is. Must not block or raise."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)
        if self.cause is not None and self._take(callback):
            callback()

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Forget a callback, if it is still there."""
        self._take(callback)

    def _take(self, callback: Callable[[], None]) -> bool:
        try:
            (self._callbacks or []).remove(callback)
        except ValueError:
            return False
        return True
