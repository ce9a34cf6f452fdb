"""Reads a SQLite session store, from any thread, also beside another process that writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

from dsh_actors.codec import decode_leniently
from dsh_actors.errors import MessageError, SessionNotFound, StoreError
from dsh_actors.sessions.blobs import Blobs, is_stub
from dsh_actors.sessions.damage import (
    decoded,
    event_checksum,
    row_checksum,
    stand_in,
    without_gaps,
)
from dsh_actors.sessions.events import ACTIVE, Event, SessionHeader, SessionInfo, SessionLog
from dsh_actors.sessions.holders import COLUMNS, Row
from dsh_actors.sessions.lease import held_by_living
from dsh_actors.sessions.ops import Log
from dsh_actors.sessions.store import SessionIds, SessionInfos, StoredEvents, match_prefix, subtree
from dsh_actors.sessions.view import FileView, Rows

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from dsh_actors.errors import Holder


__all__ = ["SqliteReader"]

# In the order of SessionInfo's fields.
_INFO = """
SELECT id, agent_id, system_id, root, parent, depth, behaviour, created,
       coalesce(status, 'active'), coalesce(next_seq, 0), ended, last_time
FROM sessions LEFT JOIN heads ON heads.session = sessions.key
"""
_LIST = f"{_INFO} ORDER BY created DESC, key DESC LIMIT ?"
# A parent is created before its children, and so are their keys.
_FAMILY = f"{_INFO} WHERE root = (SELECT root FROM sessions WHERE id = ?) ORDER BY key"
_DAMAGED = "SELECT session, problem FROM damage WHERE session != '' ORDER BY key"
_DAMAGE = "SELECT problem FROM damage WHERE session = ? ORDER BY key"
# In the order of SessionHeader's fields.
_HEADER = """
SELECT key, checksum, id, agent_id, system_id, root, parent, depth, behaviour, created,
       policy, options, format, forked_from, forked_at
FROM sessions WHERE id = ?
"""
_EVENTS = """
SELECT seq, time, type, data, checksum FROM events WHERE session = ? AND seq >= ? ORDER BY seq
"""
_HEAD = "SELECT status, ended, next_seq, last_time FROM heads WHERE session = ?"
_COLUMNS = ", ".join(f"holders.{name}" for name in COLUMNS.split(", "))
_HOLDERS = f"""
SELECT id, {_COLUMNS} FROM heads
JOIN holders ON holders.key = holder JOIN sessions ON sessions.key = session
"""
_PREFIX = "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT 4"


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
        self._blobs = Blobs(self._path)
        self._view = FileView(self._path)

    @property
    def is_copy(self) -> bool:
        """Whether the file is damaged; then a copy is read of what can be read of it."""
        return self._view.is_copy

    def list(self, *, limit: int | None = None) -> SessionInfos:
        """Return the sessions, newest first; see ``SessionReader.list``."""
        rows = self._query(_LIST, -1 if limit is None else limit)
        damaged = {row[0] for row in self._query(_DAMAGED)}
        infos = [SessionInfo(*(*row, row[0] in damaged)) for row in rows]
        if damaged and (limit is None or len(infos) < limit):
            headless = damaged.difference(info.id for info in infos)
            infos += [_headless(name) for name in sorted(headless)]
        return infos[:limit]

    def family(self, session_id: str) -> SessionInfos:
        """Return a session and all below it; see ``SessionReader.family``."""
        rows = self._query(_FAMILY, session_id)
        damaged = {row[0] for row in self._query(_DAMAGED)}
        found = subtree([SessionInfo(*(*row, row[0] in damaged)) for row in rows], session_id)
        if not found:
            self._header_row(session_id)
        return found

    def to_delete(self, session_id: str) -> SessionIds:
        """Return the ids of a session and all below it; also of one whose header was lost."""
        if not self._query(_HEADER, session_id) and self._query(_DAMAGE, session_id):
            return [session_id]
        return [info.id for info in self.family(session_id)]

    def load(self, session_id: str) -> SessionLog:
        """Return the header and all events of a session; see ``SessionReader.load``."""
        header, stored, damage = self.stored(session_id)
        events = [decoded(event, damage) for event in stored]
        return SessionLog(header, events, tuple(damage))

    def stored(self, session_id: str) -> tuple[SessionHeader, StoredEvents, Findings]:
        """Return the header of a session, its events still encoded, and what is damaged.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the store cannot be read, or the header of the session is damaged.
        """
        key, checksum, *fields = self._header_row(session_id)
        where = f"{self._path}: session {session_id!r}"
        if checksum is not None and checksum != row_checksum(fields):
            raise _damaged(where, "its header was changed")
        fields[8] = _decode(fields[8], f"{where}, its policy")
        fields[9] = _decode(fields[9], f"{where}, its options")
        header = SessionHeader(*fields)
        damage = [row[0] for row in self._query(_DAMAGE, session_id)]
        # The head first: events of later commits may come with the second query, never too few.
        heads = self._query(_HEAD, key)
        sound = self._sound(session_id, self._query(_EVENTS, key, 0), damage)
        count = heads[0][2] if heads else 0
        return header, without_gaps(sound, count, header.created, damage), damage

    def events_from(self, session_id: str, start: int) -> Events:
        """Return the events of a session from number `start` on, for who has read the others.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the store cannot be read.
        """
        rows = self._query(_EVENTS, self._header_row(session_id)[0], start)
        return [decoded(event, []) for event in self._sound(session_id, rows, [])]

    def _sound(self, session_id: str, rows: Rows, damage: Findings) -> StoredEvents:
        """Return events as they are stored, with stand-ins for those that were changed."""
        sound: StoredEvents = []
        for seq, time, type, data, checksum in rows:
            if checksum is not None and checksum != event_checksum(seq, type, data):
                problem = "it was changed on the disk"
            elif is_stub(data):
                value = self._blobs.read(session_id, data)
                if isinstance(value, bytes):
                    sound.append((seq, time, type, value))
                    continue
                problem = value
            else:
                sound.append((seq, time, type, data))
                continue
            damage.append(f"event {seq} is damaged: {problem}")
            sound.append(stand_in(seq, time, problem))
        return sound

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

    def holder_of(self, session_id: str) -> Holder | None:
        """Return who may write to a session; see ``SessionReader.holder_of``."""
        self._header_row(session_id)
        rows = self._query(f"{_HOLDERS} WHERE id = ?", session_id)
        return held_by_living(rows).get(session_id)

    def holders(self) -> dict[str, Holder]:
        """Return who holds which sessions; see ``SessionReader.holders``."""
        return held_by_living(self._query(_HOLDERS))

    def holder_row(self, session_id: str) -> Row | None:
        """Return all that is stored about the holder of a session, dead or alive."""
        rows = self._query(f"{_HOLDERS} WHERE id = ?", session_id)
        return Row(*rows[0][1:]) if rows else None

    def check(self) -> Findings:
        """Return what is wrong with the store, one finding a line; nothing if it is sound.

        Reads the whole file, which takes some seconds per million events.
        """
        found = [row[0] for row in self._query("PRAGMA quick_check") if row[0] != "ok"]
        if self.is_copy:
            found.append(f"{self._path}: the file is damaged")
        found += [row[0] for row in self._query(_DAMAGE, "")]
        for info in self.list():
            try:
                _, events, damage = self.stored(info.id)
            except StoreError as error:
                found.append(str(error))
                continue
            is_whole = events and info.events == len(events) and not damage
            if is_whole and events[-1][1] != info.last_event:
                damage.append("the time of its last event was changed on the disk")
            found += [f"session {info.id}: {finding}" for finding in damage]
        return found

    def close(self, timeout: float | None = 10.0) -> bool:
        """Close the file. Idempotent; there is nothing to wait for."""
        self._view.close()
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
            problems = self._query(_DAMAGE, session_id)
            if problems:
                where = f"{self._path}: session {session_id!r}"
                raise _damaged(where, "; ".join(row[0] for row in problems))
            raise SessionNotFound(
                f"{self._path}: no session {session_id!r}; "
                "'dsh-actors sessions list' shows those there are"
            )
        return rows[0]

    def _query(self, statement: str, *values: object) -> Rows:
        return self._view.query(statement, *values)


def _headless(session_id: str) -> SessionInfo:
    """Return the line for a session of which only the id is left."""
    return SessionInfo(
        id=session_id,
        agent_id="",
        system_id="",
        root=session_id,
        parent=None,
        depth=0,
        behaviour="",
        created=0.0,
        status="damaged",
        events=0,
        ended=None,
        last_event=None,
        damaged=True,
    )


def _decode(data: bytes, where: str) -> Any:
    try:
        return decode_leniently(data)
    except MessageError as error:
        raise _damaged(where, error.problem) from error


def _damaged(where: str, problem: str) -> StoreError:
    return StoreError(f"{where}: damaged ({problem}); the other sessions are not affected")
