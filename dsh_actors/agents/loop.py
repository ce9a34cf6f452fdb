"""The event loop of one process, for async turns, in a thread of its own."""

from __future__ import annotations

import threading
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class LoopThread:
    """Starts with the first call. Calls from other threads are batched: one wake-up for many.

    Parameters:
        name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = allocate_lock()
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, once it was needed."""
        return self._loop

    @property
    def ident(self) -> int | None:
        """The ident of its thread, once there is one."""
        return self._thread.ident if self._thread is not None else None

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """Run a function on the loop's thread, in the order of the calls. Never blocks for it."""
        self._calls.append((function, args))
        with self._lock:
            if self._woken or self._closed:
                return
            self._woken = True
            loop = self._loop or self._start()
        loop.call_soon_threadsafe(self._drain)

    def _start(self) -> asyncio.AbstractEventLoop:
        import asyncio  # slow to import, and plain behaviours never need it

        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name=self._name, daemon=True
        )
        self._thread.start()
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        try:
            while not self._closed:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    # Raised by one task, which keeps it as its own failure. asyncio lets these
                    # two through and stops the loop; the tasks of others are to go on.
                    continue
        finally:
            loop.run_until_complete(_cancel_all(loop))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _drain(self) -> None:
        with self._lock:
            self._woken = False
        calls = self._calls
        while calls:
            function, args = calls.popleft()
            function(*args)

    def close(self, timeout: float) -> bool:
        """Stop the loop and end its thread.

        Parameters:
            timeout: how long to wait for the thread, in seconds.

        Returns:
            Whether the thread has ended; False if a behaviour blocks the loop.
        """
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return True
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout)
        return not thread.is_alive()


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what behaviours have left running, as asyncio.run does at its end."""
    import asyncio

    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
