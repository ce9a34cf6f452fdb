"""The private folder of the sockets, and the names in it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from pathlib import Path

from dsh_actors.errors import ControlError

__all__ = ["MAX_SOCKET_PATH", "check_folder", "make_folder", "runtime_dir", "socket_path"]

MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103
"""How many bytes the path of a unix socket may have."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def runtime_dir() -> Path:
    """Return the folder of the sockets of this user's running systems. It is not created here.

    ``$DSH_ACTORS_HOME/run`` if that variable is set, else ``$XDG_RUNTIME_DIR/dsh-actors`` if that
    is an existing folder, else ``/tmp/dsh-actors-<uid>``. As the XDG specification asks, a
    relative ``XDG_RUNTIME_DIR`` is ignored.
    """
    home = os.environ.get("DSH_ACTORS_HOME")
    if home:
        return Path(os.path.abspath(os.path.expanduser(home)), "run")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        return Path(runtime, "dsh-actors")
    return Path("/tmp", f"dsh-actors-{os.geteuid()}")


def make_folder(folder: Path) -> None:
    """Create the folder, for its owner alone, unless it is there; then check it.

    Raises:
        ControlError: it cannot be created, or is not private.
    """
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            folder.chmod(0o700)  # whatever the umask has taken from it
    except OSError as error:
        raise _unsafe(folder, f"cannot be created: {error.strerror or error}") from error
    check_folder(folder)


def check_folder(folder: Path) -> bool:
    """See that the folder is a real one, the user's own, and closed to everybody else.

    Returns:
        Whether it is there at all.

    Raises:
        ControlError: it is not private: whoever else may write there could pose as a system.
    """
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unsafe(folder, f"cannot be read: {error.strerror or error}") from error
    if stat.S_ISLNK(found.st_mode):
        raise _unsafe(folder, "is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(folder, "is not a folder")
    if found.st_uid != os.geteuid():
        raise _unsafe(folder, f"belongs to another user (uid {found.st_uid})")
    if found.st_mode & 0o077:
        raise ControlError(
            f"{folder}: the folder of the control sockets is open to others "
            f"(mode {stat.S_IMODE(found.st_mode):04o}); close it: chmod 700 {folder}",
            type_name="UnsafeFolder",
        )
    return True


def _unsafe(folder: Path, what: str) -> ControlError:
    return ControlError(
        f"{folder}: the folder of the control sockets {what}; remove it, or set DSH_ACTORS_HOME "
        "to a folder of yours",
        type_name="UnsafeFolder",
    )


def socket_path(folder: Path, system_id: str) -> Path:
    """Return where the socket of a system is: named by its id, or by a digest if that is too long.

    Raises:
        ControlError: even the short name would be too long for a socket.
    """
    path = folder / f"{system_id}.sock"
    if _PLAIN.fullmatch(system_id) and len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    digest = hashlib.sha256(system_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = folder / f"{digest}.sock"
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH:
        raise ControlError(
            f"{path}: the path of the control socket has {size} bytes and a socket takes "
            f"{MAX_SOCKET_PATH}; set DSH_ACTORS_HOME to a folder with a shorter path",
            type_name="PathTooLong",
        )
    return path
