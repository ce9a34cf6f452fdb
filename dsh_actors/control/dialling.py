"""How a client gets through to a running system."""

from __future__ import annotations

import os
import select
import socket
import struct
from pathlib import Path

from dsh_actors.control.discovery import find_system
from dsh_actors.control.peer import peer_uid
from dsh_actors.errors import ControlError, DshActorsError, UsageError

__all__ = ["dial", "path_of", "ready"]

_TIMEVAL = struct.Struct("@ll")


def ready(connection: socket.socket, timeout: float | None, *, writing: bool = False) -> int:
    """Wait until something can be read or written; 0 if not in time. Any descriptor will do."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | (select.POLLOUT if writing else 0))
    found = poll.poll(None if timeout is None else timeout * 1000)
    return found[0][1] if found else 0


def path_of(target: str | Path | None, folder: Path | None) -> Path:
    """Return where the socket of a system is; see `ControlClient.connect`."""
    if isinstance(target, Path):
        return target
    if target is not None and "/" in target:
        return Path(target)
    if target == "":
        raise UsageError("the id of a system is not empty; leave it out for the only one")
    return find_system(target, folder).path


def dial(path: Path, timeout: float) -> socket.socket:
    """Return a connection, non-blocking, to a process of the same user.

    Raises:
        ControlError: there is nobody, nobody in time, or somebody else.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The kernel waits for a place in a full queue; a time-out of Python's would not.
        seconds, rest = divmod(max(timeout, 0.001), 1)
        patience = _TIMEVAL.pack(int(seconds), int(rest * 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        connection.connect(os.fspath(path))
        uid = peer_uid(connection)
        if uid is not None and uid != os.geteuid():
            raise ControlError(
                f"{path}: this socket belongs to another user (uid {uid}); it is not used",
                type_name="UnsafeFolder",
            )
        connection.setblocking(False)
    except BaseException as error:
        connection.close()
        if isinstance(error, DshActorsError) or not isinstance(error, OSError):
            raise
        raise _not_connected(path, error) from error
    return connection


def _not_connected(path: Path, error: OSError) -> ControlError:
    if isinstance(error, BlockingIOError | TimeoutError):
        return ControlError(
            f"{path}: the system does not take connections; it may be stopped or overloaded",
            type_name="Timeout",
        )
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return ControlError(
            f"{path}: nobody listens there; the system has ended. dsh-actors ps shows what runs",
            type_name="NoSystem",
        )
    return ControlError(
        f"{path}: cannot connect: {error.strerror or error}", type_name="ConnectionLost"
    )
