"""Which worker an agent goes to, and how workers start and end."""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors import gates
from dsh_actors.errors import SystemClosed
from dsh_actors.workers import frames
from dsh_actors.workers.early import FIRST, worker_name
from dsh_actors.workers.worker import Worker, WorkerEvents

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.processes.proctree import Ended
    from dsh_actors.workers.process import WorkerProcess

ENDING_GRACE = 1.0
"""Seconds that a worker with nothing to do gets to end by itself."""

TERM_GRACE = 0.2
"""Seconds from SIGTERM to SIGKILL for a worker that is ended by force, and what it started."""

KILL_WAIT = 2.0
"""Seconds to wait for the exit status of what was killed."""


class EndedProcess(NamedTuple):
    """One process that was ended, as in a receipt."""

    pid: int
    kind: str
    ended: str
    signal: str | None


class WorkerPool:
    """The worker processes of one system.

    Parameters:
        size: how many shared workers there may be; started when first needed.
        marker: marks every process that they start.
        events: is told what the workers say.
        params: for every worker, see :func:`dsh_actors.workers.host.serve`.
        early: the first shared worker, if it has been started already.
    """

    def __init__(
        self,
        size: int,
        marker: str,
        events: WorkerEvents,
        params: dict[str, Any],
        early: WorkerProcess | None = None,
    ) -> None:
        self.size = size
        self.marker = marker
        self._events = events
        self._params = params
        self._lock = allocate_lock()
        self._shared: list[Worker] = []
        self._count = 0
        self._closed = False
        # Every worker that may still have processes, dead ones included until they are swept.
        self.workers: dict[int, Worker] = {}  # by number
        self.ended: list[EndedProcess] = []
        # What could not be ended, with the name of its worker: not ours to signal, or stuck in
        # the kernel. A receipt names it among the survivors.
        self.alive: list[tuple[str, int]] = []
        self._enders: set[threading.Thread] = set()
        if early is not None:
            self._adopt(early)

    def place(self, own: bool) -> Worker:
        """The worker for one more agent: a new one of its own, or the least loaded shared one.

        Raises:
            SystemClosed: the pool is closed.
            WorkerStartError: a process cannot be started.
        """
        with self._lock:
            if self._closed:
                raise SystemClosed("the system is stopping; no worker was started")
            if own:
                return self._start(own=True)
            self._shared = [w for w in self._shared if not (w.dead or w.ending or w.retiring)]
            if len(self._shared) < self.size:
                idle = next((w for w in self._shared if not w.seats), None)
                if idle is not None:
                    return idle
                worker = self._start(own=False)
                self._shared.append(worker)
                return worker
            return min(self._shared, key=lambda w: len(w.seats))

    def prestart(self, count: int) -> None:
        """Start shared workers before they are needed, so that they are ready sooner."""
        with self._lock:
            while not self._closed and len(self._shared) < min(count, self.size):
                self._shared.append(self._start(own=False))

    def _adopt(self, process: WorkerProcess) -> None:
        self._count = FIRST
        worker = Worker(FIRST, worker_name(FIRST), own=False)
        self.workers[FIRST] = worker
        self._shared.append(worker)
        worker.adopt(self._events, process)
        params = self._params
        worker.queue(
            [
                frames.SETTINGS, params["max_turns"], params.get("slots"), params["durable"],
                params.get("limits"),
            ]
        )  # fmt: skip
        worker.flush()
        self._events.starting(worker)

    def _start(self, *, own: bool) -> Worker:
        self._count += 1
        worker = Worker(self._count, worker_name(self._count), own)
        marker = f"{self.marker}:{worker.number}"
        self.workers[worker.number] = worker  # before it can end
        try:
            worker.start(self._events, marker, self._params_of(worker))
        except BaseException:
            del self.workers[worker.number]
            raise
        self._events.starting(worker)
        return worker

    def _params_of(self, worker: Worker) -> dict[str, Any]:
        params = {**self._params, "worker": worker.number}
        if gates.plan is not None:
            params["gates"] = gates.plan.address()
        return params

    def live(self) -> list[Worker]:
        """The workers whose link is up."""
        with self._lock:
            return [worker for worker in self.workers.values() if not worker.dead]

    def refuse(self) -> None:
        """Start no worker from now on."""
        with self._lock:
            self._closed = True

    def end(
        self, worker: Worker, why: str, *, force: bool, then: Callable[[], None] | None = None
    ) -> None:
        """End a worker and every process that it started, in a thread of its own.

        Parameters:
            worker: the worker.
            why: for the log.
            force: TERM and KILL at once, instead of letting it end by itself first.
            then: called when the end was confirmed.
        """
        with self._lock:
            if worker.ending is None or force:
                worker.ending = why
        self._in_thread(f"{worker.name}-end", lambda: self._end(worker, force, then))

    def sweep(self, worker: Worker, then: Callable[[], None]) -> None:
        """Clean up behind a worker whose link has ended: its status, and what it left running."""
        self._in_thread(f"{worker.name}-sweep", lambda: self._end(worker, True, then))

    def _in_thread(self, name: str, function: Callable[[], None]) -> None:
        def run() -> None:
            try:
                function()
            finally:
                with self._lock:
                    self._enders.discard(thread)

        thread = threading.Thread(target=run, name=name, daemon=True)
        with self._lock:  # whoever joins it finds it started
            thread.start()
            self._enders.add(thread)

    def _end(self, worker: Worker, force: bool, then: Callable[[], None] | None) -> None:
        from dsh_actors.processes.proctree import end_tree, tree_of

        process = worker.process
        assert process is not None
        with worker.end_lock:  # its end and the sweep behind it may come together
            if worker.number in self.workers:
                started: list[int] = []
                if not force:
                    # At the end of its link it kills all that it has started, and exits.
                    started = [each.pid for each in tree_of(worker.pid)]
                    worker.close_link(flush_timeout=ENDING_GRACE)
                    process.wait(ENDING_GRACE)
                ended = end_tree(
                    process.identity,
                    marker=f"{self.marker}:{worker.number}",
                    grace=TERM_GRACE,
                    kill_wait=KILL_WAIT,
                )
                process.wait(KILL_WAIT)
                worker.close_link()
                with self._lock:
                    self.ended += [
                        EndedProcess(pid, "shell", "killed", "SIGKILL")
                        for pid in started
                        if all(pid != each.pid for each in ended)
                    ]
                self._record(worker, process.poll(), ended)
        if then is not None:
            then()

    def _record(self, worker: Worker, code: int | None, ended: list[Ended]) -> None:
        with self._lock:
            self.workers.pop(worker.number, None)
            if worker in self._shared:
                self._shared.remove(worker)
            if code is not None:
                self.ended.append(_worker_end(worker.pid, code))
            for each in ended:
                if each.ended == "alive":
                    self.alive.append((worker.name, each.pid))
                elif each.pid != worker.pid:
                    self.ended.append(EndedProcess(each.pid, "shell", each.ended, each.signal))

    def kill_now(self) -> None:
        """SIGKILL every worker's process tree, waiting for nothing else. The last resort."""
        from dsh_actors.processes.proctree import kill_tree_now

        for worker in list(self.workers.values()):
            if worker.process is not None:
                worker.ending = worker.ending or "killed"
                kill_tree_now(worker.process.identity, marker=f"{self.marker}:{worker.number}")

    def join(self, timeout: float) -> bool:
        """Wait for the threads that end workers.

        Returns:
            Whether all ends were confirmed within so many seconds.
        """
        from time import monotonic

        deadline = monotonic() + timeout
        while True:
            with self._lock:
                thread = next(iter(self._enders), None)
            if thread is None:
                return True
            thread.join(max(0.0, deadline - monotonic()))
            if thread.is_alive():
                return False


def _worker_end(pid: int, code: int) -> EndedProcess:
    import signal

    if code >= 0:
        return EndedProcess(pid, "worker", "exited", None)
    name = signal.Signals(-code).name
    ended = {"SIGKILL": "killed", "SIGTERM": "terminated"}.get(name, "killed")
    return EndedProcess(pid, "worker", ended, name)


def default_workers() -> int:
    """As many shared workers as this process may use processors."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
