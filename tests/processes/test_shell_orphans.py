"""Commands end with the process whose executor runs them, however that ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import scripts
from test_orphans import wait_for_end

from dsh_actors.processes.identity import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import signal, sys
from dsh_actors.shell.executor import ShellExecutor
from dsh_actors.shell.request import ShellRequest

executor = ShellExecutor()
for command in (
    "echo $$ >> pids; echo > ready; trap '' TERM; while :; do sleep 60; done",
    "(env -i PATH=$PATH setsid setsid sh -c 'echo $$ >> pids; echo > ready; exec sleep 60' &)",
    "nohup sh -c 'echo $$ >> pids; echo > ready; exec sleep 60' > /dev/null 2>&1 & exit 0",
):
    executor.start(ShellRequest(command, cwd=sys.argv[1]))
    with open(sys.argv[1] + "/ready") as pipe:
        pipe.read()
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGSTOP, then SIGKILL"])
def test_commands_end_with_their_executor(how: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = scripts.start(script, str(tmp_path))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        found = [ProcessId.of(pid) for pid in pids]
        commands = [each for each in found if each is not None]
        assert len(commands) == 3

        for name in how.split(", then "):
            process.send_signal(signal.Signals[name])

        assert wait_for_end(commands, 2.0) == []
    finally:
        process.kill()
        process.communicate()
