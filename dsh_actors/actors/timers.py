"""Deadlines: one thread for all timers of a system, started with the first."""

from __future__ import annotations

import heapq
import itertools
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    """A call that is due at some time, unless it is cancelled first."""

    __slots__ = ("_args", "_call")

    def __init__(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._call: Callable[..., None] | None = call
        self._args = args

    def cancel(self) -> None:
        """Do not call. Harmless when it has been called."""
        self._call = None
        self._args = ()

    def _fire(self) -> None:
        call, args = self._call, self._args
        if call is not None:
            self.cancel()
            call(*args)


class Timers:
    """Calls functions later, on its own thread. They must be short and must not raise.

    Parameters:
        name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition(threading.Lock())
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> Timer:
        """Call ``call(*args)`` in so many seconds. After :meth:`close` it is never called."""
        timer = Timer(call, args)
        with self._changed:
            if self._closed:
                return timer
            heapq.heappush(self._heap, (monotonic() + seconds, next(self._order), timer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif self._heap[0][2] is timer:
                self._changed.notify()
        return timer

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (
                    not self._heap or (wait := self._heap[0][0] - monotonic()) > 0
                ):
                    self._changed.wait(wait if self._heap else None)
                if self._closed:
                    return
                _, _, timer = heapq.heappop(self._heap)
            timer._fire()

    def close(self, timeout: float) -> bool:
        """Forget all timers and end the thread; returns whether it ended within ``timeout`` s."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            thread = self._thread
            self._changed.notify_all()
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()
