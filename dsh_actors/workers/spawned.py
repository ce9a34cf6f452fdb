"""The multiprocessing side of a worker process: a Process of the spawn kind.

It differs from multiprocessing's own in how the child is launched (see
`dsh_actors.workers.process`), in that a daemonic process may start it, and in that its exit is
seen through a pidfd, which no grandchild can hold open, and its status by exactly one caller.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import connection, popen_spawn_posix, process, util
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from dsh_actors.workers.process import STATUS_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SpawnedProcess"]

_internals: Any = process


class SpawnedProcess(SpawnProcess):
    """A started process, as multiprocessing knows it.

    Parameters:
        name: the name of the process.
        launch: starts the child and gives its pid, and the descriptors that this process keeps
            open until the child has been reaped: first the one that is ready when it ends.
    """

    def __init__(self, name: str, launch: Callable[[], tuple[int, list[int]]]) -> None:
        super().__init__(name=name)
        self._launch_child = launch

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802
        return _Popen(process_obj)

    def start(self) -> None:
        """Start it, as `multiprocessing.Process.start` does, also in a daemonic process.

        A daemonic process may not have children because they would be orphaned at its end; a
        worker sees its supervisor's end by itself.
        """
        this: Any = self
        this._check_closed()
        if this._popen is not None:
            raise AssertionError("cannot start a process twice")
        _internals._cleanup()
        this._popen = self._Popen(self)
        this._sentinel = this._popen.sentinel
        _internals._children.add(self)


class _Popen(popen_spawn_posix.Popen):
    def __init__(self, process_obj: Any) -> None:
        self._reaping = threading.Lock()
        super().__init__(process_obj)

    def _launch(self, process_obj: Any) -> None:
        self.pid, kept = process_obj._launch_child()
        self.sentinel = kept[0]
        self.finalizer = util.Finalize(self, _close_all, kept)

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """The exit code, or None while the process runs; waits if ``flag`` is 0."""
        if flag == 0 and self.returncode is None:
            connection.wait([self.sentinel])
        with self._reaping:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, flag)
                except ChildProcessError:
                    self.returncode = STATUS_UNKNOWN
                else:
                    if pid == self.pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, or None if the process did not end within so many seconds."""
        if self.returncode is None and not connection.wait([self.sentinel], timeout):
            return None
        return self.poll()


def _close_all(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
