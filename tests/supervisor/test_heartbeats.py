"""Workers that are not ready in time, that do not answer, or that use too much."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Watch

import dsh_actors as dsh
from dsh_actors.supervisor.core import Settings
from dsh_actors.supervisor.heartbeats import Heartbeats
from dsh_actors.workers.limits import in_words
from dsh_actors.workers.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20
_kept: list[bytes] = []


def hold_the_interpreter(turn: dsh.Turn, message: Any) -> None:
    ctypes.PyDLL(None).sleep(60)  # unlike a CDLL it keeps the lock


def compute(turn: dsh.Turn, seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "computed"


def grow(turn: dsh.Turn, size: int) -> int:
    _kept.append(os.urandom(1) * size)
    return os.getpid()


def grow_and_wait(turn: dsh.Turn, size: int) -> None:
    grow(turn, size)
    turn.sleep(3600)


def spin(turn: dsh.Turn, message: Any) -> None:
    while True:
        pass


def open_files_allowed(turn: dsh.Turn, message: Any) -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def only_worker(system: dsh.ActorSystem) -> Worker:
    (worker,) = system._supervisor.pool.live()
    return worker


# -- the beat, with a clock of its own -------------------------------------------------------------


class Clock:
    """Timers and the clock in one; nothing is due before `advance` says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, Any, tuple[Any, ...]]] = []

    def monotonic(self) -> float:
        return self.now

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> Clock:
        self.calls.append((self.now + seconds, call, args))
        return self

    def cancel(self) -> None:
        pass

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.calls if each[0] <= self.now]
        self.calls = [each for each in self.calls if each[0] > self.now]
        for _, call, args in due:
            call(*args)


class Setup:
    """Heartbeats over workers without processes; also stands for core, supervisor and pool."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.settings = Settings(workers=1, **settings)
        self.runtime = self.clock
        self.pool = self
        self.ended: list[tuple[Worker, str]] = []
        self.heartbeats = Heartbeats(self, self, self.clock)  # type: ignore[arg-type]

    def end(self, worker: Worker, why: str, *, force: bool) -> None:
        worker.ending = why
        self.ended.append((worker, why))

    def worker(self, *, ready: bool = True) -> Worker:
        worker = Worker(1, "w", own=False)
        worker.ready = ready
        self.heartbeats.watch(worker)
        return worker


def test_silence_is_counted_from_the_last_frame() -> None:
    setup = Setup(heartbeat=5.0, heartbeat_deadline=15.0)
    worker = setup.worker()
    for _ in range(4):
        worker.heard = True
        setup.clock.advance(5)
    setup.clock.advance(5)
    setup.clock.advance(5)
    assert not setup.ended
    setup.clock.advance(5)
    assert setup.ended == [(worker, "did not answer for 15 s")]
    assert worker.fault == "did not answer for 15 s"


def test_a_supervisor_that_stood_still_does_not_blame_its_workers() -> None:
    setup = Setup(heartbeat=5.0, heartbeat_deadline=15.0, ready_deadline=60.0)
    setup.worker()
    starting = setup.worker(ready=False)
    setup.clock.advance(3600)
    assert not setup.ended
    setup.clock.advance(60)
    assert setup.ended == [(starting, "was not ready after 60 s")]


def test_there_is_no_beat_without_workers() -> None:
    setup = Setup(heartbeat=5.0)
    assert not setup.clock.calls
    first = setup.worker()
    first.dead = True
    setup.clock.advance(5)
    setup.clock.advance(60)
    assert not setup.clock.calls
    setup.worker()
    setup.worker()
    beats = [call for _, call, _ in setup.clock.calls if call == setup.heartbeats._beat]
    assert len(beats) == 1


def test_without_heartbeats_and_limits_there_is_no_beat_at_all() -> None:
    setup = Setup(heartbeat=None)
    setup.worker()
    assert len(setup.clock.calls) == 1  # that it must get ready


# -- not ready -------------------------------------------------------------------------------------


def test_a_worker_that_does_not_get_ready_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stuck_worker.py").write_text(
        "import sys, time\nprint('waiting for the licence server', file=sys.stderr, flush=True)\n"
        "time.sleep(3600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("dsh_actors.workers.worker.TARGET", "stuck_worker:serve")
    watch = Watch()
    with dsh.ActorSystem(workers=1, ready_deadline=0.4, on_event=watch) as system:
        agent = system.create(behaviours.echo, id="e", isolation="pool").agent
        with pytest.raises(dsh.AgentLost) as caught:
            agent.ask("hello").result(PATIENCE)
        assert "was not ready after 0.4 s" in str(caught.value)
        assert "waiting for the licence server" in str(caught.value)
        assert watch.see("agent/ended", "e")["outcome"] == "lost"
    assert not watch.see("worker/ended")["expected"]


def test_the_deadlines_are_checked() -> None:
    for wrong in ({"ready_deadline": 0}, {"heartbeat": 0.0}, {"heartbeat_deadline": -1}):
        with pytest.raises(dsh.UsageError, match="must be more than 0 s"):
            dsh.ActorSystem(**wrong)  # type: ignore[arg-type]


# -- no answer -------------------------------------------------------------------------------------


def test_native_code_that_keeps_the_interpreter_lock_is_found() -> None:
    watch = Watch()
    with dsh.ActorSystem(
        workers=1, heartbeat=0.05, heartbeat_deadline=0.3, on_event=watch
    ) as system:
        agent = system.create(hold_the_interpreter, id="h", isolation="pool").agent
        with pytest.raises(dsh.AgentLost, match=r"its worker process \d+ did not answer for 0\.3"):
            agent.ask(None).result(PATIENCE)
        assert watch.see("agent/ended", "h")["outcome"] == "lost"
    assert not watch.see("worker/ended")["expected"]


def test_a_stopped_worker_is_found_and_its_agent_starts_again_elsewhere() -> None:
    watch = Watch()
    with dsh.ActorSystem(
        workers=1, heartbeat=0.05, heartbeat_deadline=0.3, on_event=watch
    ) as system:
        agent = system.create(behaviours.pid, isolation="pool", restart="transient").agent
        first = agent.ask(None).result(PATIENCE)
        os.kill(first, signal.SIGSTOP)
        second = agent.ask(None)
        assert second.result(PATIENCE) != first
    (ended,) = (each for each in system.receipt().processes if each.pid == first)
    assert ended.signal in ("SIGTERM", "SIGKILL")


def test_a_busy_behaviour_is_no_silence() -> None:
    with dsh.ActorSystem(workers=1, heartbeat=0.05, heartbeat_deadline=0.6) as system:
        agent = system.create(compute, isolation="pool").agent
        assert agent.ask(0.9).result(PATIENCE) == "computed"


# -- limits ----------------------------------------------------------------------------------------


def test_a_worker_above_the_hard_memory_limit_is_killed() -> None:
    limits = dsh.WorkerLimits(memory_hard=150 * MIB)
    with dsh.ActorSystem(workers=1, heartbeat=0.05, worker_limits=limits) as system:
        small = system.create(grow_and_wait, isolation="own").agent
        waiting = small.ask(MIB)
        large = system.create(grow_and_wait, isolation="own").agent
        expected = r"had \d+\.\d MiB resident, more than the 150\.0 MiB allowed"
        with pytest.raises(dsh.AgentLost, match=expected):
            large.ask(180 * MIB).result(PATIENCE)
        assert not waiting.done()


def test_a_worker_above_the_soft_memory_limit_ends_with_its_agents() -> None:
    watch = Watch()
    limits = dsh.WorkerLimits(memory_soft=100 * MIB)
    with dsh.ActorSystem(workers=1, heartbeat=0.05, worker_limits=limits, on_event=watch) as system:
        growing = system.create(grow, isolation="pool")
        first = growing.agent.ask(120 * MIB).result(PATIENCE)
        assert growing.agent.ask(1).result(PATIENCE) == first
        growing.dispose().result(PATIENCE)
        assert watch.see("worker/ended", pid=first)["expected"]
        again = system.create(behaviours.pid, isolation="pool").agent
        assert again.ask(None).result(PATIENCE) != first


def test_a_retiring_worker_keeps_its_agents_and_gets_no_others() -> None:
    with dsh.ActorSystem(workers=1) as system:
        old = system.create(behaviours.pid, isolation="pool").agent
        first = old.ask(None).result(PATIENCE)
        only_worker(system).retiring = True
        new = system.create(behaviours.pid, isolation="pool").agent
        assert new.ask(None).result(PATIENCE) != first
        assert old.ask(None).result(PATIENCE) == first


def test_a_worker_that_uses_too_much_cpu_is_ended() -> None:
    limits = dsh.WorkerLimits(cpu_seconds=1)
    with dsh.ActorSystem(workers=1, worker_limits=limits) as system:
        agent = system.create(spin, isolation="pool").agent
        with pytest.raises(dsh.AgentLost, match=r"process \d+ used more than 1 s of CPU"):
            agent.ask(None).result(PATIENCE)


@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_open_files_are_limited_in_the_worker(isolation: str) -> None:
    limits = dsh.WorkerLimits(open_files=80)
    with dsh.ActorSystem(workers=1, worker_limits=limits) as system:
        agent = system.create(open_files_allowed, isolation=isolation).agent
        assert agent.ask(None).result(PATIENCE) == [80, 80]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 80


def test_limits_are_checked() -> None:
    with pytest.raises(dsh.UsageError, match="cpu_seconds must be a whole number"):
        dsh.WorkerLimits(cpu_seconds=0)
    with pytest.raises(dsh.UsageError, match="memory_soft must not be above memory_hard"):
        dsh.WorkerLimits(memory_soft=2, memory_hard=1)


# -- the cause in the outcome ----------------------------------------------------------------------


def test_what_was_resident_is_said_of_a_killed_worker() -> None:
    with dsh.ActorSystem(workers=1, heartbeat=None) as system:
        agent = system.create(behaviours.pid, isolation="pool").agent
        pid = agent.ask(None).result(PATIENCE)
        only_worker(system).resident = int(2.1 * 1024 * MIB)  # as a beat saw it
        os.kill(pid, signal.SIGSTOP)  # so that the question is there before the end
        reply = agent.ask(None)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(dsh.AgentLost, match=f"process {pid} was killed by SIGKILL, 2.1 GiB"):
            reply.result(PATIENCE)


def test_sizes_in_words() -> None:
    assert [in_words(size) for size in (10, 2048, 3 * MIB // 2, 5 << 30)] == [
        "10 bytes", "2.0 KiB", "1.5 MiB", "5.0 GiB",
    ]  # fmt: skip
