"""The cancel signal of one turn: a level, not an edge, with the first cause."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.lifecycle.causes import Cause


class Signal:
    """Set at most once, from any thread, without blocking.

    Setting and telling are two steps: :meth:`set` is a memory write that the mark phase makes
    under its lock, and returns the callbacks for the notify phase to call afterwards.
    """

    __slots__ = ("_callbacks", "_lock", "cause")

    def __init__(self) -> None:
        self.cause: Cause | None = None
        self._callbacks: list[Callable[[], None]] | None = None
        self._lock = allocate_lock()

    def is_set(self) -> bool:
        """Whether the turn is cancelled."""
        return self.cause is not None

    def set(self, cause: Cause) -> list[Callable[[], None]]:
        """Set the cause if none is set, and return the callbacks that are now due."""
        with self._lock:
            if self.cause is not None:
                return []
            self.cause = cause
            due, self._callbacks = self._callbacks, None
        return due or []

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call back once the signal is set, at once if it is. Must not block or raise."""
        with self._lock:
            if self.cause is None:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback()

    def remove_callback(self, callback: Callable[[], None]) -> None:
        """Forget a callback, if it is still there."""
        with self._lock:
            if self._callbacks and callback in self._callbacks:
                self._callbacks.remove(callback)
