"""A signal to abort something that is under way, with its reason."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING

from dsh_actors.agents.containment import passes
from dsh_actors.errors import TurnAborted

if TYPE_CHECKING:
    from collections.abc import Callable


class AbortSignal:
    """Set at most once, from any thread. The first reason counts."""

    __slots__ = ("_callbacks", "_lock", "reason")

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._lock = allocate_lock()

    def abort(self, reason: BaseException | None = None) -> bool:
        """Set it, and call back on this thread. A callback that raises is logged.

        Parameters:
            reason: what is raised where the signal is heeded; by default a ``TurnAborted``.

        Returns:
            False if it was set before.
        """
        with self._lock:
            if self.reason is not None:
                return False
            self.reason = reason if reason is not None else TurnAborted("user")
            due, self._callbacks = self._callbacks, []
        interrupt: BaseException | None = None
        for callback in due:
            interrupt = _call(callback) or interrupt
        if interrupt is not None:
            raise interrupt
        return True

    def is_set(self) -> bool:
        """Whether it was aborted."""
        return self.reason is not None

    def check(self) -> None:
        """Raise the reason, if it was aborted."""
        if self.reason is not None:
            raise self.reason

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call back once it is set, at once if it is."""
        with self._lock:
            if self.reason is None:
                self._callbacks.append(callback)
                return
        interrupt = _call(callback)
        if interrupt is not None:
            raise interrupt

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Forget a callback, if it is still there."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


def _call(callback: Callable[[], object]) -> BaseException | None:
    """Call, contain what is raised, and return what is not to be contained."""
    try:
        callback()
    except BaseException as error:
        if passes(error):
            return error
        from dsh_actors.observe.logging import get_logger

        get_logger("dsh_actors.agents").exception("a callback of an abort signal failed")
    return None
