"""One worker process, as the supervisor holds it."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, Protocol

from dsh_actors.workers.early import TARGET
from dsh_actors.workers.link import Link, LinkClosed
from dsh_actors.workers.process import start_worker
from dsh_actors.workers.remote import RemoteAgent, pack

if TYPE_CHECKING:
    from dsh_actors.actors.timers import Timer
    from dsh_actors.workers.process import WorkerProcess


class WorkerEvents(Protocol):
    """Who is told what a worker says. Called on its reader thread."""

    def starting(self, worker: Worker) -> None:
        """A worker process was started. Called by whoever needed it, and must not block."""

    def frames(self, worker: Worker, batch: list[Any]) -> None:
        """Frames have arrived, in order."""

    def gone(self, worker: Worker, reason: BaseException | None) -> None:
        """The worker's link has ended, after its last frame."""


class Worker:
    """A worker process with its link and the agents in it.

    Parameters:
        number: counts the workers of a system from 1.
        own: whether it belongs to one agent and ends with it.
    """

    def __init__(self, number: int, name: str, own: bool) -> None:
        self.number = number
        self.name = name
        self.own = own
        # By key. Guarded by the lock of the tree.
        self.seats: dict[int, RemoteAgent] = {}
        self.process: WorkerProcess | None = None
        self.pid = 0
        self.ready = False
        # Set before it is ended on purpose, so that its end is no surprise.
        self.ending: str | None = None
        self.dead = False
        # Why it had to be ended although it was wanted: its agents are lost for that reason.
        self.fault: str | None = None
        # It is given no more agents, and ends with those that it has.
        self.retiring = False
        # Signs of life: whether any frame came since the last beat; seconds since one did.
        self.heard = False
        self.silent = 0.0
        self.resident: int | None = None  # bytes, when last seen
        self.late: Timer | None = None  # due when it should have said that it is ready
        self._link: Link | None = None
        # Held by whoever ends the process, until its end is confirmed.
        self.end_lock = allocate_lock()

    def start(self, events: WorkerEvents, marker: str, params: dict[str, Any]) -> None:
        """Start the process and its link. Frames may be queued at once.

        Raises:
            WorkerStartError: the process cannot be started.
        """
        self.adopt(events, start_worker(TARGET, params, name=self.name, marker=marker))

    def adopt(self, events: WorkerEvents, process: WorkerProcess) -> None:
        """Take over a process that was started before, and start its link."""
        self.process = process
        self.pid = process.pid
        self._link = Link(
            process.sock,
            on_messages=lambda batch: events.frames(self, batch),
            on_close=lambda reason: events.gone(self, reason),
            name=self.name,
        )
        self._link.start()

    def queue(self, frame: list[Any]) -> None:
        """Queue a frame in order. Cheap; :meth:`flush` sends it. Lost if the worker is gone."""
        link = self._link
        if link is None:
            return
        try:
            link.queue_packed(pack(frame))
        except LinkClosed:
            return  # its end is reported by the reader, and settles what was queued

    def flush(self) -> None:
        """Send what is queued. Never blocks."""
        link = self._link
        if link is not None:
            link.flush()

    def close_link(self, flush_timeout: float = 0.0) -> None:
        """Close the link: the worker sees EOF, and ends what it has started and itself."""
        if self._link is not None:
            self._link.close(flush_timeout=flush_timeout)

    def join_link(self, timeout: float) -> bool:
        """Wait for the threads of the link, for at most so many seconds."""
        return self._link is None or self._link.join(timeout)

    def __repr__(self) -> str:
        return f"<Worker {self.name} pid {self.pid}>"
