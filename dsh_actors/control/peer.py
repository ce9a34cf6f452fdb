"""Who is at the other end of a unix socket, as the kernel says."""

from __future__ import annotations

import socket
import struct
import sys

__all__ = ["peer_uid"]

_UCRED = struct.Struct("3i")  # pid, uid, gid
_XUCRED = struct.Struct("2I")  # the version, and the uid
_LOCAL_PEERCRED = 1


def peer_uid(connection: socket.socket) -> int | None:
    """Return the user of the process at the other end, or None where the kernel does not tell.

    Raises:
        OSError: the other end is gone.
    """
    if hasattr(socket, "SO_PEERCRED"):
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return int(_UCRED.unpack(data)[1])
    if sys.platform == "darwin" or "bsd" in sys.platform:
        data = connection.getsockopt(0, _LOCAL_PEERCRED, 256)
        return int(_XUCRED.unpack_from(data)[1])
    return None
