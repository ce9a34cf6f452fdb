"""One command while it runs: its keeper, its descriptors, its output and what is known of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import ShellStartError
from dsh_actors.processes.identity import MARKER, ProcessId
from dsh_actors.shell.keeper import PROGRAM
from dsh_actors.shell.task import ShellResult, ShellTask

if TYPE_CHECKING:
    from dsh_actors.actors.future import Future
    from dsh_actors.shell.output import Output
    from dsh_actors.shell.request import ShellSpec
    from dsh_actors.shell.task import End

__all__ = ["Running"]

_ROOT = str(Path(__file__).resolve().parents[2])
_START_DEADLINE = 30.0
"""Seconds that a keeper may take to say that the command runs."""


class Running:
    """A command and its keeper. The executor guards it.

    Parameters:
        id: of the task.
        spec: what to run.
        marker: marks the processes of this task.
        output: takes what it writes.
        future: settled with the result.
        background: whether nobody waits for it.

    Raises:
        ShellStartError: it cannot be started; nothing is left.
    """

    def __init__(
        self,
        id: str,
        spec: ShellSpec,
        marker: str,
        output: Output,
        future: Future[ShellResult],
        *,
        background: bool,
    ) -> None:
        self.id, self.spec, self.marker = id, spec, marker
        self.output, self.future, self.background = output, future, background
        self.started, self._since = time(), monotonic()
        self.deadline = None if spec.timeout is None else self._since + spec.timeout
        self.pending_input = memoryview(spec.stdin)
        self.timed_out = False
        self.ending = False
        self.done = False
        self.exit_status: int | None = None
        self.empty = False
        self.killed: tuple[int, ...] = ()
        self.terminated: tuple[int, ...] = ()
        self.source: int | None = None  # where its output is read
        self.sink: int | None = None  # where its input is written
        self._lines = b""
        self._start()

    def _start(self) -> None:
        spec = self.spec
        ours, theirs = socket.socketpair()
        inner: list[int] = []
        try:
            stdin, stdout = self._open_pty(inner) if spec.pty else self._open_pipes(inner)
            mark = ";".join(filter(None, (os.environ.get(MARKER), self.marker)))
            self.keeper = subprocess.Popen(
                [
                    sys.executable, "-E", "-S", "-c", PROGRAM, _ROOT, str(theirs.fileno()),
                    "pty" if spec.pty else "pipe", *spec.argv,
                ],
                stdin=stdin, stdout=stdout, stderr=stdout, cwd=spec.cwd,
                env={**spec.env, MARKER: mark}, pass_fds=[theirs.fileno()],
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            ours.close()
            self.close_descriptors()
            raise ShellStartError(f"{spec.command!r} cannot be started: {error}") from error
        finally:
            theirs.close()
            for descriptor in inner:
                os.close(descriptor)
        self.control = ours
        found = ProcessId.of(self.keeper.pid)
        self.identity = found or ProcessId(self.keeper.pid, 0.0)
        try:
            self.pid = self._await_start()
        except BaseException:
            self.control.close()  # at which the keeper ends everything
            self.keeper.wait()
            self.close_descriptors()
            raise
        self.control.setblocking(False)

    def _open_pipes(self, inner: list[int]) -> tuple[int, int]:
        stdin = subprocess.DEVNULL
        if self.spec.stdin or self.spec.keep_stdin:
            stdin, self.sink = os.pipe()
            inner.append(stdin)
            os.set_blocking(self.sink, False)
        self.source, stdout = os.pipe()
        inner.append(stdout)
        os.set_blocking(self.source, False)
        return stdin, stdout

    def _open_pty(self, inner: list[int]) -> tuple[int, int]:
        self.source, terminal = os.openpty()
        inner.append(terminal)
        os.set_inheritable(self.source, False)
        os.set_blocking(self.source, False)
        self.sink = os.dup(self.source)
        return terminal, terminal

    def _await_start(self) -> int:
        self.control.settimeout(_START_DEADLINE)
        while True:
            try:
                data = self.control.recv(4096)
            except TimeoutError:
                raise ShellStartError(
                    f"{self.spec.command!r} has not started within {_START_DEADLINE:g} s"
                ) from None
            if not data:
                raise ShellStartError(
                    f"{self.spec.command!r} cannot be started: its keeper has ended "
                    f"(status {self.keeper.wait()}); is {sys.executable} usable here?"
                )
            self._lines += data
            if b"\n" in self._lines:
                break
        line, _, self._lines = self._lines.partition(b"\n")
        said = json.loads(line)
        if "failed" in said:
            raise ShellStartError(
                f"{self.spec.command!r} cannot be started: {said['failed']}; "
                "check the name of the program and the rights on it"
            )
        return int(said["started"])

    # -- hearing and telling -------------------------------------------------------------------

    def hear(self) -> bool:
        """Take in what the keeper says; False once it has ended."""
        try:
            data = self.control.recv(65536)
        except BlockingIOError:
            data = None
        except ConnectionError:
            data = b""
        if data:
            self._lines += data
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            self._note(json.loads(line))
        return data != b""

    def _note(self, said: dict[str, Any]) -> None:
        if "exited" in said:
            self.exit_status = said["exited"]
        if said.get("empty"):
            self.empty = True
            self.killed, self.terminated = tuple(said["killed"]), tuple(said["terminated"])

    def end(self, grace: float) -> None:
        """Have everything of it ended: TERM, and KILL after the grace, in seconds."""
        self.ending = True
        try:
            self.control.send(json.dumps({"grace": grace}).encode() + b"\n")
        except OSError:
            return  # the keeper has ended: the executor is about to see that, and what is left

    def read(self) -> bool:
        """Take what it has written; False at the end."""
        assert self.source is not None
        for _ in range(16):  # others want to be read too
            try:
                data = os.read(self.source, 65536)
            except BlockingIOError:
                return True
            except OSError:  # of a terminal that nobody holds any more
                return False
            if not data:
                return False
            self.output.write(data)
        return True

    def feed(self) -> bool:
        """Write what is left of its input; False once there is no more to write for now."""
        assert self.sink is not None
        try:
            written = os.write(self.sink, self.pending_input[:65536])
        except BlockingIOError:
            return True
        except OSError:  # it does not read any more
            self.pending_input = memoryview(b"")
            return False
        self.pending_input = self.pending_input[written:]
        return bool(self.pending_input)

    # -- the end -------------------------------------------------------------------------------

    def close_descriptors(self) -> None:
        """Let go of its input and output."""
        for descriptor in (self.source, self.sink):
            if descriptor is not None:
                os.close(descriptor)
        self.source = self.sink = None

    def close_input(self) -> None:
        """Let the command see the end of its input."""
        if self.sink is not None:
            os.close(self.sink)
            self.sink = None

    def result(self) -> ShellResult:
        """How it ended, once it has."""
        status = self.exit_status
        if status is None:
            status = -signal.SIGKILL  # with its keeper
        ended: End = "exited"
        if self.killed:
            ended = "killed"
        elif self.terminated:
            ended = "terminated"
        return ShellResult(
            task=self.id,
            exit_code=status if status >= 0 else None,
            signal=_signal_name(-status) if status < 0 else None,
            timed_out=self.timed_out,
            ended=ended,
            output=self.output.captured(),
            duration=monotonic() - self._since,
            killed=self.killed,
            problem=self.output.problem,
        )

    def shown(self) -> ShellTask:
        """The task as others see it."""
        return ShellTask(
            self.id, self.spec.command, self.pid, self.background, not self.done, self.started
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time one
