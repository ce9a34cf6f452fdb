"""The session store on disk: an SQLite database in WAL mode, written by one thread in groups."""

from __future__ import annotations

import os
import threading
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from dsh_actors.errors import StoreError
from dsh_actors.sessions.blobs import Blobs
from dsh_actors.sessions.dbfile import explain, open_for_writing
from dsh_actors.sessions.deletion import delete_sessions
from dsh_actors.sessions.filelock import FileLock
from dsh_actors.sessions.holders import Standing
from dsh_actors.sessions.lease import LEASE_TTL, Leases, held_error, standing
from dsh_actors.sessions.observers import report
from dsh_actors.sessions.opening import open_store, repair_store
from dsh_actors.sessions.ops import (
    Log,
    Ops,
    RefusedError,
    StoreBusyError,
    StoreDamagedError,
    log_of,
)
from dsh_actors.sessions.reader import SqliteReader
from dsh_actors.sessions.rows import Heads, write_group
from dsh_actors.sessions.verbs import StoreVerbs

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.errors import Holder
    from dsh_actors.sessions.events import SessionHeader, SessionLog
    from dsh_actors.sessions.store import SessionIds, SessionInfos, StoredEvents

__all__ = ["SqliteStore"]

T = TypeVar("T")
Logs: TypeAlias = list[Log]


class SqliteStore(StoreVerbs):
    """Sessions in one file; several systems may write to it, each to its own sessions.

    The file and its folder are made if missing, readable by their user alone. A commit is on the
    disk when it is confirmed (``synchronous=FULL``).

    Parameters:
        path: the file.
        flush_interval: the shortest time between two commits, in seconds.
        holder: the name under which this store holds sessions, for the errors of others.
        lease_ttl: seconds after which others may take sessions away from this store, if it gives
            no sign of life; it gives three in that time for as long as it holds any.

    Raises:
        StoreError: it cannot be opened, is of a newer version, or is not a session store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        flush_interval: float = 0.0,
        holder: str | None = None,
        lease_ttl: float = LEASE_TTL,
    ) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._file_lock = FileLock(self._path)
        self._leases = Leases(self._path, holder or "another system", lease_ttl)
        super().__init__(self._path, flush_interval=flush_interval)
        self._blobs = Blobs(self._path)
        self._reader: SqliteReader | None = None
        self._reader_lock = threading.Lock()
        self._damaged: StoreError | None = None  # found broken, and not repaired yet
        self._mend = True  # what readers find is repaired once; then commits find it
        try:
            self._connection = open_store(self._path, self._file_lock)
        except BaseException:
            self._file_lock.release()
            raise

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
            reader = self._reader
        if reader.is_copy and self._mend and not self._is_writer():
            self._mend = False
            self._on_writer(self._mend_file)
        return reader

    def _mend_file(self) -> None:
        """Repair what a reader has found to be damaged, before anything is written to it."""
        try:
            self._repair(StoreDamagedError(f"{self._path}: a part of it cannot be read"))
        except StoreError as error:
            report(self._path, "it is damaged, and not repaired yet", error)

    def _make_locks(self) -> None:
        super()._make_locks()
        self._reader_lock = threading.Lock()

    def _lookup(self, session_id: str) -> Log:
        # Said at once if it can be known; who comes in between is refused at the commit.
        row = self._reading().holder_row(session_id)
        others = row is not None and not self._leases.is_ours(row.key)
        if row is not None and others and standing(row) == Standing.ALIVE:
            raise held_error(self._path, session_id, row)
        return self._reading().log(session_id)

    def holder_of(self, session_id: str) -> Holder | None:
        """Return who may write to a session; see ``SessionReader.holder_of``."""
        return self._reading().holder_of(session_id)

    def holders(self) -> dict[str, Holder]:
        """Return who holds which sessions; see ``SessionReader.holders``."""
        return self._reading().holders()

    def _stored(self, session_id: str) -> tuple[SessionHeader, StoredEvents]:
        header, events, _ = self._reading().stored(session_id)
        return header, events

    def _family(self, session_id: str) -> SessionIds:
        return self._reading().to_delete(session_id)

    def _delete(self, session_id: str, known: frozenset[str]) -> bool:
        import sqlite3

        # A connection of its own: the writer's may be in the middle of a commit, which waits.
        connection = open_for_writing(self._path)
        try:
            if not delete_sessions(connection, session_id, known, self._leases.evict):
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
            try:
                if self._damaged is None:
                    self._leases.leave(self._connection)
            finally:
                # The last connection to close copies the log into the database and removes it.
                self._connection.close()
        except sqlite3.Error as error:
            raise explain(self._path, error) from error
        finally:
            self._file_lock.release()

    def _after_fork(self, parent: int) -> None:
        super()._after_fork(parent)
        self._file_lock.forget()

    def _commit(self, group: Ops) -> None:
        heads = self._transact(lambda: self._write_group(group))
        for log, head in heads.items():
            log.key, log.status, log.ended, log.written, log.last_time, holder, token = head
            log.token = 0 if holder is None else token

    def _write_group(self, group: Ops) -> Heads:
        import sqlite3

        try:
            return write_group(self._connection, group, self._blobs, self._leases)
        except sqlite3.IntegrityError as error:
            conflicts = self._conflicts(group)
            if conflicts:
                raise RefusedError(conflicts) from error
            raise

    def _transact(self, work: Callable[[], T]) -> T:
        """Do something in a transaction, in which nobody can take a session away.

        If the file turns out to be damaged, what can be read of it is saved first.

        Raises:
            RefusedError: some sessions were taken away before, or ``work`` refused some. Nothing
                was done.
            StoreError: it could not be done now.
        """
        if self._damaged is None:
            try:
                return self._transact_once(work)
            except StoreDamagedError as error:
                self._damaged = error
        self._repair(self._damaged)
        return self._transact_once(work)

    def _repair(self, damaged: StoreError) -> None:
        """Put a salvaged file in the place of the damaged one. On the writer thread."""
        import sqlite3

        self._damaged = damaged
        self._connection.close()
        self._connection = repair_store(self._path, self._file_lock, damaged)
        self._damaged = None
        with self._lock:
            logs = list(self._logs.values())
        try:
            self._leases.restore(self._connection, logs)
        except sqlite3.Error as error:
            raise explain(self._path, error) from error

    def _transact_once(self, work: Callable[[], T]) -> T:
        import sqlite3

        connection, leases = self._connection, self._leases
        try:
            connection.execute("BEGIN IMMEDIATE")
            if leases.enter(connection):
                with self._lock:
                    logs = list(self._logs.values())
                lost = leases.lost(connection, logs)
                if lost:
                    raise RefusedError(lost)
            result = work()
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise explain(self._path, error) from error
            raise
        leases.committed()
        return result

    # -- leases -------------------------------------------------------------------------------

    def _acquire(self, session_ids: SessionIds) -> None:
        try:
            logs = self._transact(lambda: self._lease(session_ids))
        except RefusedError as refused:
            # Some were taken from us, perhaps these very ones. Now that this is known, try again.
            self._drop_refused(refused.errors)
            logs = self._transact(lambda: self._lease(session_ids))
        with self._lock:
            for log in logs:
                known = self._logs.get(log.id)
                # One with something queued is taken in hand by its commit, like any other.
                if known is None or known.refused is not None or known.next_seq == known.written:
                    self._logs[log.id] = log

    def _lease(self, session_ids: SessionIds) -> Logs:
        with self._lock:
            logs = [(name, self._logs.get(name)) for name in session_ids]
        # What we have is ours beyond doubt: the transaction has looked at the fence.
        missing = [name for name, log in logs if log is None or log.refused or not log.token]
        return self._leases.acquire(self._connection, missing)

    def _time_to_chore(self) -> float | None:
        return max(0.0, self._leases.beat_at - monotonic()) if self._logs else None

    def _do_chore(self) -> None:
        """Give a sign of life, and see whether something was taken away."""
        if not self._logs or monotonic() < self._leases.beat_at:
            return
        if self._damaged is not None:
            self._leases.postpone_beat()  # the next commit repairs it
            return
        try:
            self._connection.execute("PRAGMA synchronous = NORMAL")  # not worth a disk flush
            try:
                self._transact(lambda: None)
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")
        except RefusedError as refused:
            self._drop_refused(refused.errors)
        except StoreBusyError:
            self._leases.postpone_beat()  # whoever writes cannot take anything away meanwhile
        except StoreError as error:
            self._leases.postpone_beat()
            why = str(error).removeprefix(f"{self._path}: ")
            report(self._path, f"{why}; a sign of life could not be written, it is tried again")

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
