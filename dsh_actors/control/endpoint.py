"""The listening socket of a system: how it appears and disappears."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, NamedTuple

from dsh_actors.control.discovery import record_path, temporary_name
from dsh_actors.control.folder import socket_path
from dsh_actors.errors import ControlError

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_actors.control.discovery import Record

__all__ = ["Endpoint"]

_BACKLOG = 64


class Endpoint(NamedTuple):
    """A socket under its name.

    Parameters:
        path: its name.
        listener: the socket, non-blocking.
        inode: which file this is, so that no other one is ever removed.
    """

    path: Path
    listener: socket.socket
    inode: tuple[int, int]

    @classmethod
    def open(cls, folder: Path, record: Record) -> Endpoint:
        """Listen, and only then give the socket its name; its record comes first.

        Raises:
            ControlError: it cannot be done; nothing is left behind.
        """
        path = socket_path(folder, record.id)
        if path.exists():
            raise ControlError(
                f"system {record.id} has a control server already, at {path}",
                type_name="NoSocket",
            )
        temporary = folder / temporary_name(record)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            record.write(record_path(path))
            listener.setblocking(False)
            try:
                listener.bind(os.fspath(temporary))
            except OSError as error:
                # The other name may just be too long, by the few bytes that it has more.
                if "too long" not in str(error):
                    raise
                temporary = path
                listener.bind(os.fspath(temporary))
            os.chmod(temporary, 0o600)
            listener.listen(_BACKLOG)
            found = temporary.lstat()
            os.rename(temporary, path)
        except BaseException as error:
            listener.close()
            temporary.unlink(missing_ok=True)
            record_path(path).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise ControlError(
                    f"{path}: the control socket cannot be opened: {error.strerror or error}",
                    type_name="NoSocket",
                ) from error
            raise
        return cls(path, listener, (found.st_dev, found.st_ino))

    def withdraw(self) -> None:
        """Remove the name, then the record. Idempotent."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if (found.st_dev, found.st_ino) == self.inode:
            self.path.unlink(missing_ok=True)
            record_path(self.path).unlink(missing_ok=True)

    def forget(self) -> None:
        """Close this process's copy of the socket, and leave the rest to its owner."""
        self.listener.close()

    def close(self) -> None:
        """Remove the name and close the socket."""
        self.withdraw()
        self.listener.close()
