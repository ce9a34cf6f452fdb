"""Opens the store's file, brings it up to date, and says in plain words what SQLite refused."""

from __future__ import annotations

import os
from time import monotonic, sleep
from typing import TYPE_CHECKING

from dsh_actors.errors import StoreError
from dsh_actors.sessions.ops import StoreBusyError, StoreDamagedError
from dsh_actors.sessions.schema import APPLICATION_ID, MIGRATIONS, VERSION

if TYPE_CHECKING:
    import sqlite3

__all__ = [
    "explain",
    "is_cut",
    "make_private_file",
    "make_tables",
    "open_for_reading",
    "open_for_writing",
]

OPEN_PATIENCE = 5.0
"""Seconds to wait while other processes hold the file, when it is opened."""

WRITE_PATIENCE = 0.25
"""Seconds that one attempt to write waits; the queue in front of the store tries again."""

_ANOTHER = "or choose another store with DSH_ACTORS_HOME"

_HELD = "another process holds it; it is tried again, or end that process"
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN = 5, 6, 8, 10, 11, 13, 14
_PROTOCOL, _NOTADB = 15, 26
_ADVICE = {
    _BUSY: _HELD,
    _LOCKED: _HELD,
    _PROTOCOL: _HELD,  # it was stopped while it changed the index of the write-ahead log
    _READONLY: f"it is read-only; make the file and its folder writable, {_ANOTHER}",
    _IOERR: f"reading or writing the disk failed; check the disk, {_ANOTHER}",
    _CORRUPT: "it is damaged; the next store that opens it alone saves what can be read",
    _FULL: f"the disk is full; make room, {_ANOTHER}",
    _CANTOPEN: f"it cannot be opened; check the rights on it and its folder, {_ANOTHER}",
    _NOTADB: f"it is not a session store; move it away, {_ANOTHER}",
}
"""What to do, by SQLite's primary result codes."""

_KINDS: dict[int, type[StoreError]] = {
    _BUSY: StoreBusyError,
    _LOCKED: StoreBusyError,
    _PROTOCOL: StoreBusyError,
    _CORRUPT: StoreDamagedError,
    _NOTADB: StoreDamagedError,
}


def explain(path: str, error: sqlite3.Error) -> StoreError:
    """Return the error of this library that says the same, with the file and what to do."""
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    kind = _KINDS.get(code, StoreError)
    advice = _ADVICE.get(code)
    result = kind(f"{path}: {advice} ({error})" if advice else f"{path}: {error}")
    result.__cause__ = error
    return result


def open_for_writing(path: str) -> sqlite3.Connection:
    """Open the store for its one writer; make file and folder, private to the user, if missing.

    Raises:
        StoreError: it cannot be opened, is of a newer version, or is not a session store.
    """
    import sqlite3

    make_private_file(path)
    try:
        connection = sqlite3.connect(
            path, timeout=OPEN_PATIENCE, isolation_level=None, check_same_thread=False
        )
    except (sqlite3.Error, ValueError) as error:
        raise _cannot_open(path, error) from error
    try:
        _check_identity(connection, path, may_be_new=True)
        _use_wal(connection, path)
        # FULL makes a commit survive a power cut; group commit pays for it.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        _migrate(connection, path)
        connection.execute(f"PRAGMA busy_timeout = {int(WRITE_PATIENCE * 1000)}")
    except sqlite3.Error as error:
        connection.close()
        raise explain(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: str) -> sqlite3.Connection:
    """Open the store beside a writer. Nothing is created or changed.

    Raises:
        StoreError: there is no such file, it cannot be read, or its version is not ours.
    """
    import sqlite3

    if not os.path.exists(path):
        raise StoreError(
            f"{path}: there is no session store; it is made by the first 'dsh-actors run'"
        )
    try:
        return _connect_for_reading(path, "mode=ro")
    except StoreError as error:
        # Beside the file SQLite wants to make what readers and writers share. Where nobody can,
        # and there is no log, nobody writes.
        if os.access(os.path.dirname(path), os.W_OK) or not _log_is_empty(path):
            raise
        if not isinstance(error.__cause__, sqlite3.OperationalError):
            raise
    return _connect_for_reading(path, "immutable=1")


def _connect_for_reading(path: str, mode: str) -> sqlite3.Connection:
    import sqlite3

    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        connection = sqlite3.connect(
            f"file:{quoted}?{mode}",
            uri=True,
            timeout=OPEN_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
    except (sqlite3.Error, ValueError) as error:
        raise _cannot_open(path, error) from error
    try:
        version = _check_identity(connection, path, may_be_new=False)
        if version < VERSION:
            raise StoreError(
                f"{path}: the store is of version {version} and this release reads {VERSION}; "
                "the next 'dsh-actors run' brings it up to date"
            )
    except sqlite3.Error as error:
        connection.close()
        raise explain(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of the current version in an empty database."""
    for version in range(VERSION):
        _apply(connection, version)


def is_cut(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the end of the file is missing; SQLite takes half a page for a whole one."""
    # Twice, since others may write in between: first the log grows, later the file.
    return _seems_cut(connection, path) and _seems_cut(connection, path)


def _seems_cut(connection: sqlite3.Connection, path: str) -> bool:
    if not _log_is_empty(path):
        return False  # what is not in the file yet is there
    page_size, pages = _pragma(connection, "page_size"), _pragma(connection, "page_count")
    size = os.stat(path).st_size
    return bool(size % page_size or size < pages * page_size) and _log_is_empty(path)


def _log_is_empty(path: str) -> bool:
    try:
        return os.stat(f"{path}-wal").st_size == 0
    except FileNotFoundError:
        return True


def make_private_file(path: str) -> None:
    """Make an empty file and its folders, private to the user, unless they are there.

    Raises:
        StoreError: they cannot be made.
    """
    try:
        _make_private_folder(os.path.dirname(path))
        # Only if it is missing: to open and close a database beside a connection of the same
        # process would drop that connection's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if os.path.isdir(path):
            raise StoreError(f"{path}: it is a folder; give the path of a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(
            f"{path}: the session store cannot be created ({reason}); "
            f"check the rights on its folder, {_ANOTHER}"
        ) from error


def _make_private_folder(folder: str) -> None:
    if folder and not os.path.isdir(folder):
        _make_private_folder(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(20, "Not a directory", folder) from None


def _check_identity(connection: sqlite3.Connection, path: str, *, may_be_new: bool) -> int:
    """Return the version of the store; refuse other programs' databases and newer versions."""
    if connection.in_transaction:
        application, version, is_empty = _identity(connection)
    else:
        # All in one snapshot: another process may be making the tables right now.
        connection.execute("BEGIN")
        try:
            application, version, is_empty = _identity(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    is_new = is_empty and application == 0
    if application != APPLICATION_ID and not (may_be_new and is_new):
        what = "it is empty" if is_empty else "it is a database of another program"
        raise StoreError(f"{path}: {what}, not a session store; give the path of one")
    if version > VERSION:
        raise StoreError(
            f"{path}: the store is of version {version} and this release knows {VERSION}; "
            f"update dsh-actors, {_ANOTHER}"
        )
    return version


def _identity(connection: sqlite3.Connection) -> tuple[int, int, bool]:
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    return _pragma(connection, "application_id"), _pragma(connection, "user_version"), is_empty


def _use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch to write-ahead logging, which SQLite does not wait for by itself."""
    import sqlite3

    deadline = monotonic() + OPEN_PATIENCE
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            busy = (error.sqlite_errorcode & 0xFF) in (_BUSY, _LOCKED)
            if not busy or monotonic() > deadline:
                raise
            sleep(0.01)
            continue
        if mode != "wal":
            raise StoreError(
                f"{path}: its file system has no shared memory for a write-ahead log; "
                "put the store on a local disk with DSH_ACTORS_HOME"
            )
        return


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the tables up to date, each version in a transaction of its own."""
    while _pragma(connection, "user_version") < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read again, now that nobody else can migrate at the same time.
            version = _check_identity(connection, path, may_be_new=True)
            if version < VERSION:
                _apply(connection, version)
            connection.execute("COMMIT")
        except BaseException:
            # A full disk has rolled it back already; another error would hide that one.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _apply(connection: sqlite3.Connection, version: int) -> None:
    for statement in MIGRATIONS[version].split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version + 1}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _cannot_open(path: str, error: Exception) -> StoreError:
    import sqlite3

    if isinstance(error, sqlite3.Error):
        return explain(path, error)
    return StoreError(f"{path!r}: not a usable path ({error}); give another one")
