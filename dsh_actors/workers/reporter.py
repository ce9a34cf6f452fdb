"""What a worker sends: single frames in order, and many completed turns in one frame."""

from __future__ import annotations

import threading
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

from dsh_actors.workers import frames
from dsh_actors.workers.link import LinkClosed
from dsh_actors.workers.remote import pack

if TYPE_CHECKING:
    from dsh_actors.workers.link import Link


class Reporter:
    """The sending side of a worker. No frame overtakes a completed turn that came before it.

    A thread that goes on with more turns does not stop to send: it leaves what it has done here,
    and the reporter's own thread sends whatever has gathered, at once. So a result never waits
    for a longer turn behind it, and under load one frame carries many.

    Parameters:
        link: the connection to the supervisor.
        name: the name of the thread, which starts when it is first needed.
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = name
        # Completed turns that are not queued yet: key, turn, message id, result.
        self._done: list[tuple[int, int, int, bytes]] = []
        self._lock = allocate_lock()
        self._wanted = False
        self._bell = allocate_lock()
        self._bell.acquire()
        self._thread: threading.Thread | None = None

    def send(self, frame: list[Any]) -> None:
        """Send a frame behind all that was reported before it."""
        self.queue(frame)
        self._link.flush()

    def queue(self, frame: list[Any]) -> None:
        """Queue a frame in its order; :meth:`flush` sends it."""
        try:
            with self._lock:
                if self._done:
                    self._queue_done()
                self._link.queue_packed(pack(frame))
        except LinkClosed:
            return  # the process is about to end

    def flush(self) -> None:
        """Send what is queued, if anything is."""
        self._link.flush()

    def done(self, key: int, turn: int, message: int, result: bytes, *, more: bool) -> None:
        """A turn of one message has completed. ``more``: the next one begins at once."""
        with self._lock:
            self._done.append((key, turn, message, result))
        if more:
            self.report_soon()
        else:
            self.report()

    def report(self) -> None:
        """Send the completed turns."""
        try:
            with self._lock:
                self._queue_done()
        except LinkClosed:
            return
        self._link.flush()

    def _queue_done(self) -> None:
        done, self._done = self._done, []
        start = 0
        for end in range(1, len(done) + 1):
            if end < len(done) and done[end][0] == done[start][0]:
                continue
            run = done[start:end]
            ids, bodies = [each[2] for each in run], [each[3] for each in run]
            frame = [frames.TURNS_DONE, run[0][0], run[-1][1], ids, bodies]
            self._link.queue_packed(pack(frame))
            start = end

    def report_soon(self) -> None:
        """Have the reporter's thread send the completed turns."""
        if self._wanted:
            return
        self._wanted = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._bell.release()

    def _run(self) -> None:
        while True:
            self._bell.acquire()
            self._wanted = False
            self.report()
