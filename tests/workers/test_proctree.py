"""Ending process trees, with real processes that do not want to be found or ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors import codec
from dsh_actors.processes.identity import ProcessId, is_running
from dsh_actors.processes.proctree import Ended, end_tree, kill_tree_now, marked, tree_of
from dsh_actors.workers.process import WorkerProcess, start_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 20.0  # seconds; a bound for failing tests, not a delay
MARKER = f"proctree-{os.getpid()}"
ALL_KINDS = ["plain", "session", "orphan", "stubborn", "forked"]
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@contextmanager
def family(target: str = "start_family", **params: Any) -> Iterator[tuple[WorkerProcess, Any]]:
    """A worker that has told what it started; whatever happens, nothing is left of it."""
    worker = start_worker(f"worker_targets:{target}", params, name="root", marker=f"{MARKER}:1")
    worker.sock.settimeout(WAIT)
    try:
        yield worker, receive(worker)
    finally:
        kill_tree_now(worker.identity, marker=f"{MARKER}:1")
        worker.sock.close()
        worker.wait(WAIT)


def receive(worker: WorkerProcess) -> Any:
    data = b""
    while received := worker.sock.recv(1 << 16):
        data += received
    return codec.decode(data)


def identities(pids: list[int]) -> list[ProcessId]:
    found = [ProcessId.of(pid) for pid in pids]
    assert None not in found
    return [identity for identity in found if identity is not None]


def wait_until_gone(processes: list[ProcessId], seconds: float) -> float:
    """Wait for processes that are no children of this one; return how long it took."""
    began = monotonic()
    while any(map(is_running, processes)):
        assert monotonic() - began < seconds, [p for p in processes if is_running(p)]
        for process in filter(is_running, processes):
            try:
                held = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            poll = select.poll()
            poll.register(held)
            poll.poll(50)
            os.close(held)
    return monotonic() - began


def test_descendants_and_marked_processes_are_found() -> None:
    with family(kinds=ALL_KINDS) as (worker, pids):
        below = {process.pid for process in tree_of(worker.pid)}
        with_mark = {process.pid for process in marked(MARKER)}

        assert below == set(pids)  # the orphan too, since a worker is a subreaper
        assert with_mark == {worker.pid, *pids}
        assert marked(f"{MARKER}:1") == marked(MARKER)
        assert marked(f"{MARKER}:") == []
        assert marked(MARKER[:-1]) == []


def test_all_of_a_tree_is_ended_and_said_how() -> None:
    with family(kinds=ALL_KINDS) as (worker, pids):
        members = [worker.identity, *identities(pids)]
        ended = end_tree(worker.identity, marker=f"{MARKER}:1", grace=0.3, kill_wait=WAIT)

        assert not any(map(is_running, members))
        assert worker.describe_exit() == "killed by SIGTERM"

    by_pid = {process.pid: process for process in ended}
    assert set(by_pid) == {worker.pid, *pids}
    assert by_pid[worker.pid] == Ended(worker.pid, "worker", "terminated", "SIGTERM")
    stubborn = pids[ALL_KINDS.index("stubborn")]
    assert by_pid[stubborn] == Ended(stubborn, "shell", "killed", "SIGKILL")
    assert by_pid[pids[0]] == Ended(pids[0], "shell", "terminated", "SIGTERM")
    assert marked(MARKER) == []


def test_a_tree_can_be_killed_without_a_warning() -> None:
    with family(kinds=ALL_KINDS) as (worker, pids):
        members = identities(pids)
        ended = kill_tree_now(worker.identity, marker=f"{MARKER}:1")

        assert not any(map(is_running, members))
        assert worker.describe_exit() == "killed by SIGKILL"
    assert {process.ended for process in ended} == {"killed"}
    assert len(ended) == 6


def test_what_a_dead_worker_left_behind_is_found_by_its_mark() -> None:
    with family(kinds=ALL_KINDS) as (worker, pids):
        members = identities(pids)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait(WAIT)

        ended = end_tree(worker.identity, marker=f"{MARKER}:1", grace=0.1, kill_wait=WAIT)

        assert {process.pid for process in ended} == set(pids)
        assert not any(map(is_running, members))


def test_a_stopped_worker_can_be_ended() -> None:
    with family(kinds=["plain"]) as (worker, _):
        os.kill(worker.pid, signal.SIGSTOP)
        end_tree(worker.identity, marker=f"{MARKER}:1", grace=WAIT, kill_wait=WAIT)
        assert worker.describe_exit() == "killed by SIGTERM"


def test_a_tree_that_has_ended_by_itself_needs_no_signal() -> None:
    with family(kinds=[]) as (worker, _):
        worker.sock.close()
        assert worker.wait(WAIT) == 0
        assert end_tree(worker.identity, marker=f"{MARKER}:1", grace=1, kill_wait=1) == []


def test_a_later_holder_of_the_pid_is_not_touched() -> None:
    with family(kinds=["plain"]) as (worker, pids):
        earlier = ProcessId(worker.pid, worker.start_time - 100)

        assert end_tree(earlier, marker="proctree-nobody", grace=0.1, kill_wait=0.1) == []

        assert is_running(worker.identity)
        assert all(map(is_running, identities(pids)))


def test_processes_that_keep_starting_others_are_caught() -> None:
    with family("start_for_ever") as (worker, _):
        ended = end_tree(worker.identity, marker=f"{MARKER}:1", grace=0.0, kill_wait=WAIT)

        assert len(ended) >= 2
        assert marked(MARKER) == []


def test_a_worker_ends_all_that_it_started_when_its_supervisor_is_gone() -> None:
    with family(kinds=ALL_KINDS, at_end="own") as (worker, pids):
        members = identities(pids)
        worker.sock.close()

        assert worker.wait(WAIT) == 0
        assert not any(map(is_running, members))


def test_a_worker_whose_threads_keep_starting_processes_leaves_none() -> None:
    with family("start_for_ever") as (worker, _):
        worker.sock.close()
        assert worker.wait(WAIT) in (0, -signal.SIGKILL)

        wait_until_gone(marked(MARKER), 2.0)
        assert marked(MARKER) == []


SUPERVISOR = f"""
import signal
from worker_targets import STARTERS
from dsh_actors import codec
from dsh_actors.workers.process import start_worker

if __name__ == "__main__":
    params = {{"kinds": {ALL_KINDS!r}, "at_end": "own"}}
    worker = start_worker(
        "worker_targets:start_family", params, name="root", marker="{MARKER}-killed:1"
    )
    print(worker.pid, *codec.decode(worker.sock.recv(10000)), flush=True)
    signal.pause()
"""


def test_nothing_survives_the_sigkill_of_the_supervisor(tmp_path: Path) -> None:
    script = tmp_path / "supervisor.py"
    script.write_text(SUPERVISOR)
    path = os.pathsep.join([str(ROOT), str(HERE)])
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        members = identities(list(map(int, supervisor.stdout.readline().split())))
        assert len(members) == 1 + len(ALL_KINDS)

        supervisor.kill()

        assert wait_until_gone(members, WAIT) < 2.0
    assert marked(f"{MARKER}-killed") == []


def test_a_mark_inside_another_is_found_by_both() -> None:
    code = "import os; print(os.environ['DSH_ACTORS_WORKER'], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "DSH_ACTORS_WORKER": f"{MARKER}-a:1;{MARKER}-b:2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        assert [p.pid for p in marked(f"{MARKER}-a")] == [process.pid]
        assert [p.pid for p in marked(f"{MARKER}-b:2")] == [process.pid]
        process.communicate(b"\n")


@pytest.mark.parametrize("pid", [2**22 + 1, 0])
def test_a_pid_that_nobody_has(pid: int) -> None:
    assert ProcessId.of(pid) is None
    assert not is_running(ProcessId(pid, 1.0))
