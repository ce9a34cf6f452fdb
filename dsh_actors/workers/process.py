"""Starts worker processes, and knows how each one ended.

A worker is a multiprocessing process of the spawn kind (it appears among
`multiprocessing.active_children`, has a sentinel and an exit code), with these differences:

- It gets one end of a socket pair, which no other process inherits; its parent's end of life is
  the end of the stream there. Where a ``fork`` elsewhere in the parent copies descriptors at a
  bad moment, the worker's end stays open in that child, and its death is seen by the exit only.
- It leads its own session, ignores SIGINT and SIGHUP, and dies of SIGTERM.
- Its stdin is empty and its stdout is its parent's stderr: stdout carries only the result. What
  it writes before it is ready is kept for the error, in case that it fails to start.
- It, and everything that it starts, has a mark in its environment.

No parent-death signal is used: that would fire at the end of the *thread* that starts a worker,
so that workers may be started from any thread, also a short-lived one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import UsageError, WorkerStartError
from dsh_actors.processes.identity import MARKER, ProcessId, start_time
from dsh_actors.workers.boot import (
    FATAL_SIGNALS,
    PROGRAM,
    become_subreaper,
    import_parent_main,
    importing_main,
)

if TYPE_CHECKING:
    import socket

    from dsh_actors.workers.spawned import SpawnedProcess

__all__ = [
    "MARKER",
    "STATUS_UNKNOWN",
    "WorkerProcess",
    "become_subreaper",
    "import_parent_main",
    "importing_main",
    "start_worker",
]

STATUS_UNKNOWN = 255
"""The exit code if another part of this program has taken it."""

EXIT_GRACE = 3.0
"""How long a worker may take to end, in seconds, when the program exits without ending it."""

_MAX_CAPTURED = 64 << 10


def start_worker(target: str, params: dict[str, Any], *, name: str, marker: str) -> WorkerProcess:
    """Start a worker process.

    Returns as soon as the process exists; that it is ready is for the target to say, through its
    socket. Call it from any thread.

    Parameters:
        target: ``module:function``, called in the worker with its socket and ``params``. When it
            returns, the worker exits with status 0.
        params: plain data. The worker gets ``marker`` added to it.
        name: the name of the process.
        marker: marks the worker and all that it starts, by `MARKER`; fields joined by ``:``.

    Returns:
        The process.

    Raises:
        WorkerStartError: the process cannot be started.
        MessageError: ``params`` are no plain data.
        UsageError: the parent's main script is being imported in this process, which means that
            the script has no ``if __name__ == "__main__":``.
    """
    from dsh_actors import codec

    if importing_main():
        raise UsageError(
            "the main script starts workers while it is imported; put what it does when it is "
            'run under if __name__ == "__main__":'
        )
    launch = _Launch(target, codec.encode({**params, "marker": marker}), name, marker)
    try:
        return launch.start()
    except OSError as error:
        raise WorkerStartError(f"the worker {name} cannot be started: {error}") from error
    finally:
        launch.close()


class WorkerProcess:
    """A worker process that was started. All methods may be called from any thread.

    Attributes:
        name: its name.
        pid: its process id.
        identity: its pid and start time.
        marker: its mark.
        sock: this end of the connection; whoever takes it closes it.
    """

    def __init__(
        self, process: SpawnedProcess, sock: socket.socket, marker: str, capture: int
    ) -> None:
        from multiprocessing import util

        self.name = process.name
        self.marker = marker
        self.sock = sock
        self.pid: int = process.pid or 0
        # It is not reaped yet, so the pid is still its own, also if it is a zombie by now. Where
        # SIGCHLD is ignored it may be gone without a trace; no process has this start time.
        self.identity = ProcessId(self.pid, start_time(self.pid) or -1.0)
        self._process = process
        self._capture = capture
        self._lock = threading.Lock()
        self._waiting = 0
        self._exit_code: int | None = None
        self._captured = ""
        # If the program exits with the worker still running, multiprocessing waits for it. So
        # all workers are hung up first, which lets them end what they started, then awaited.
        this = weakref.ref(self)
        self._at_exit = [
            util.Finalize(None, _hang_up, (this,), exitpriority=20),
            util.Finalize(None, _await_or_kill, (this,), exitpriority=10),
        ]

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.name} pid {self.pid}: {self.describe_exit()}>"

    @property
    def start_time(self) -> float:
        """When it started, as in `ProcessId`."""
        return self.identity.start_time

    @property
    def sentinel(self) -> int:
        """A descriptor that is ready when the process has ended. Valid until `poll` tells so."""
        return self._process.sentinel

    def poll(self) -> int | None:
        """The exit code as in `multiprocessing.Process.exitcode`, or None while it runs."""
        return self.wait(0.0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end of the process.

        Parameters:
            timeout: how long to wait at most, in seconds; None for ever.

        Returns:
            The exit code, negative for a signal, or None if the process still runs.
        """
        with self._lock:
            if self._exit_code is not None:
                return self._exit_code
            self._waiting += 1
        code = None
        try:
            code = self._process._popen.wait(timeout)  # type: ignore[attr-defined]
        finally:
            with self._lock:
                self._waiting -= 1
                if code is not None:
                    self._exit_code = code
                # The last to leave closes, so that nobody polls a number given out again.
                if self._exit_code is not None and not self._waiting:
                    self._release()
        return self._exit_code

    def _release(self) -> None:
        if self._capture < 0:
            return
        size = os.lseek(self._capture, 0, os.SEEK_END)
        text = os.pread(self._capture, _MAX_CAPTURED, max(0, size - _MAX_CAPTURED))
        self._captured = text.decode(errors="replace").strip()
        os.close(self._capture)
        self._capture = -1
        for finalizer in self._at_exit:
            finalizer.cancel()
        self._process.join()  # not waiting any more: multiprocessing's own books
        self._process.close()

    def describe_exit(self) -> str:
        """How it ended, in words: ``killed by SIGKILL``, ``exited with status 3``."""
        code = self.poll()
        if code is None:
            return "still running"
        if code == STATUS_UNKNOWN:
            return "ended, but another part of this program has taken its exit status"
        if code >= 0:
            return f"exited with status {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def start_error(self, why: str | None = None) -> WorkerStartError:
        """The error for a worker that ended before it was ready, with what it wrote to stderr.

        Parameters:
            why: why it was ended; None if it ended by itself.
        """
        ended = why or self.describe_exit()
        said = f"; it wrote:\n{self._captured}" if self._captured else ""
        return WorkerStartError(f"the worker {self.name} did not start: {ended}{said}")


def _hang_up(reference: weakref.ref[WorkerProcess]) -> None:
    import socket

    worker = reference()
    if worker is not None:
        try:
            worker.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed already, by its owner or by the worker


def _await_or_kill(reference: weakref.ref[WorkerProcess]) -> None:
    from dsh_actors.processes.proctree import kill_tree_now

    worker = reference()
    if worker is not None and worker.wait(EXIT_GRACE) is None:
        kill_tree_now(worker.identity, marker=worker.marker)


class _Launch:
    """The descriptors of one start, and who gets which."""

    def __init__(self, target: str, params: bytes, name: str, marker: str) -> None:
        self._target, self._params = target, params
        self._name, self._marker = name, marker
        self._open: list[int] = []  # what is to be closed here when the start is over

    def start(self) -> WorkerProcess:
        import socket

        ours, theirs = socket.socketpair()
        try:
            capture = _capture_file()
            self._open.append(capture)
            reading, writing = os.pipe()
            self._open += [reading, writing]
            stderr = _duplicate_stderr()
            self._open.append(stderr)
            fds = [reading, theirs.fileno(), stderr, capture]
            exit_pipe = None if hasattr(os, "pidfd_open") else os.pipe()
            if exit_pipe is not None:
                self._open += exit_pipe
                fds.append(exit_pipe[1])
            with _signals_blocked():
                pid, fds_there = self._spawn(fds)
            # While the new interpreter starts there is time to load multiprocessing here.
            from dsh_actors.workers.spawned import SpawnedProcess

            sentinel = _pidfd(pid) if exit_pipe is None else exit_pipe[0]
            process = SpawnedProcess(self._name, lambda: (pid, [sentinel, writing]))
            process.start()
            worker = WorkerProcess(process, ours, self._marker, capture)
            self._open = [fd for fd in self._open if fd not in (sentinel, writing, capture)]
            self._send(writing, fds_there)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return worker

    def close(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def _spawn(self, fds: list[int]) -> tuple[int, list[int]]:
        """Run the interpreter with copies of these descriptors; return its pid and the copies."""
        # Above all of these, so that no copy falls on one that is still to be copied.
        there = list(range(max(fds) + 1, max(fds) + 1 + len(fds)))
        pipe, _, _, capture = there[:4]
        actions: list[Any] = [
            (os.POSIX_SPAWN_DUP2, fd, copy) for fd, copy in zip(fds, there, strict=True)
        ]
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        actions += [(os.POSIX_SPAWN_DUP2, capture, 1), (os.POSIX_SPAWN_DUP2, capture, 2)]
        command = _command_line(pipe, self._name)
        outer = os.environ.get(MARKER)
        marked = f"{outer};{self._marker}" if outer else self._marker
        pid = os.posix_spawn(
            command[0], command, {**os.environ, MARKER: marked}, file_actions=actions
        )
        return pid, there

    def _send(self, pipe: int, fds_there: list[int]) -> None:
        import marshal

        data = _preparation_data(self._name)
        data["fds"] = fds_there
        data.update(target=self._target, params=self._params)
        rest = memoryview(marshal.dumps(data, 2))
        try:
            while rest:
                rest = rest[os.write(pipe, rest) :]
        except BrokenPipeError:
            return  # it died already; its exit and its stderr say why


# -- What a worker is started with ------------------------------------------------------------


def _command_line(pipe: int, name: str) -> list[str]:
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

    if getattr(sys, "frozen", False):
        raise WorkerStartError("workers cannot be started by a frozen program")
    spawn = sys.modules.get("multiprocessing.spawn")
    executable = sys.executable if spawn is None else os.fsdecode(spawn.get_executable() or "")
    if not executable:
        raise WorkerStartError("the path of the Python interpreter is not known (sys.executable)")
    flags: list[str] = _args_from_interpreter_flags()
    return [executable, *flags, "-c", PROGRAM.format(pipe=pipe), "--multiprocessing-fork", name]


def _preparation_data(name: str) -> dict[str, Any]:
    """What multiprocessing passes to a spawned child, as plain data.

    Its own function for this also fixes the start method of the whole program.
    """
    import multiprocessing
    from multiprocessing import process, util

    logging: Any = util
    home: str | None = process.ORIGINAL_DIR  # type: ignore[attr-defined]
    logger = logging._logger
    main_name, main_path = _main_script(home)
    return {
        "name": name,
        "parent_name": process.current_process().name,
        "authkey": bytes(process.current_process().authkey),
        "log_to_stderr": logging._log_to_stderr,
        "log_level": None if logger is None else logger.getEffectiveLevel(),
        "sys_path": [(home or "") if entry == "" else entry for entry in map(str, sys.path)],
        "sys_argv": list(map(str, sys.argv)),
        "orig_dir": home,
        "start_method": multiprocessing.get_start_method(allow_none=True),
        "main_name": main_name,
        "main_path": main_path,
    }


def _main_script(home: str | None) -> tuple[str | None, str | None]:
    """The name or the path of the script that runs, for `import_parent_main`."""
    module = sys.modules["__main__"]
    name = getattr(module.__spec__, "name", None)
    if name is not None:
        return name, None
    path = getattr(module, "__file__", None)
    if path is None:
        return None, None
    return None, os.path.normpath(path if home is None else os.path.join(home, path))


def _capture_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dsh-actors-worker-stderr")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _duplicate_stderr() -> int:
    try:
        return os.dup(2)
    except OSError:  # closed, as in some daemons
        return os.open(os.devnull, os.O_WRONLY)


def _pidfd(pid: int) -> int:
    """A descriptor that is ready when the process has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # ended, and SIGCHLD is ignored here, so that it is reaped already
        return os.open(os.devnull, os.O_RDONLY)


class _signals_blocked:  # noqa: N801
    """Blocks the fatal signals in this thread; a process that it starts begins so."""

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, FATAL_SIGNALS)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
