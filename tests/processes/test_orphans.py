"""Whatever ends a supervisor, its workers and all that they have started end with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
import scripts

from dsh_actors.processes.identity import ProcessId, is_running

if TYPE_CHECKING:
    from pathlib import Path

SUPERVISOR = """
import sys
import dsh_actors as dsh
import worker_behaviours as behaviours

def told(event):
    if event["type"] == "progress" and event["note"]:
        print(event["note"], flush=True)

if __name__ == "__main__":
    with dsh.ActorSystem(workers=1, on_event=told) as system:
        for isolation in ("pool", "own"):
            agent = system.create(behaviours.start_processes, isolation=isolation).agent
            agent.send(sys.argv[1] + "/" + isolation)
        for _ in range(6):  # in the worker that has processes to end
            system.create(behaviours.spin, isolation="pool").agent.send(None)
        sys.stdin.read() if len(sys.argv) > 2 else agent.when_idle().result()
"""


def wait_for_end(processes: list[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until none of them runs, by their pidfds; those that still do."""
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if is_running(process):
                select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(fd)
    return [process for process in processes if is_running(process)]


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_all_processes_end_with_the_supervisor(how: str, tmp_path: Path) -> None:
    """Also those with sessions of their own, orphans of double forks, and deaf ones."""
    for isolation in ("pool", "own"):
        (tmp_path / isolation).mkdir()
    script = tmp_path / "script.py"
    script.write_text(SUPERVISOR)
    supervisor = scripts.start(script, str(tmp_path))
    pids: list[int] = []
    try:
        assert supervisor.stdout is not None
        for _ in range(8):
            line = supervisor.stdout.readline()
            if not line:
                raise AssertionError(supervisor.communicate()[1])
            if line.strip() != "spins":
                pids += map(int, line.split())
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(supervisor.pid)],
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        processes = [ProcessId.of(pid) for pid in {*pids, *map(int, children)}]
        known = [process for process in processes if process is not None]
        assert len(known) == 8
        supervisor.send_signal(getattr(signal, how))
        supervisor.wait(10)
        left = wait_for_end(known, 2.0)
        assert left == []
    finally:
        supervisor.kill()
        supervisor.communicate()


def test_a_script_that_forgets_to_end_its_system_ends(tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
import dsh_actors as dsh
import worker_behaviours as behaviours

if __name__ == "__main__":
    system = dsh.ActorSystem(workers=1)
    agent = system.create(behaviours.pid, isolation="pool").agent
    print(agent.ask(None).result(20), flush=True)
    system.create(behaviours.spin, isolation="pool").agent.send(None)
""",
    )
    assert done.returncode == 0, done.stderr
    worker = ProcessId.of(int(done.stdout))
    assert worker is None or wait_for_end([worker], 2.0) == []
