"""The keeper of one command: a small process between the executor and what it runs.

A keeper starts the command in a session of its own and is the subreaper of all that comes of it:
whatever the command starts and however that detaches itself (``&``, ``nohup``, ``setsid``, a
double fork, a scrubbed environment), it stays a descendant of the keeper. So "nothing of it is
left" is a fact that the kernel states (the keeper has no children any more), and not the result
of a search.

The keeper ends everything when it is told to, and at once when the other end of its socket
closes. That happens when the executor's process ends, by SIGKILL too, so no command outlives it.
Where there is no subreaper (systems other than Linux) what has detached itself is found by the
mark in its environment only.

The keeper is started with this file's code and nothing that is not needed: it is a cost of every
command. It talks in lines of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from dsh_actors.processes.identity import MARKER, is_running
from dsh_actors.processes.proctree import end_own_descendants, tree_of

if TYPE_CHECKING:
    from dsh_actors.processes.identity import ProcessId

__all__ = ["PROGRAM", "main"]

PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from dsh_actors.shell.keeper import main; main(int(sys.argv[2]), sys.argv[3:])"
)
"""What the interpreter of a keeper runs: the folder of the package, the socket, the command."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KILL_WAIT = 2.0
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
_CANNOT_START = 127


def main(control: int, arguments: list[str]) -> None:
    """Run one command and everything that comes of it to their end, then exit.

    Parameters:
        control: the descriptor of the socket to the executor.
        arguments: ``pty`` or ``pipe``, and then the command.
    """
    channel = socket.socket(fileno=control)
    os.set_inheritable(control, False)
    prctl = _prctl()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends by its own rules
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    leader = _start(channel, arguments[0] == "pty", arguments[1:], prctl)
    if leader is not None:
        _let_go_of_output()
        _Keeper(channel, wake, leader).run()
    os._exit(0)


def _prctl() -> Any:
    if sys.platform != "linux":
        return None
    return ctypes.CDLL(None).prctl


def _start(channel: socket.socket, pty: bool, command: list[str], prctl: Any) -> int | None:
    """Start the command; None if it cannot be, which has been reported then."""
    keeper = os.getpid()
    failure, said = os.pipe()  # both close at exec
    leader = os.fork()
    if leader == 0:
        try:
            os.setsid()
            if pty:
                _take_terminal()
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if prctl is not None:
                # The keeper has one thread, so its death is what this waits for.
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != keeper:
                    os._exit(_CANNOT_START)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(said, (error.strerror or str(error)).encode())
        finally:
            os._exit(_CANNOT_START)
    os.close(said)
    problem = os.read(failure, 4096)
    os.close(failure)
    if problem:
        os.waitpid(leader, 0)
        _say(channel, failed=problem.decode(errors="replace"))
        return None
    _say(channel, started=leader)
    return leader


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _let_go_of_output() -> None:
    """The output ends when the command's side of it does, not with this process."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _say(channel: socket.socket, **what: Any) -> None:
    try:
        channel.sendall(json.dumps(what).encode() + b"\n")
    except OSError:
        return  # the executor is gone, which the next look at the socket shows as its end


class _Keeper:
    """Waits for the end of the command, of its descendants, or of the executor."""

    def __init__(self, channel: socket.socket, wake: int, leader: int) -> None:
        self._channel, self._wake, self._leader = channel, wake, leader
        self._marker = os.environ[MARKER].rpartition(";")[2]
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(wake, select.POLLIN)
        self._deadline: float | None = None
        self._asked: set[ProcessId] = set()  # who has got TERM
        self._killed: set[int] = set()
        self._input = b""

    def run(self) -> None:
        while self._reap():
            left = None if self._deadline is None else self._deadline - monotonic()
            if left is not None and left <= 0:
                self._kill()
                continue
            for descriptor, _ in self._poll.poll(None if left is None else left * 1000 + 1):
                if descriptor == self._wake:
                    os.read(self._wake, 4096)
                elif not self._listen():
                    self._kill()
                    return
        terminated = {process.pid for process in self._asked} - self._killed
        _say(
            self._channel, empty=True, killed=sorted(self._killed), terminated=sorted(terminated)
        )  # fmt: skip

    def _reap(self) -> bool:
        """Take the status of all that have ended; whether there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                _say(self._channel, exited=os.waitstatus_to_exitcode(status))

    def _listen(self) -> bool:
        """Do what the executor asks for; False once it is gone."""
        try:
            data = self._channel.recv(4096)
        except ConnectionError:
            return False
        if not data:
            return False
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "grace" in request:
                self._terminate(request["grace"])
        return True

    def _terminate(self, grace: float) -> None:
        """Ask all of them to end; after the grace, in seconds, they are killed."""
        deadline = monotonic() + grace
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
        for process in tree_of(os.getpid()):
            if process not in self._asked and grace > 0:
                self._asked.add(process)
                _signal(process, signal.SIGTERM)
                _signal(process, signal.SIGCONT)  # a stopped process would not notice

    def _kill(self) -> None:
        ended = end_own_descendants(self._marker, kill_wait=_KILL_WAIT, reap=False)
        self._killed.update(process.pid for process in ended if process.ended == "killed")
        # What could not be ended in that time, by a debugger or a dead disk, is tried again.
        self._deadline = monotonic() + _KILL_WAIT


def _signal(process: ProcessId, number: signal.Signals) -> None:
    """Send a signal. A descendant of this process that was not reaped keeps its number."""
    if not is_running(process):
        return
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return
