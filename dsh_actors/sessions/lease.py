"""Leases: only one open store at a time may write to a session, and a former one cannot.

A lease is two columns in the head of the session: the ``holder`` (a row of ``holders``) and a
``token`` that grows with every change of hands. What makes it safe is not the heartbeat but the
fence: whoever takes a session away counts up the ``fence`` of the former holder in the same
transaction, and every transaction of a holder begins with a look at its own. As long as it has
not moved, nothing was taken, and that one look covers every session in the group; if it has, the
sessions that are gone are found and refused, and the others go on. SQLite lets one transaction
write at a time, so nothing can change between the look and the commit. A process that was stopped
(SIGSTOP, a laptop lid, a debugger) for however long cannot write a single event after a takeover:
if it was stopped before its transaction it meets the fence, and if it was stopped within, it holds
the database and nobody could take anything over.

Heartbeats only decide when it is polite to take over from a process that is there but silent.
They are not worth a disk flush: after a power cut every holder is of a former boot.
"""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import SessionHeld, SessionNotFound, StoreError
from dsh_actors.sessions.events import ACTIVE
from dsh_actors.sessions.holders import COLUMNS, Row, Standing, describe, here, judge, new_row
from dsh_actors.sessions.ops import Log, RefusedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from dsh_actors.errors import Holder

__all__ = ["LEASE_TTL", "Leases", "held_by_living", "held_error", "standing"]

LEASE_TTL = 30.0
"""Seconds without a heartbeat after which a living holder may be taken for hung."""

BEATS = 3
"""Heartbeats per ``lease_ttl`` of a store that has nothing to write."""

_INSERT = f"INSERT INTO holders ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
_HOLDER = f"SELECT {COLUMNS} FROM holders WHERE key = ?"
_FENCE = "SELECT fence FROM holders WHERE key = ?"
_BEAT = "UPDATE holders SET heartbeat = ?, uptime = ? WHERE key = ?"


class Leases:
    """What one open store holds. Its writer thread alone uses it, inside its transactions.

    Parameters:
        path: the store's file, for errors.
        name: of the system that works here, for the errors of others.
        ttl: seconds without a heartbeat after which others may take this holder for hung.
    """

    def __init__(self, path: str, name: str, ttl: float) -> None:
        self._path = path
        self._row = new_row(name, ttl)
        self._registered = False
        self._fence = 0  # what our fence was when we last looked which sessions are gone
        self._next_beat = 0.0  # monotonic
        # What becomes true with the commit.
        self._registering = False
        self._beating = False

    @property
    def key(self) -> int:
        """The key of our row. Only after ``enter``."""
        assert self._row.key is not None
        return self._row.key

    def is_ours(self, key: int | None) -> bool:
        """Whether this is the key of our row. Any thread may ask."""
        return key is not None and key == self._row.key

    @property
    def beat_at(self) -> float:
        """When the next heartbeat is due, in monotonic seconds."""
        return self._next_beat

    def postpone_beat(self) -> None:
        """A heartbeat could not be written; try again a little later."""
        self._next_beat = monotonic() + self._row.ttl / BEATS / 10

    # -- in every transaction -----------------------------------------------------------------

    def enter(self, connection: sqlite3.Connection) -> bool:
        """Begin a transaction: be known as a holder, and beat if it is time.

        Returns:
            False if everything that was held is held still; True if ``lost`` has to look.
        """
        now = monotonic()
        self._registering = self._beating = False
        if not self._registered:
            _sweep(connection)
            self._row = self._row._replace(key=None)  # one from a rollback may be another's by now
            self._register(connection, now)
            return False
        found = connection.execute(_FENCE, (self.key,)).fetchone()
        if found is None:
            # Somebody took us for dead. Whatever nobody has claimed since is still ours.
            self._register(connection, now)
            return True
        if now >= self._next_beat:
            connection.execute(_BEAT, (time(), now, self.key))
            self._beating = True
        return bool(found[0] != self._fence)

    def lost(self, connection: sqlite3.Connection, logs: Iterable[Log]) -> dict[Log, StoreError]:
        """Find out which of these sessions were taken from us."""
        # Read first: what is seen here is committed, whatever becomes of this transaction.
        found = connection.execute(_FENCE, (self.key,)).fetchone()
        query = "SELECT session, token FROM heads WHERE holder = ?"  # a scan; it is rare
        kept = dict(connection.execute(query, (self.key,)).fetchall())
        gone = {
            log: self._taken_error(connection, log)
            for log in logs
            if log.token and log.refused is None and kept.get(log.key) != log.token
        }
        self._fence = found[0]
        return gone

    def committed(self) -> None:
        """The transaction was committed."""
        if self._registering:
            self._registered = True
        if self._registering or self._beating:
            self._next_beat = monotonic() + self._row.ttl / BEATS

    def leave(self, connection: sqlite3.Connection) -> None:
        """Give back everything, at the end of the store: with our row all of it is free."""
        if self._registered:
            # Not worth a disk flush either.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("DELETE FROM holders WHERE key = ?", (self.key,))
            self._registered = False

    # -- taking -------------------------------------------------------------------------------

    def acquire(self, connection: sqlite3.Connection, session_ids: Iterable[str]) -> list[Log]:
        """Make sessions ours in the open transaction, all of them or none.

        Returns:
            Where their logs end.

        Raises:
            SessionHeld: a living holder has one of them.
            SessionNotFound: there is no such session.
        """
        logs: list[Log] = []
        for session_id in session_ids:
            found = connection.execute("SELECT key FROM sessions WHERE id = ?", (session_id,))
            row = found.fetchone()
            if row is None:
                raise SessionNotFound(
                    f"{self._path}: no session {session_id!r}; "
                    "'dsh-actors sessions list' shows those there are"
                )
            head = self._take(connection, session_id, row[0])
            connection.execute(
                "REPLACE INTO heads (session, status, ended, next_seq, last_time, holder, token)"
                " VALUES (?,?,?,?,?,?,?)",
                (row[0], *head),
            )
            log = Log(session_id, key=row[0], next_seq=head[2])
            log.status, log.ended, log.last_time, log.token = head[0], head[1], head[3], head[5]
            logs.append(log)
        return logs

    def _take(self, connection: sqlite3.Connection, session_id: str, key: int) -> list[Any]:
        """Make a session ours in the open transaction.

        Returns:
            Its head: status, ended, next_seq, last_time, holder, token. The caller writes it.

        Raises:
            SessionHeld: a living holder has it.
            SessionNotFound: there is no such session any more.
        """
        row = connection.execute(
            "SELECT status, ended, next_seq, last_time, holder, token FROM sessions"
            " LEFT JOIN heads ON session = key WHERE key = ?",
            (key,),
        ).fetchone()
        if row is None:
            raise SessionNotFound(f"{self._path}: session {session_id!r} has been deleted")
        if row[5] is None:  # damage took the head, but perhaps not all of the events
            last = "SELECT max(seq), max(time) FROM events WHERE session = ?"
            seq, time = connection.execute(last, (key,)).fetchone()
            row = (ACTIVE, None, 0 if seq is None else seq + 1, time, None, 0)
        self.evict(connection, session_id, row[4])
        return [*row[:4], self.key, row[5] + 1]

    def admit(self, connection: sqlite3.Connection, heads: dict[Log, list[Any]]) -> None:
        """Take those sessions of a group that exist and are not ours yet.

        Parameters:
            heads: what the heads become: key, status, ended, next_seq, last_time, holder, token.
                The last two are filled in here. One whose agent has ended is taken only for this
                commit: nobody would give it back.

        Raises:
            RefusedError: living holders have some of them, or wrote to them in the meantime.
        """
        refused: dict[Log, StoreError] = {}
        for log, head in heads.items():
            if log.token or log.key is None:
                continue
            try:
                _, _, next_seq, _, holder, head[6] = self._take(connection, log.id, log.key)
            except StoreError as error:
                refused[log] = error
                continue
            head[5] = holder if head[1] == ACTIVE else None
            if next_seq != log.written:
                refused[log] = StoreError(
                    f"{self._path}: session {log.id!r} was written to by another process; "
                    "let one system at a time work on a session"
                )
        if refused:
            raise RefusedError(refused)

    def evict(self, connection: sqlite3.Connection, session_id: str, holder: int | None) -> None:
        """Make sure that nobody else can write to a session any more, in the open transaction.

        Parameters:
            session_id: the session, for the error.
            holder: the holder in its head.

        Raises:
            SessionHeld: it is another one, which lives and beats.
        """
        if holder is None or self.is_ours(holder):
            return
        found = connection.execute(_HOLDER, (holder,)).fetchone()
        if found is None:
            return
        row = Row(*found)
        if standing(row) == Standing.ALIVE:
            raise held_error(self._path, session_id, row)
        connection.execute("UPDATE holders SET fence = fence + 1 WHERE key = ?", (holder,))

    def restore(self, connection: sqlite3.Connection, logs: Iterable[Log]) -> None:
        """Write the heads anew that damage took from a file which nobody else has open."""
        for log in logs:
            if log.token and log.key is not None:
                connection.execute(
                    "UPDATE heads SET status = ?, ended = ?, next_seq = max(next_seq, ?),"
                    " last_time = ?, holder = ?, token = ?"
                    " WHERE session = ? AND holder IS NULL AND token = 0",
                    (
                        log.status,
                        log.ended,
                        log.written,
                        log.last_time,
                        self.key,
                        log.token,
                        log.key,
                    ),
                )

    def _register(self, connection: sqlite3.Connection, now: float) -> None:
        row = self._row._replace(heartbeat=time(), uptime=now, fence=self._fence)
        self._row = row._replace(key=connection.execute(_INSERT, row).lastrowid)
        self._registering = True

    def _taken_error(self, connection: sqlite3.Connection, log: Log) -> StoreError:
        where = f"{self._path}: session {log.id!r}"
        head = connection.execute(
            "SELECT holder FROM heads WHERE session = ?", (log.key,)
        ).fetchone()
        if head is None:
            return SessionNotFound(f"{where} has been deleted by another process")
        found = connection.execute(_HOLDER, (head[0],)).fetchone()
        holder = Row(*found).public if found else None
        by = describe(holder) if holder else "another process, which has let go of it since"
        return SessionHeld(
            f"{where} was taken over by {by}, because this process gave no sign of life; what it "
            "writes to it is refused: read it, fork it, or acquire it again",
            holder=holder,
        )


def held_error(path: str, session_id: str, row: Row) -> SessionHeld:
    """Return the error for those who want to write to what another one holds."""
    return SessionHeld(
        f"{path}: session {session_id!r} is held by {describe(row.public)}; "
        "read it, fork it, or end that process first",
        holder=row.public,
    )


def standing(row: Row) -> str:
    """Tell how a holder is doing right now: one of ``Standing``."""
    return judge(row, here(), uptime=monotonic(), now=time())


def held_by_living(rows: Iterable[tuple[str, *tuple[object, ...]]]) -> dict[str, Holder]:
    """Return the holders of sessions whose processes are there.

    Parameters:
        rows: session id and columns of the holder.
    """
    judged: dict[int | None, str] = {}
    found: dict[str, Holder] = {}
    for session_id, *columns in rows:
        row = Row(*columns)  # type: ignore[arg-type]
        if row.key not in judged:
            judged[row.key] = standing(row)
        if judged[row.key] != Standing.DEAD:
            found[session_id] = row.public
    return found


def _sweep(connection: sqlite3.Connection) -> None:
    """Forget the holders that are dead, which frees all that they held."""
    rows = [Row(*row) for row in connection.execute(f"SELECT {COLUMNS} FROM holders").fetchall()]
    dead = [(row.key,) for row in rows if standing(row) == Standing.DEAD]
    if dead:
        connection.executemany("DELETE FROM holders WHERE key = ?", dead)
