"""The output format ``stream-json``: one object a line, written by one thread.

Events come from threads that must not wait, and the reader of stdout may be slow, or may have
stopped reading. So events wait in a queue. When it is long, further progress events are left
out, since a later one says more, and the number of those left out is told in a line.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from dsh_actors_cli.output import OutputClosedError, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors_cli.output import ResultStream

__all__ = ["EventStream"]

_MANY = 10_000


class EventStream:
    """Writes events as lines of JSON, in the order in which they came.

    Parameters:
        stream: stdout.
        on_closed: called once if the reader goes away.

    Attributes:
        error: why writing ended early, if it did.
    """

    def __init__(self, stream: ResultStream, on_closed: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self._stream, self._on_closed = stream, on_closed
        self._ascii = stream.isatty()
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._left_out = 0
        self._ready = threading.Event()
        self._opened = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="dsh-stream", daemon=True)
        self._thread.start()

    @property
    def opened(self) -> bool:
        """Whether the first line has been given."""
        return self._opened

    def open(self, first: Mapping[str, Any]) -> None:
        """Give the first line; the events that came before it are written after it."""
        self._waiting.appendleft(first)
        self._opened = True
        self._ready.set()

    def put(self, event: Mapping[str, Any]) -> None:
        """Take an event, from any thread, without waiting."""
        if len(self._waiting) >= _MANY and event["type"] == "progress":
            self._left_out += 1
            return
        self._waiting.append(event)
        if self._opened:
            self._ready.set()

    def close(self, timeout: float | None) -> bool:
        """Write what is waiting, and stop.

        Parameters:
            timeout: seconds that a slow reader gets; None for as many as it needs.

        Returns:
            Whether everything was written.
        """
        self._closing = True
        self._ready.set()
        self._thread.join(timeout)
        return not self._thread.is_alive() and self.error is None

    def _run(self) -> None:
        try:
            while True:
                self._ready.wait()
                self._ready.clear()
                closing = self._closing
                self._write_waiting()
                if closing:
                    return
        except (OutputClosedError, OSError) as error:
            self.error = error
            self._waiting.clear()
            self._on_closed()

    def _write_waiting(self) -> None:
        while self._waiting:
            self._stream.write_line(to_json(self._waiting.popleft(), ascii_only=self._ascii))
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._stream.write_line(to_json({"type": "events/left_out", "count": left_out}))
