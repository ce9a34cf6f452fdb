"""The session store on disk: an SQLite database in WAL mode, written by one thread in groups."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import StoreError
from dsh_actors.sessions.blobs import LARGE, Blobs
from dsh_actors.sessions.damage import event_checksum, row_checksum
from dsh_actors.sessions.dbfile import explain, open_for_writing
from dsh_actors.sessions.deletion import delete_sessions
from dsh_actors.sessions.events import ACTIVE
from dsh_actors.sessions.ops import Create, Log, Ops, RefusedError, SetStatus, log_of
from dsh_actors.sessions.reader import SqliteReader
from dsh_actors.sessions.verbs import StoreVerbs

if TYPE_CHECKING:
    import sqlite3

    from dsh_actors.sessions.events import SessionHeader, SessionLog
    from dsh_actors.sessions.store import SessionIds, SessionInfos, StoredEvents

__all__ = ["SqliteStore"]

_SESSIONS = (
    "INSERT INTO sessions (key, id, agent_id, system_id, root, parent, depth, behaviour, created,"
    " policy, options, format, forked_from, forked_at, checksum) VALUES "
)
_EVENTS = "INSERT INTO events (session, seq, time, type, data, checksum) VALUES "
_HEADS = "REPLACE INTO heads (session, status, ended, next_seq, last_time) VALUES "

_MAX_VARIABLES = 999
"""Values in one statement that every release of SQLite allows."""


class SqliteStore(StoreVerbs):
    """Sessions in one file; several systems may write to it, each to its own sessions.

    The file and its folder are made if missing, readable by their user alone. A commit is on the
    disk when it is confirmed (``synchronous=FULL``).

    Parameters:
        path: the file.
        flush_interval: the shortest time between two commits, in seconds.

    Raises:
        StoreError: it cannot be opened, is of a newer version, or is not a session store.
    """

    def __init__(self, path: str | os.PathLike[str], *, flush_interval: float = 0.0) -> None:
        self._path = os.path.abspath(os.fspath(path))
        super().__init__(self._path, flush_interval=flush_interval)
        self._blobs = Blobs(self._path)
        self._connection = open_for_writing(self._path)
        self._reader: SqliteReader | None = None
        self._reader_lock = threading.Lock()

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return self._path

    @staticmethod
    def open_readonly(path: str | os.PathLike[str]) -> SqliteReader:
        """Open a store to read it, while others may write to it. Nothing is created.

        Raises:
            StoreError: there is no such file, it cannot be read, or it is not a session store.
        """
        return SqliteReader(path)

    def list(self, *, limit: int | None = None) -> SessionInfos:
        """Return the sessions, newest first; see ``SessionReader.list``."""
        return self._reading().list(limit=limit)

    def load(self, session_id: str) -> SessionLog:
        """Return the header and all events of a session; see ``SessionReader.load``."""
        return self._reading().load(session_id)

    def family(self, session_id: str) -> SessionInfos:
        """Return a session and all below it; see ``SessionReader.family``."""
        return self._reading().family(session_id)

    def resolve(self, prefix: str) -> str:
        """Return the one id that begins with ``prefix``; see ``SessionReader.resolve``."""
        return self._reading().resolve(prefix)

    def _reading(self) -> SqliteReader:
        self._check_fork()
        with self._reader_lock:
            if self._ended:
                raise StoreError(f"{self._path}: the session store is closed; open it again")
            if self._reader is None:
                self._reader = SqliteReader(self._path)
            return self._reader

    def _make_locks(self) -> None:
        super()._make_locks()
        self._reader_lock = threading.Lock()

    def _lookup(self, session_id: str) -> Log:
        return self._reading().log(session_id)

    def _stored(self, session_id: str) -> tuple[SessionHeader, StoredEvents]:
        header, events, _ = self._reading().stored(session_id)
        return header, events

    def _family(self, session_id: str) -> SessionIds:
        return [info.id for info in self._reading().family(session_id)]

    def _delete(self, session_id: str, known: frozenset[str]) -> bool:
        import sqlite3

        # A connection of its own: the writer's may be in the middle of a commit, which waits.
        connection = open_for_writing(self._path)
        try:
            if not delete_sessions(connection, session_id, known):
                return False
        except sqlite3.Error as error:
            raise explain(self._path, error) from error
        finally:
            connection.close()
        self._blobs.remove(known)
        return True

    def _release(self) -> None:
        import sqlite3

        with self._reader_lock:
            if self._reader is not None:
                self._reader.close()
        try:
            # The last connection to close copies the log into the database and removes it.
            self._connection.close()
        except sqlite3.Error as error:
            raise explain(self._path, error) from error

    def _commit(self, group: Ops) -> None:
        import sqlite3

        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            heads = _write(connection, group, self._blobs)
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                conflicts = self._conflicts(group)
                if conflicts:
                    raise RefusedError(conflicts) from error
            if isinstance(error, sqlite3.Error):
                raise explain(self._path, error) from error
            raise
        for log, head in heads.items():
            log.key, log.status, log.ended, log.written, log.last_time = head

    def _conflicts(self, group: Ops) -> dict[Log, StoreError]:
        """Find the sessions of a group that somebody else has created or written to."""
        conflicts: dict[Log, StoreError] = {}
        for log in {log_of(op): None for op in group}:
            if log.key is None:
                find = "SELECT 1 FROM sessions WHERE id = ?"
                if self._connection.execute(find, (log.id,)).fetchone():
                    conflicts[log] = StoreError(
                        f"{self._path}: session {log.id!r} exists already; mint a new id for it"
                    )
            else:
                find = "SELECT next_seq FROM heads WHERE session = ?"
                row = self._connection.execute(find, (log.key,)).fetchone()
                if row is None or row[0] != log.written:
                    conflicts[log] = StoreError(
                        f"{self._path}: session {log.id!r} was written to by another process; "
                        "let one system at a time work on a session"
                    )
        return conflicts


def _write(connection: sqlite3.Connection, group: Ops, blobs: Blobs) -> dict[Log, list[Any]]:
    """Write a group inside the open transaction; return the new head of each log in it.

    A head is ``[key, status, ended, next_seq, last_time]``. The logs themselves change only once
    the transaction is committed.
    """
    heads: dict[Log, list[Any]] = {}
    sessions: list[Any] = []
    creates = [op for op in group if isinstance(op, Create)]
    first_key = _next_key(connection) if creates else 0
    for key, create in enumerate(creates, first_key):
        ended = None if create.status == ACTIVE else create.header.created
        heads[create.log] = [key, create.status, ended, 0, None]
        sessions += _session_row(key, create)
    events: list[Any] = []
    for op in group:
        log = log_of(op)
        head = heads.get(log)
        if head is None:
            heads[log] = head = [log.key, log.status, log.ended, log.written, log.last_time]
        if isinstance(op, tuple):
            _, seq, time, kind, data, _ = op
            if len(data) > LARGE:
                data = blobs.write(log.id, data)
            events += (head[0], seq, time, kind, data, event_checksum(seq, kind, data))
            head[3], head[4] = seq + 1, time
        elif isinstance(op, SetStatus):
            head[1] = op.status
            head[2] = None if op.status == ACTIVE else op.time
        else:
            for seq, time, kind, data in op.events:
                if len(data) > LARGE:
                    data = blobs.write(log.id, data)
                events += (head[0], seq, time, kind, data, event_checksum(seq, kind, data))
                head[3], head[4] = seq + 1, time
    _insert(connection, _SESSIONS, 15, sessions)
    _insert(connection, _EVENTS, 6, events)
    _insert(connection, _HEADS, 5, list(chain.from_iterable(heads.values())))
    return heads


def _next_key(connection: sqlite3.Connection) -> int:
    """Return the first key that was never given. Nobody else can give it until we commit."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'sessions'").fetchone()
    return int(row[0]) + 1 if row else 1


def _session_row(key: int, op: Create) -> tuple[Any, ...]:
    header = op.header
    row = (
        header.id,
        header.agent_id,
        header.system_id,
        header.root,
        header.parent,
        header.depth,
        header.behaviour,
        float(header.created),
        op.policy,
        op.options,
        header.format,
        header.forked_from,
        header.forked_at,
    )
    return (key, *row, row_checksum(row))


def _insert(connection: sqlite3.Connection, prefix: str, width: int, values: list[Any]) -> None:
    """Insert rows of ``width`` values each, many to a statement.

    SQLite gives up the interpreter lock in every statement and then queues for it behind every
    busy thread. Row by row, the threads that append would starve the one that writes.
    """
    done = 0
    for rows in (_MAX_VARIABLES // width, 16, 4, 1):
        size = rows * width
        if len(values) - done >= size:
            statement = _statement(prefix, width, rows)
            while len(values) - done >= size:
                connection.execute(statement, values[done : done + size])
                done += size


@lru_cache(maxsize=32)
def _statement(prefix: str, width: int, rows: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return prefix + ",".join([row] * rows)
