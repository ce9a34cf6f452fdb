"""Links and worker processes that can be late, or die."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgpack

from dsh_actors.workers.host import WorkerHost
from dsh_actors.workers.link import Link, LinkClosed
from dsh_actors.workers.pool import WorkerPool
from dsh_actors.workers.reporter import Reporter
from dsh_actors.workers.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.processes.proctree import Ended
    from dsh_actors.testing.simulation.runtime import SimulatedRuntime
    from dsh_actors.workers.worker import WorkerEvents

KILLED = -9


class SimulatedLink(Link):
    """One end of a link. What was flushed is on the wire, and outlives a death of the sender."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.peer: SimulatedLink | None = None
        self.deliver: Callable[[list[Any]], None] = _nobody
        self.ended: Callable[[BaseException | None], None] = _nobody
        self._unsent: deque[bytes] = deque()
        self.wire: deque[bytes] = deque()
        self.shut = False  # this end sends and takes nothing any more
        self.told = False  # this end knows that the other one is gone

    @property
    def closed(self) -> bool:
        """Whether a send would raise."""
        return self.shut

    def queue_packed(self, message: bytes) -> None:
        """Queue for the next flush."""
        if self.shut:
            raise LinkClosed("the link is closed")
        self._unsent.append(message)

    def flush(self) -> None:
        """Put what is queued on the wire."""
        if not self.shut:
            self.wire.extend(self._unsent)
            self._unsent.clear()

    def close(self, *, flush_timeout: float = 1.0, reason: BaseException | None = None) -> bool:
        """Shut this end."""
        self.flush()
        self.shut = True
        return True

    def join(self, timeout: float | None = None) -> bool:
        """There is no thread."""
        return True


def _nobody(_: Any) -> None:
    return None


class SimulatedReporter(Reporter):
    """Reports at once or at a later step, as the scheduler chooses."""

    def __init__(self, link: SimulatedLink, runtime: SimulatedRuntime) -> None:
        super().__init__(link, "reporter")
        self._runtime = runtime

    def report_soon(self) -> None:
        """At some later step."""
        self._runtime.background.add("a worker reports its turns", self.report)


class SimulatedProcess:
    """Stands for the operating system's side of a worker."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.identity = None

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, if it has ended."""
        return self.code

    def poll(self) -> int | None:
        """The same."""
        return self.code

    def describe_exit(self) -> str:
        """How it ended, in words."""
        return "killed by SIGKILL" if self.code == KILLED else f"exited with status {self.code}"

    def start_error(self, why: str | None = None) -> Exception:
        """Why it did not start."""
        return RuntimeError(f"the worker did not start: {why or self.describe_exit()}")


class SimulatedWorker(Worker):
    """A worker whose process is a few objects in this one."""

    def __init__(self, number: int, own: bool, runtime: SimulatedRuntime) -> None:
        super().__init__(number, f"worker-{number}", own)
        self._runtime = runtime
        self.pid = 10_000 + number
        self.process = SimulatedProcess(self.pid)  # type: ignore[assignment]
        self.near = SimulatedLink(self.name)
        self.far = SimulatedLink(self.name)
        self.near.peer, self.far.peer = self.far, self.near
        self._link = self.near
        self.alive = False

    def start(self, events: WorkerEvents, marker: str, params: dict[str, Any]) -> None:
        """Make its host and begin."""
        from dsh_actors.testing.simulation.runtime import SimulatedDispatcher, SimulatedLoop

        scheduler = self._runtime.scheduler
        self.dispatcher = SimulatedDispatcher(self.name, scheduler)
        self.loop = SimulatedLoop(f"{self.name} loop", scheduler)
        self.host = WorkerHost(
            self.dispatcher, params["max_turns"], lambda _: self.die(0),
            loop=self.loop, turns_per_visit=1,
        )  # fmt: skip
        self.host.durable = params["durable"]
        self.near.deliver = lambda batch: events.frames(self, batch)
        self.near.ended = lambda reason: events.gone(self, reason)
        self.far.deliver = self.host.act
        self.far.ended = self.host.end
        self.alive = True
        self.wires = _Wires(self, self._runtime)
        self.host.connect(self.far, SimulatedReporter(self.far, self._runtime))

    def die(self, code: int) -> None:
        """The process ends, at once and in whatever state. What it had sent is still read."""
        if not self.alive:
            return
        self.alive = False
        assert self.process is not None
        self.process.code = code  # type: ignore[attr-defined]
        self.far.shut = True
        self.dispatcher.drop()
        self.loop.close(0)


class _Wires:
    """What can happen between a worker and its supervisor."""

    def __init__(self, worker: SimulatedWorker, runtime: SimulatedRuntime) -> None:
        self._worker = worker
        self._runtime = runtime
        runtime.scheduler.sources.append(self)

    def ready(self) -> int:
        """How many of the moves are possible."""
        return len(self._moves())

    def _moves(self) -> list[str]:
        worker = self._worker
        near, far = worker.near, worker.far
        moves = []
        if worker.alive and near.wire:
            moves.append("to the worker")
        if far.wire:
            moves.append("to the supervisor")
        if worker.alive and near.shut and not near.wire:
            moves.append("the worker sees the end of its supervisor")
        if not worker.alive and not far.wire and not near.told:
            moves.append("the supervisor sees the end of the worker")
        return moves

    def step(self, index: int) -> str:
        """Let one of them happen."""
        move = self._moves()[index]
        worker = self._worker
        if move == "to the worker":
            return f"{worker.name}: {self._deliver(worker.near, worker.far)}"
        if move == "to the supervisor":
            return f"{worker.name}: {self._deliver(worker.far, worker.near)}"
        if move.startswith("the worker"):
            worker.far.ended(None)
        else:
            worker.near.told = True
            self._runtime.scheduler.sources.remove(self)
            worker.near.ended(None)
        return f"{worker.name}: {move}"

    def _deliver(self, source: SimulatedLink, target: SimulatedLink) -> str:
        count = self._runtime.scheduler.random.randint(1, len(source.wire))
        batch = [msgpack.unpackb(source.wire.popleft(), strict_map_key=False) for _ in range(count)]
        target.deliver(batch)
        way = "->" if target is self._worker.far else "<-"
        return f"{way} {', '.join(_frame_name(frame) for frame in batch)}"


def _frame_name(frame: list[Any]) -> str:
    from dsh_actors.workers import frames

    for name, value in vars(frames).items():
        if name.isupper() and value == frame[0] and name not in _OPERATIONS:
            return f"{name} {frame[1:3]}"
    return str(frame[0])


_OPERATIONS = {
    "RUN", "SPAWN", "CHILD", "SEND", "ASK", "CANCEL_AGENT", "STATUS", "WHEN_IDLE", "LEFT",
    "CHECKPOINT", "CALL",
}  # fmt: skip


class SimulatedPool(WorkerPool):
    """Starts and ends simulated workers; every end is a step of its own."""

    def __init__(
        self,
        size: int,
        marker: str,
        events: WorkerEvents,
        params: dict[str, Any],
        runtime: SimulatedRuntime,
    ) -> None:
        super().__init__(size, marker, events, params)
        self._runtime = runtime

    def _start(self, *, own: bool) -> SimulatedWorker:
        self._count += 1
        worker = SimulatedWorker(self._count, own, self._runtime)
        self.workers[worker.number] = worker
        worker.start(self._events, self.marker, self._params)
        return worker

    def _in_thread(self, name: str, function: Callable[[], None]) -> None:
        self._runtime.background.add(name, function)

    def _end(self, worker: Worker, force: bool, then: Callable[[], None] | None) -> None:
        assert isinstance(worker, SimulatedWorker)
        if worker.number in self.workers:
            worker.die(KILLED if force else 0)
            worker.close_link()
            ended: list[Ended] = []
            assert worker.process is not None
            self._record(worker, worker.process.poll(), ended)
        if then is not None:
            then()

    def join(self, timeout: float) -> bool:
        """Confirm all ends now."""
        self._runtime.background.run_all()
        return True
