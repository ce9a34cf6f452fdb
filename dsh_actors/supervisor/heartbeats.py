"""Looks after worker processes: ends one that is not ready, does not answer or grows too big.

One beat for all workers, on the system's timer thread, and none while there is no worker. Any
frame is a sign of life; the answer to a ping only makes sure that there is one.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING

from dsh_actors.workers import frames
from dsh_actors.workers.limits import in_words, resident

if TYPE_CHECKING:
    from dsh_actors.actors.timers import Timers
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor
    from dsh_actors.workers.worker import Worker

MEMORY_INTERVAL = 5.0
"""Seconds between two looks at the memory of the workers, where heartbeats are off."""


class Heartbeats:
    """Watches the workers of one system from their start to their end.

    Parameters:
        core: the shared state; its settings say how often, and how long is too long.
        supervisor: whose pool ends workers.
        timers: where the beat comes from.
    """

    def __init__(self, core: Core, supervisor: Supervisor, timers: Timers) -> None:
        self._supervisor = supervisor
        self._settings = core.settings
        self._monotonic = core.runtime.monotonic
        self._timers = timers
        self._lock = allocate_lock()
        self._workers: list[Worker] = []
        self._number = 0
        self._last = 0.0
        self._interval = core.settings.heartbeat or MEMORY_INTERVAL
        limits = core.settings.worker_limits
        self._beats = core.settings.heartbeat is not None or bool(
            limits.memory_soft or limits.memory_hard
        )

    def watch(self, worker: Worker) -> None:
        """Look after one more worker, which was just started."""
        deadline = self._settings.ready_deadline
        worker.late = self._timers.after(deadline, self._late, worker, self._monotonic() + deadline)
        if not self._beats:
            return
        with self._lock:
            first = not self._workers
            self._workers.append(worker)
        if first:
            self._last = self._monotonic()
            self._timers.after(self._interval, self._beat)

    def ready(self, worker: Worker) -> None:
        """The worker said that it is ready."""
        if worker.late is not None:
            worker.late.cancel()

    def _late(self, worker: Worker, due: float) -> None:
        if worker.ready or worker.dead or worker.ending is not None:
            return
        deadline = self._settings.ready_deadline
        if self._monotonic() > due + 1.0:
            # It was this process that stood still, so that the worker may have been in time.
            worker.late = self._timers.after(
                deadline, self._late, worker, self._monotonic() + deadline
            )
            return
        self._end(worker, f"was not ready after {deadline:g} s")

    def _beat(self) -> None:
        with self._lock:
            workers = self._workers = [
                worker for worker in self._workers if not worker.dead and worker.ending is None
            ]
        if not workers:
            return  # the next one to be watched begins anew
        # If this process stood still, all were silent for as long: that counts as one beat only.
        now = self._monotonic()
        passed = min(now - self._last, self._interval)
        self._last = now
        self._number += 1
        for worker in workers:
            self._check_memory(worker)
            if self._settings.heartbeat is not None and worker.ready and worker.ending is None:
                self._check_answer(worker, passed)
        self._timers.after(self._interval, self._beat)

    def _check_answer(self, worker: Worker, passed: float) -> None:
        if worker.heard:
            worker.heard = False
            worker.silent = 0.0
        else:
            worker.silent += passed
            if worker.silent >= self._settings.heartbeat_deadline:
                self._end(worker, f"did not answer for {worker.silent:.3g} s")
                return
        worker.queue([frames.PING, self._number])
        worker.flush()

    def _check_memory(self, worker: Worker) -> None:
        size = resident(worker.pid)
        if size is None:
            return
        worker.resident = size
        limits = self._settings.worker_limits
        if limits.memory_hard is not None and size > limits.memory_hard:
            allowed = in_words(limits.memory_hard)
            self._end(worker, f"had {in_words(size)} resident, more than the {allowed} allowed")
        elif worker.retiring and not worker.seats:
            self._supervisor.pool.end(worker, "it had grown, and its agents are gone", force=False)
        elif limits.memory_soft is not None and size > limits.memory_soft:
            worker.retiring = True  # and looked at again: whoever was placed in it has arrived

    def _end(self, worker: Worker, fault: str) -> None:
        worker.fault = fault
        self._supervisor.pool.end(worker, fault, force=True)
