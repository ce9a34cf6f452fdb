"""Commands that try to stay: nothing of them is left once they are called ended."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from watching import PATIENCE

from dsh_actors.processes.identity import ProcessId, is_running
from dsh_actors.processes.proctree import marked
from dsh_actors.shell.executor import ShellExecutor
from dsh_actors.shell.request import ShellRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dsh_actors.shell.task import ShellResult

# Each tells who it is in the file "pids", and that all is in place through the pipe "ready".
# "tick" writes to a file for as long as it lives.
PRELUDE = """
me() { echo $$ >> pids; }
tick() { sh -c 'echo $$ >> pids; while :; do echo x >> ticks; sleep 0.01; done'; }
me
"""

DETACHING = {
    "in the background": "tick & until [ -s ticks ]; do :; done; echo > ready; exit 0",
    "nohup": "nohup sh -c 'echo $$ >> pids; echo > ready; exec sleep 60' > /dev/null 2>&1 & exit 0",
    "setsid": "setsid sh -c 'echo $$ >> pids; echo > ready; exec sleep 60' & exit 0",
    "double fork": (
        "(setsid sh -c '(echo $$ >> pids; echo > ready; exec sleep 60) & exit 0' &) ; exit 0"
    ),
    "scrubbed environment": (
        "(env -i PATH=$PATH setsid setsid sh -c "
        "'echo $$ >> pids; echo > ready; exec sleep 60' &) ; exit 0"
    ),
    "deaf to TERM": (
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> pids; echo > ready; "
        "while :; do sleep 60; done' & wait"
    ),
    "a loop of 200": (
        "i=0; while [ $i -lt 200 ]; do sleep 60 & echo $! >> pids; i=$((i+1)); done; "
        "echo > ready; wait"
    ),
    "holding the output": "sh -c 'echo $$ >> pids; echo > ready; exec sleep 60' & exec true",
    "reading its input": "echo > ready; cat; exec sleep 60",
    "forks when it is asked to end": (
        "trap 'setsid sh -c \"echo \\$\\$ >> pids; exec sleep 60\" & exit 0' TERM; "
        "echo > ready; while :; do sleep 0.01; done"
    ),
    "stopped": "sh -c 'echo $$ >> pids; echo > ready; kill -STOP $$' & wait; sleep 60",
}


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[ShellExecutor]:
    os.mkfifo(tmp_path / "ready")
    with ShellExecutor() as found:
        yield found


def end_when_ready(executor: ShellExecutor, folder: Path, command: str) -> ShellResult:
    task = executor.start(ShellRequest(PRELUDE + command, cwd=folder))
    with open(folder / "ready") as pipe:
        pipe.read()
    return executor.end(task.id, grace=0.1).result(PATIENCE)


def left_of(folder: Path) -> list[int]:
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    found = [ProcessId.of(pid) for pid in pids]
    return [process.pid for process in found if process is not None and is_running(process)]


@pytest.mark.parametrize("how", DETACHING)
@pytest.mark.behaviour(162)
def test_nothing_is_left(how: str, executor: ShellExecutor, tmp_path: Path) -> None:
    result = end_when_ready(executor, tmp_path, DETACHING[how])

    assert left_of(tmp_path) == []
    assert marked(executor._mark) == []
    if how == "deaf to TERM":
        assert result.ended == "killed"
        assert result.killed


def test_a_command_is_not_done_while_its_group_lives(
    executor: ShellExecutor, tmp_path: Path
) -> None:
    """The line has ended; what it has left in the background has not."""
    os.mkfifo(tmp_path / "go")
    task, future = executor.run(ShellRequest("(read x < go; echo late) & exit 3", cwd=tmp_path))
    assert not future.done()
    assert executor.task(task.id).running

    with open(tmp_path / "go", "w") as pipe:
        pipe.write("\n")

    result = future.result(PATIENCE)
    assert (result.exit_code, result.ended, result.text) == (3, "exited", "late\n")


def test_a_time_out_is_a_result(executor: ShellExecutor) -> None:
    result = executor.run(ShellRequest("echo begun; sleep 60", timeout=0.2))[1].result(PATIENCE)

    assert result.timed_out
    assert (result.ended, result.signal, result.exit_code) == ("terminated", "SIGTERM", None)
    assert not result.ok


def test_a_hundred_megabytes(executor: ShellExecutor) -> None:
    task, future = executor.run(ShellRequest("head -c 100000000 /dev/zero | tr '\\0' x; echo end"))
    result = future.result(PATIENCE)

    assert result.output.total == 100_000_004
    assert len(result.output.head) + len(result.output.tail) == 2 * executor.defaults.keep
    assert result.output.tail.endswith(b"xend\n")
    assert result.output.path is not None
    assert os.stat(result.output.path).st_mode & 0o777 == 0o600
    assert os.stat(result.output.path).st_size == 100_000_004
    read, start = 0, 0
    while piece := executor.read(task.id, start, 16 << 20):
        if not piece.data:
            break
        read, start = read + len(piece.data), piece.next
    assert read == 100_000_004


def test_bytes_are_bytes(executor: ShellExecutor) -> None:
    everything = bytes(range(256)) * 100
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100)"

    result = executor.run(ShellRequest([sys.executable, "-c", script]))[1].result(PATIENCE)

    assert result.output.head == everything
    assert isinstance(result.text, str)


def test_the_death_of_a_keeper_ends_its_command(executor: ShellExecutor, tmp_path: Path) -> None:
    task = executor.start(ShellRequest(PRELUDE + "tick & echo > ready; wait", cwd=tmp_path))
    with open(tmp_path / "ready") as pipe:
        pipe.read()

    executor._tasks[task.id].keeper.kill()

    result = executor.result(task.id).result(PATIENCE)
    assert result.signal == "SIGKILL"
    assert left_of(tmp_path) == []
    assert marked(executor._mark) == []


def test_a_stranger_with_the_number_of_an_ended_one_lives(executor: ShellExecutor) -> None:
    """The keeper was killed, and its pid has been given to another process since."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        task = executor.start(ShellRequest("sleep 60"))
        running = executor._tasks[task.id]
        running.identity = ProcessId(stranger.pid, running.identity.start_time - 1.0)

        running.keeper.kill()

        assert executor.result(task.id).result(PATIENCE).signal == "SIGKILL"
        assert stranger.poll() is None
        assert marked(executor._mark) == []
        stranger.kill()
