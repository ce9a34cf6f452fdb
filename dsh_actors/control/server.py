"""The control server: makes one system reachable for the other commands of its user."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from dsh_actors.actors import fork
from dsh_actors.actors.future import Future
from dsh_actors.control.discovery import Record
from dsh_actors.control.endpoint import Endpoint
from dsh_actors.control.folder import make_folder, runtime_dir
from dsh_actors.control.limits import Limits
from dsh_actors.control.loop import Loop
from dsh_actors.control.verbs import Verbs, name_of
from dsh_actors.errors import ForkedSystemError, SystemClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.supervisor.receipt import Receipt
    from dsh_actors.system import ActorSystem

__all__ = ["ControlServer"]

CLOSE_MARGIN = 5.0
"""Seconds that the thread of a server gets to end, beyond what its clients get to read."""


class ControlServer:
    """Listens on a private unix socket for the commands of the user whose system this is.

    It may be put into any program that has a system: it has one thread of its own, installs no
    signal handlers, and takes at most a tenth of one processor in the long run, whatever its
    clients do. A child that the program forks does not own it. Close it before the program ends;
    what was left by one that was killed is removed by the next look at the running systems.

        with ActorSystem() as system, ControlServer(system):
            ...

    Parameters:
        system: the system.
        store: where its sessions are, to watch them; None for the store of the system.
        folder: where the socket goes; None for `runtime_dir`. It is created, for the user alone.
        shutdown: what the verb ``shutdown`` does; None for the system's own ``shutdown``. It
            gets the grace period in seconds, or None, and returns the future of the receipt.
        limits: what clients are allowed.

    Raises:
        UsageError: this is not a system.
    """

    def __init__(
        self,
        system: ActorSystem,
        *,
        store: SessionStore | None = None,
        folder: Path | None = None,
        shutdown: Callable[[float | None], Future[Receipt]] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if not hasattr(system, "_core"):
            raise UsageError(f"a ControlServer is for an ActorSystem, not for {system!r}")
        journal = system._core.journal
        self._system = system
        self._store = store if store is not None or journal is None else journal.store
        self._folder = folder if folder is not None else runtime_dir()
        self._shutdown = shutdown or system.shutdown
        self._limits = limits or Limits()
        self._result: Future[Any] = Future()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._endpoint: Endpoint | None = None
        self._loop: Loop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def path(self) -> Path | None:
        """Where the socket is; None if the server is not running."""
        endpoint = self._endpoint
        return endpoint.path if endpoint is not None and not self._closed else None

    def start(self) -> None:
        """Open the socket and answer on it. Does nothing if that is so already.

        Raises:
            ControlError: the folder is not private, or the path is too long for a socket.
            SystemClosed: the server was closed.
            ForkedSystemError: it belongs to the process that forked this one.
        """
        self._check_fork()
        with self._lock:
            if self._closed:
                raise SystemClosed("this control server was closed; make a new one")
            if self._thread is not None:
                return
            make_folder(self._folder)
            system, started = self._system, time.time()
            record = Record.of_this_process(system.id, name_of(system), started)
            endpoint = Endpoint.open(self._folder, record)
            verbs = Verbs(system, started, self._shutdown, self._result)
            try:
                self._loop = Loop(endpoint, system, self._store, verbs, record, self._limits)
                self._thread = threading.Thread(
                    target=self._loop.run, name=f"dsh-{system.id}-control", daemon=True
                )
                self._thread.start()
            except BaseException:
                endpoint.close()
                if self._loop is not None:
                    self._loop.forget()
                self._thread = self._loop = None
                raise
            self._endpoint = endpoint
            _servers.add(self)
            atexit.register(self.close)

    def publish_result(self, result: Any) -> None:
        """Answer the verb ``result``, for all who ask now or later.

        Parameters:
            result: plain data: the result object of a run.

        Raises:
            UsageError: there is one already.
        """
        if not self._result.try_set_result(result):
            raise UsageError("the result of this run was published before")

    def close(self, timeout: float = CLOSE_MARGIN) -> bool:
        """Remove the socket, answer what can be answered, and end.

        Idempotent. Requests whose work is not done get an error; the work itself goes on.

        Parameters:
            timeout: seconds to wait for the thread beyond the second that clients have to read
                what was sent to them.

        Returns:
            Whether all of it has ended.
        """
        if self._pid != os.getpid():
            return True
        with self._lock:
            self._closed = True
            thread, endpoint, loop = self._thread, self._endpoint, self._loop
        if thread is None or endpoint is None or loop is None:
            return True
        atexit.unregister(self.close)
        endpoint.withdraw()
        loop.close()
        if thread is threading.current_thread():
            return False  # it ends once this returns
        thread.join(self._limits.linger + timeout)
        return not thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            raise ForkedSystemError(
                "this control server belongs to the process that forked this one; make a new "
                "ActorSystem and a ControlServer for it here"
            )

    def __repr__(self) -> str:
        return f"<ControlServer of {self._system.id} at {self.path}>"


_servers: weakref.WeakSet[ControlServer] = weakref.WeakSet()


@fork.in_child
def _forget() -> None:
    """A child keeps no copy of a socket, or clients would wait for it once the parent is gone."""
    for server in list(_servers):
        if server._endpoint is not None:
            server._endpoint.forget()
        if server._loop is not None:
            server._loop.forget()
