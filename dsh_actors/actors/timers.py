"""Deadlines: one thread for all timers of a system, started with the first."""

from __future__ import annotations

import heapq
import itertools
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


TIDY_UP = 256
"""How many cancelled timers may wait for their time before they are thrown out: most deadlines
are cancelled, and a busy system sets thousands of them a second."""


class Timer:
    """A call that is due at some time, unless it is cancelled first."""

    __slots__ = ("_args", "_call", "_timers")

    def __init__(
        self, call: Callable[..., None], args: tuple[Any, ...], timers: Timers | None = None
    ) -> None:
        self._call: Callable[..., None] | None = call
        self._args = args
        self._timers = timers

    def cancel(self) -> None:
        """Do not call. Harmless when it has been called."""
        if self._call is not None and self._timers is not None:
            self._timers.idle += 1  # a hint for when to tidy up, so it may be off by a few
        self._call = None
        self._args = ()

    def _fire(self) -> None:
        call, args = self._call, self._args
        if call is not None:
            self._call, self._args = None, ()
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
        self.idle = 0
        """About how many of the timers that wait were cancelled."""

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> Timer:
        """Call ``call(*args)`` in so many seconds. After :meth:`close` it is never called."""
        timer = Timer(call, args, self)
        with self._changed:
            if self._closed:
                return timer
            if self.idle > TIDY_UP and self.idle * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[2]._call is not None]
                heapq.heapify(self._heap)
                self.idle = 0
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
                if timer._call is None:
                    self.idle -= 1
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
