"""Opens a store for writing, and puts a salvaged one in the place of a damaged one.

The new file is complete, and on the disk, before the old one is touched, and its name says so:
whoever opens the store after a crash in between finishes the exchange. At every moment either the
old file or the new one can be had. The old one is kept, under a name that says what it is.
"""

from __future__ import annotations

import os
from time import gmtime, strftime
from typing import TYPE_CHECKING

from dsh_actors.errors import StoreError
from dsh_actors.sessions.dbfile import (
    OPEN_PATIENCE,
    explain,
    is_cut,
    make_private_file,
    open_for_reading,
    open_for_writing,
)
from dsh_actors.sessions.observers import report
from dsh_actors.sessions.ops import StoreDamagedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from dsh_actors.sessions.filelock import FileLock

__all__ = ["open_for_reading_whole", "open_salvaged_copy", "open_store", "repair_store"]

_SALVAGED = ".salvaged"
# How many of the problems of a damaged store are told when it is opened.
_TOLD = 3
"""The end of the name of a new store that is complete and not yet in its place."""


def open_store(path: str, lock: FileLock) -> sqlite3.Connection:
    """Open a store for writing; salvage it first if it is damaged.

    Parameters:
        path: its file; made if missing.
        lock: the lock on it; held together with others when this returns.

    Raises:
        StoreDamagedError: it is damaged, and others have it open.
        StoreError: it cannot be opened.
    """
    make_private_file(path)
    lock.share(OPEN_PATIENCE)
    if os.path.exists(path + _SALVAGED):
        _while_alone(path, lock, lambda: _put_in_place(path, _new_name(path)))
    try:
        return _open_whole(path)
    except StoreDamagedError as error:
        damaged = error
    return repair_store(path, lock, damaged)


def repair_store(path: str, lock: FileLock, damaged: StoreError) -> sqlite3.Connection:
    """Salvage a store that this process has not open any more, and open it again.

    Parameters:
        path: its file.
        lock: the lock on it, held together with others, as it is when this returns or raises.
        damaged: how the damage was noticed.

    Raises:
        StoreDamagedError: others have it open.
        StoreError: it cannot be salvaged now.
    """
    _while_alone(path, lock, lambda: _replace(path, damaged))
    return open_for_writing(path)


def open_salvaged_copy(path: str) -> sqlite3.Connection:
    """Return a private database with what can be read of a damaged store, which is not changed.

    Raises:
        StoreError: it was never a session store, or cannot be read at all.
    """
    import sqlite3

    from dsh_actors.sessions.salvage import is_store, salvage

    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        if not is_store(path):
            raise _not_a_store(path)
        salvage(path, connection)
    except sqlite3.Error as error:
        connection.close()
        raise explain(path, error) from error
    except OSError as error:
        connection.close()
        raise StoreError(f"{path}: it cannot be read ({error.strerror})") from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading_whole(path: str) -> tuple[sqlite3.Connection, bool]:
    """Open a store for reading, or a private copy of what can be read of it.

    Returns:
        The connection, and whether it is to such a copy.
    """
    try:
        connection = open_for_reading(path)
    except StoreDamagedError:
        return open_salvaged_copy(path), True
    if not is_cut(connection, path):
        return connection, False
    connection.close()
    return open_salvaged_copy(path), True


def _open_whole(path: str) -> sqlite3.Connection:
    connection = open_for_writing(path)
    try:
        cut = is_cut(connection, path)
    except BaseException:
        connection.close()
        raise
    if cut:
        connection.close()
        raise StoreDamagedError(f"{path}: its end is missing")
    return connection


def _while_alone(path: str, lock: FileLock, work: Callable[[], None]) -> None:
    """Do something to the file while nobody else has it open."""
    alone = lock.exclude()
    try:
        if alone:
            return work()
    finally:
        lock.share(OPEN_PATIENCE)
    raise StoreDamagedError(
        f"{path}: it is damaged and another process has it open; end that process, and what can "
        "be read is saved at the next start"
    )


def _replace(path: str, damaged: StoreError) -> None:
    import sqlite3

    from dsh_actors.sessions.salvage import is_store, salvage

    part = f"{path}.salvage"
    kept_as = _new_name(path)
    try:
        if not is_store(path):
            raise _not_a_store(path) from damaged
        _unlink(part)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(part, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            problems = salvage(path, connection, kept_as=os.path.basename(kept_as))
        finally:
            connection.close()
        _sync(part)
        os.rename(part, path + _SALVAGED)
        _sync(os.path.dirname(path))
        _put_in_place(path, kept_as)
    except sqlite3.Error as error:
        raise explain(path, error) from error
    except OSError as error:
        raise StoreError(
            f"{path}: it is damaged and cannot be salvaged ({error.strerror}); make room, and "
            "check the rights on its folder"
        ) from error
    # The last one sums up. All of them stay in the store, where the listings find them.
    *each, summary = problems or ["nothing was lost"]
    more = [f"and {len(each) - _TOLD} more"] if len(each) > _TOLD else []
    report(path, "; ".join(["it was damaged", summary, *each[:_TOLD], *more]))


def _put_in_place(path: str, kept_as: str) -> None:
    """Exchange the files. Done again after a crash in the middle, it finishes."""
    if os.path.exists(f"{path}-wal"):
        os.rename(f"{path}-wal", f"{kept_as}-wal")
    _unlink(f"{path}-shm")
    if os.path.exists(path):
        os.link(path, kept_as)
    _sync(os.path.dirname(path))
    os.rename(path + _SALVAGED, path)
    _sync(os.path.dirname(path))


def _new_name(path: str) -> str:
    name = base = f"{path}.damaged-{strftime('%Y%m%d-%H%M%S', gmtime())}"
    number = 1
    while os.path.exists(name):
        number += 1
        name = f"{base}-{number}"
    return name


def _not_a_store(path: str) -> StoreError:
    return StoreError(
        f"{path}: it is not a session store; move it away, or choose another store with "
        "DSH_ACTORS_HOME"
    )


def _unlink(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
