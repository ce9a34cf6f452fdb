"""Reads a SQLite session store, from any thread, also beside another process that writes."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from dsh_actors.codec import decode
from dsh_actors.errors import ForkedSystemError, MessageError, SessionNotFound, StoreError
from dsh_actors.sessions.dbfile import explain, open_for_reading
from dsh_actors.sessions.events import ACTIVE, Event, SessionHeader, SessionInfo
from dsh_actors.sessions.forks import watch_forks
from dsh_actors.sessions.ops import Log
from dsh_actors.sessions.store import SessionInfos, SessionLog, match_prefix

if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType
    from typing import Self

__all__ = ["SqliteReader"]

# In the order of SessionInfo's fields.
_INFO = """
SELECT id, agent_id, system_id, root, parent, depth, behaviour, created,
       coalesce(status, 'active'), coalesce(next_seq, 0), ended, last_time
FROM sessions LEFT JOIN heads ON heads.session = sessions.key
ORDER BY created DESC, key DESC LIMIT ?
"""
# In the order of SessionHeader's fields.
_HEADER = """
SELECT key, id, agent_id, system_id, root, parent, depth, behaviour, created,
       policy, options, format, forked_from, forked_at
FROM sessions WHERE id = ?
"""
_EVENTS = "SELECT seq, time, type, data FROM events WHERE session = ? ORDER BY seq"
_HEAD = "SELECT status, ended, next_seq, last_time FROM heads WHERE session = ?"
_PREFIX = "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT 4"


Rows: TypeAlias = list[tuple[Any, ...]]
Findings: TypeAlias = list[str]
Events: TypeAlias = list[Event]


class SqliteReader:
    """A read-only view of a store. The file is opened here and never created or changed.

    Parameters:
        path: the store's file.

    Raises:
        StoreError: there is no such file, it cannot be read, or it is not a session store.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._lock = threading.Lock()
        self._parent = 0  # the process it was inherited from by a fork, or 0
        self._connection: sqlite3.Connection | None = open_for_reading(self._path)
        watch_forks(self)

    def list(self, *, limit: int | None = None) -> SessionInfos:
        """Return the sessions, newest first; see ``SessionReader.list``."""
        rows = self._query(_INFO, -1 if limit is None else limit)
        return [SessionInfo(*row) for row in rows]

    def load(self, session_id: str) -> SessionLog:
        """Return the header and all events of a session; see ``SessionReader.load``."""
        key, *fields = self._header_row(session_id)
        where = f"{self._path}: session {session_id!r}"
        fields[8] = _decode(fields[8], f"{where}, its policy")
        fields[9] = _decode(fields[9], f"{where}, its options")
        header = SessionHeader(*fields)
        events: Events = []
        for seq, time, type, data in self._query(_EVENTS, key):
            if seq != len(events):
                raise _damaged(where, f"event {len(events)} is missing")
            events.append(Event(seq, time, type, _decode(data, f"{where}, event {seq}")))
        return header, events

    def resolve(self, prefix: str) -> str:
        """Return the one id that begins with ``prefix``; see ``SessionReader.resolve``."""
        rows = self._query(_PREFIX, prefix, prefix + "\U0010ffff")
        return match_prefix(self._path, prefix, [row[0] for row in rows])

    def log(self, session_id: str) -> Log:
        """Return where the log of a session ends, for a writer that is to continue it."""
        key = self._header_row(session_id)[0]
        rows = self._query(_HEAD, key)
        status, ended, next_seq, last_time = rows[0] if rows else (ACTIVE, None, 0, None)
        log = Log(session_id, key=key, next_seq=next_seq)
        log.status, log.ended, log.last_time = status, ended, last_time
        return log

    def check(self) -> Findings:
        """Return what is wrong with the file, one finding a line; nothing if it is sound.

        Reads the whole file, which takes about a second per GB.
        """
        return [row[0] for row in self._query("PRAGMA quick_check") if row[0] != "ok"]

    def close(self, timeout: float | None = 10.0) -> bool:
        """Close the file. Idempotent; there is nothing to wait for."""
        with self._lock:
            if self._parent == 0 and self._connection is not None:
                self._connection.close()
                self._connection = None
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _header_row(self, session_id: str) -> tuple[Any, ...]:
        rows = self._query(_HEADER, session_id)
        if not rows:
            raise SessionNotFound(
                f"{self._path}: no session {session_id!r}; "
                "'dsh-actors sessions list' shows those there are"
            )
        return rows[0]

    def _query(self, statement: str, *values: object) -> Rows:
        import sqlite3

        with self._lock:
            if self._parent:
                raise ForkedSystemError(
                    f"{self._path}: the session store was opened by process {self._parent}, from "
                    "which this one was forked; open it again here"
                )
            if self._connection is None:
                raise StoreError(f"{self._path}: the session store is closed; open it again")
            try:
                rows: Rows = self._connection.execute(statement, values).fetchall()
                return rows
            except sqlite3.Error as error:
                raise explain(self._path, error) from error

    def _after_fork(self, parent: int) -> None:
        self._lock = threading.Lock()
        self._parent = parent


def _decode(data: bytes, where: str) -> Any:
    try:
        return decode(data)
    except MessageError as error:
        raise _damaged(where, str(error)) from error


def _damaged(where: str, problem: str) -> StoreError:
    return StoreError(
        f"{where}: damaged ({problem}); 'sqlite3 FILE .recover' saves what can still be read"
    )
