"""Makes a sound store out of a damaged one: what can be read, and what was lost, by name."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import MessageError
from dsh_actors.sessions.damage import event_checksum, row_checksum
from dsh_actors.sessions.dbfile import make_tables
from dsh_actors.sessions.events import ACTIVE
from dsh_actors.sessions.pages import Pages
from dsh_actors.sessions.schema import APPLICATION_ID

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

__all__ = ["is_store", "salvage"]

_CHUNK = 1000
_SESSION, _EVENT, _HOLDER = 14, 5, 12
_NUMBER = (int, float)


def is_store(path: str) -> bool:
    """Whether a file that SQLite cannot read was once a session store."""
    pages = Pages(path)
    try:
        if pages.application_id:
            return pages.application_id == APPLICATION_ID
        return any(r.rowid is not None and _is_session(r.values) for r in pages.records())
    finally:
        pages.close()


def salvage(path: str, connection: sqlite3.Connection, *, kept_as: str = "") -> list[str]:
    """Copy what can be read of a damaged store into an empty database.

    Parameters:
        path: the damaged file; it and its log are only read.
        connection: the database to fill.
        kept_as: where the damaged file will be kept, for the findings.

    Returns:
        What was lost, one finding each; they are also in the new database.
    """
    make_tables(connection)
    pages = Pages(path)
    try:
        return _Salvage(connection, pages, kept_as).run()
    finally:
        pages.close()


class _Salvage:
    """One salvage: sorts the records by their shape, then looks for what is missing."""

    def __init__(self, connection: sqlite3.Connection, pages: Pages, kept_as: str) -> None:
        self._connection, self._pages = connection, pages
        self._kept_as = kept_as
        self._sessions: dict[int, list[Any]] = {}
        self._heads: dict[int, list[Any]] = {}
        self._names: dict[int, set[str]] = {}  # ids and roots, from the indices
        self._next_keys: dict[str, int] = {}
        self._holders: dict[int, list[Any]] = {}
        self._earlier: dict[int, tuple[str, str, float]] = {}
        self._problems: list[tuple[str, str]] = []

    def run(self) -> list[str]:
        connection = self._connection
        connection.execute("BEGIN")
        self._sort()
        known = {row[0] for row in self._sessions.values()}
        for key, row in self._sessions.items():
            self._check_head(key, row[0])
        self._add_headless(known)
        self._add_store_findings()
        self._write()
        connection.execute("COMMIT")
        return [
            f"session {name}: {problem}" if name else problem for name, problem in self._problems
        ]

    def _sort(self) -> None:
        events: list[list[Any]] = []
        for rowid, values in self._pages.records():
            if rowid is not None:
                self._take_row(rowid, values)
            elif _is_event(values):
                if _is_sound_event(values):
                    events.append([*values, None][:6])
                    if len(events) >= _CHUNK:
                        self._insert_events(events)
                        events = []
            elif _is_name(values):
                self._names.setdefault(values[1], set()).add(values[0])
        self._insert_events(events)

    def _take_row(self, rowid: int, values: list[Any]) -> None:
        if _is_session(values):
            row = values[1:]
            if _is_sound_session(row):
                self._sessions[rowid] = [*row, None][:14]
            else:
                self._names.setdefault(rowid, set()).add(row[0])
        elif _is_head(values):
            row = values[1:7]
            self._heads[rowid] = row + [None, 0][len(row) - 4 :]
        elif _is_name(values):
            self._next_keys[values[0]] = values[1]
        elif len(values) == _HOLDER and values[0] is None and isinstance(values[1], str):
            self._holders[rowid] = values[1:]
        elif _is_finding(values):
            self._earlier[rowid] = (values[1], values[2], values[3])

    def _insert_events(self, rows: Iterable[list[Any]]) -> None:
        # The same event may be there twice, if the damage brought an old page back to life.
        self._connection.executemany(
            "INSERT OR IGNORE INTO events (session, seq, time, type, data, checksum)"
            " VALUES (?,?,?,?,?,?)",
            rows,
        )

    def _check_head(self, key: int, name: str) -> None:
        """Compare the head of a session with its events; make one if it is lost."""
        find = self._connection.execute
        count, last = find(
            "SELECT count(*), max(seq) FROM events WHERE session = ?", (key,)
        ).fetchone()
        next_seq = 0 if last is None else last + 1
        time, outcome = None, None
        if last is not None:
            time, type, data = find(
                "SELECT time, type, data FROM events WHERE session = ? AND seq = ?", (key, last)
            ).fetchone()
            outcome = _outcome(type, data)
        head = self._heads.get(key)
        if head is None:
            status, ended = (outcome, time) if outcome else (ACTIVE, None)
            self._heads[key] = [status, ended, next_seq, time, None, 0]
            self._problems.append(
                (name, f"its end was lost; there may have been more events than {next_seq}")
            )
        else:
            head[2] = max(head[2], next_seq)
        missing = self._heads[key][2] - count
        if missing:
            these = "1 event was" if missing == 1 else f"{missing} events were"
            self._problems.append((name, f"{these} lost"))

    def _add_headless(self, known: set[str]) -> None:
        """Name the sessions whose headers were lost, and drop what belongs to nothing known."""
        find = self._connection.execute
        for (key,) in find("SELECT DISTINCT session FROM events").fetchall():
            if key not in self._sessions:
                self._names.setdefault(key, set())
        for key, names in sorted(self._names.items()):
            if key in self._sessions:
                continue
            # Of id and root, which the indices hold, only the id belongs to nobody else.
            own = sorted(names - known) or [f"unknown-{key}"]
            if not names - known and names:
                own = [f"unknown-{key}"]
            count = find("SELECT count(*) FROM events WHERE session = ?", (key,)).fetchone()[0]
            where = f"; {count} events of it are in {self._kept_as}" if self._kept_as else ""
            self._problems.append((own[0], f"its header was lost{where}"))
            known.add(own[0])
            find("DELETE FROM events WHERE session = ?", (key,))
        for key in set(self._heads) - set(self._sessions):
            del self._heads[key]

    def _add_store_findings(self) -> None:
        pages = self._pages
        bad = pages.unreadable + pages.missing
        cut = pages.size % pages.page_size
        if bad or cut or self._problems:
            kept = f"; the damaged file is kept as {self._kept_as}" if self._kept_as else ""
            text = f"{bad} of {pages.count + pages.missing} pages are missing or unreadable{kept}"
            self._problems.append(("", text))

    def _write(self) -> None:
        run, now = self._connection.execute, time()
        many = self._connection.executemany
        many(
            "INSERT OR IGNORE INTO sessions (key, id, agent_id, system_id, root, parent, depth,"
            " behaviour, created, policy, options, format, forked_from, forked_at, checksum)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            [(key, *row) for key, row in sorted(self._sessions.items())],
        )
        many(
            "INSERT INTO heads (session, status, ended, next_seq, last_time, holder, token)"
            " VALUES (?,?,?,?,?,?,?)",
            [(key, *row) for key, row in self._heads.items()],
        )
        many(
            f"INSERT OR IGNORE INTO holders VALUES ({','.join('?' * _HOLDER)})",
            [(key, *row) for key, row in self._holders.items()],
        )
        many(
            "INSERT INTO damage (session, problem, found) VALUES (?,?,?)",
            [*self._earlier.values(), *((*problem, now) for problem in self._problems)],
        )
        # No key is ever used twice, not even one of which nothing is left.
        highest = max((*self._sessions, *self._names), default=0)
        for table, least in (("sessions", highest), ("holders", max(self._holders, default=0))):
            key = max(self._next_keys.get(table, 0), least)
            run("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            run("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, key))


def _is_event(values: list[Any]) -> bool:
    return (
        len(values) in (_EVENT, _EVENT + 1)
        and isinstance(values[0], int)
        and isinstance(values[1], int)
        and isinstance(values[2], _NUMBER)
        and isinstance(values[3], str)
        and isinstance(values[4], bytes)
    )


def _is_sound_event(values: list[Any]) -> bool:
    checksum = values[5] if len(values) > _EVENT else None
    return checksum is None or checksum == event_checksum(values[1], values[3], values[4])


def _is_name(values: list[Any]) -> bool:
    return len(values) == 2 and isinstance(values[0], str) and isinstance(values[1], int)


def _is_finding(values: list[Any]) -> bool:
    return (
        len(values) == 4
        and values[0] is None
        and isinstance(values[1], str)
        and isinstance(values[2], str)
        and isinstance(values[3], _NUMBER)
    )


def _is_session(values: list[Any]) -> bool:
    return (
        len(values) in (_SESSION, _SESSION + 1)
        and values[0] is None
        and isinstance(values[1], str)
        and isinstance(values[9], bytes)
        and isinstance(values[10], bytes)
    )


def _is_sound_session(row: list[Any]) -> bool:
    row[7] = float(row[7]) if isinstance(row[7], _NUMBER) else row[7]
    if not all(isinstance(value, str) for value in (*row[:4], row[6])):
        return False
    if not isinstance(row[5], int) or not isinstance(row[7], float):
        return False
    checksum = row[13] if len(row) > 13 else None
    return checksum is None or checksum == row_checksum(row[:13])


def _is_head(values: list[Any]) -> bool:
    return (
        5 <= len(values) <= 7
        and values[0] is None
        and isinstance(values[1], str)
        and values[1].isprintable()
        and isinstance(values[2], (*_NUMBER, type(None)))
        and isinstance(values[3], int)
        and values[3] >= 0
        and isinstance(values[4], (*_NUMBER, type(None)))
    )


def _outcome(type: str, data: bytes) -> str | None:
    """Return how an agent ended, if that is what this event says."""
    from dsh_actors.codec import decode_leniently

    if type != "agent/ended":
        return None
    try:
        return str(decode_leniently(data)["outcome"])
    except (MessageError, KeyError, TypeError):
        return None
