"""What a store does with what it is given: checked, numbered and queued, or refused at once."""

from __future__ import annotations

import threading
from time import time
from typing import TYPE_CHECKING, Any, NoReturn

from dsh_actors.errors import DshActorsError, SessionNotFound, StoreError
from dsh_actors.sessions.forks import watch_forks
from dsh_actors.sessions.observers import Observers
from dsh_actors.sessions.ops import Create, Log, SetStatus, refusal
from dsh_actors.sessions.retry import Attempts

if TYPE_CHECKING:
    from dsh_actors.sessions.errands import Errand
    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.ops import Op, Ops
    from dsh_actors.sessions.store import OnCommit

__all__ = ["MAX_WAITING", "MAX_WAITING_WHILE_FAILING", "Intake", "size_of"]

MAX_EVENT_BYTES = 256 * 1024 * 1024
"""The largest event that is taken. What is refused at once cannot spoil a group later."""

MAX_WAITING = 1024 * 1024 * 1024
"""How many bytes may wait to be written. Only a disk that hangs can be so far behind."""

MAX_WAITING_WHILE_FAILING = 64 * 1024 * 1024
"""How many may wait while the store cannot be written; what comes then is refused, loudly."""

_OVERHEAD = 256
"""About what an operation costs in memory besides its data."""


class Intake:
    """The queue in front of a store: what is accepted, and how much of it.

    Parameters:
        name: what to call the store in errors, e.g. the path of its file.
        flush_interval: the shortest time between two commits, in seconds.
    """

    def __init__(self, name: str, *, flush_interval: float = 0.0) -> None:
        self._name = name
        self._attempts = Attempts(flush_interval)
        self._observers = Observers(name)
        self._logs: dict[str, Log] = {}
        self._queue: Ops = []  # accepted, not yet in a group
        self._errands: list[Errand[Any]] = []  # what callers wait for; see _on_writer
        self._group: Ops = []  # what the writer is committing, or could not
        # Why nothing is accepted any more: what to raise, made anew each time.
        self._refusal: tuple[type[DshActorsError], str] | None = None
        self._thread: threading.Thread | None = None
        self._accepted = 0  # operations ever queued
        self._settled = 0  # operations confirmed or given up, and their callbacks have run
        self._lost = 0  # operations given up
        self._forgotten = 0  # how often logs were dropped from memory; see _attach
        self._parked = False  # the writer waits and must be woken
        self._urgent = False  # somebody waits in flush
        self._closing = False
        self._begun_closing = False  # the attempt in hand was begun after the call of close
        self._forked = False
        self._give_up_at: float | None = None
        self._ended = False  # nothing will be written any more
        self._limit = MAX_WAITING  # bytes that may wait
        # What is left of that for the queue; 0 if nothing is taken any more.
        self._room = MAX_WAITING
        self._queue_bytes = 0
        self._group_bytes = 0
        self._deleting: frozenset[str] = frozenset()  # sessions that are being removed
        self._make_locks()
        watch_forks(self)

    # -- for the subclass ---------------------------------------------------------------------

    def _lookup(self, session_id: str) -> Log:
        """Read what is committed about a session, or raise SessionNotFound."""
        raise NotImplementedError

    def _run(self) -> None:
        """Commit what is queued, as the writer thread."""
        raise NotImplementedError

    def _after_fork(self, parent: int) -> None:
        """Put up with being in a forked child."""
        raise NotImplementedError

    # -- accepting ----------------------------------------------------------------------------

    @property
    def failure(self) -> StoreError | None:
        """Why the newest attempt to write failed, or None if it did not."""
        return self._attempts.failure

    @property
    def pending(self) -> int:
        """How many accepted writes are not confirmed yet."""
        return self._accepted - self._settled

    def create(self, header: SessionHeader, on_commit: OnCommit | None = None) -> None:
        """Add a session; see ``SessionStore.create``."""
        self._create(Create(Log(header.id), header, on_commit))

    def _create(self, op: Create) -> None:
        name = op.log.id
        with self._lock:
            self._check_open()
            if name in self._logs:
                raise StoreError(
                    f"{self._name}: session {name!r} exists already; mint a new id for it"
                )
            if name in self._deleting:
                raise StoreError(f"{self._name}: session {name!r} is being deleted; try again")
            self._check_room()
            self._logs[name] = op.log
            self._enqueue(op)

    def append(
        self, session_id: str, type: str, data: bytes, *, on_commit: OnCommit | None = None
    ) -> int:
        """Add an event and return its number; see ``SessionStore.append``."""
        if data.__class__ is not bytes or not type.isascii() or len(data) > MAX_EVENT_BYTES:
            self._check_event(session_id, type, data)
        observers = self._observers
        while True:
            with self._lock:
                log = self._logs.get(session_id)
                if (
                    log is not None
                    and log.refused is None
                    and self._queue_bytes < self._room
                    and (log is not observers.telling or not self._is_writer())
                ):
                    seq = log.next_seq
                    log.next_seq = seq + 1
                    self._queue.append((log, seq, time(), type, data, on_commit))
                    self._queue_bytes += len(data) + _OVERHEAD
                    self._accepted += 1
                    if self._parked:
                        self._unpark()
                    return seq
                self._check_open()
                if log is not None:
                    self._refuse_append(log)
            self._attach(session_id)

    def set_status(
        self, session_id: str, status: str, *, on_commit: OnCommit | None = None
    ) -> None:
        """Record a status; see ``SessionStore.set_status``."""
        while True:
            with self._lock:
                self._check_open()
                log = self._logs.get(session_id)
                if log is not None:
                    if log.refused is not None:
                        raise refusal(log.refused)
                    self._enqueue(SetStatus(log, status, time(), on_commit))
                    return
            self._attach(session_id)

    def _check_event(self, session_id: str, type: str, data: bytes) -> None:
        """Refuse what could never be written: it would hold up its whole group for ever."""
        where = f"{self._name}: event {type!r} of session {session_id!r}"
        if not isinstance(data, bytes):
            kind = data.__class__.__name__
            raise StoreError(f"{where}: the data must be bytes from codec.encode, not {kind}")
        if len(data) > MAX_EVENT_BYTES:
            raise StoreError(
                f"{where}: {len(data)} bytes are over the limit of {MAX_EVENT_BYTES}; "
                "store large output in a file and its path here"
            )
        try:
            type.encode()
        except UnicodeEncodeError as error:
            raise StoreError(f"{where}: the type is not valid Unicode; use plain text") from error

    def _refuse_append(self, log: Log) -> NoReturn:
        """Say why an event of a session that is known is not taken. With the lock."""
        if log.refused is not None:
            raise refusal(log.refused)
        self._check_room()
        raise StoreError(
            f"{self._name}: a listener that is told of an event of session {log.id!r} appended "
            "to it; append from another thread, or in an on_commit callback"
        )

    def _check_room(self) -> None:
        if self._queue_bytes >= self._room:
            failure = self._attempts.failure
            why = f"since it cannot be written ({failure})" if failure else "since its disk hangs"
            size = (self._queue_bytes + self._group_bytes) >> 20
            raise StoreError(
                f"{self._name}: {self.pending} writes ({size} MiB) wait, {why}; nothing more is "
                "taken until some of them are on the disk"
            )

    def _check_open(self) -> None:
        if self._refusal is not None:
            kind, message = self._refusal
            raise kind(message)

    def _enqueue(self, op: Op) -> None:
        """Take an operation. With the lock."""
        if self._thread is None:
            self._start_writer()
        self._queue.append(op)
        self._queue_bytes += _OVERHEAD
        if isinstance(op, Create):
            self._queue_bytes += len(op.policy) + len(op.options)
            self._queue_bytes += sum(len(event[3]) for event in op.events)
        self._accepted += 1
        if self._parked:
            self._unpark()

    def _unpark(self) -> None:
        self._parked = False
        self._wake.notify()

    def _start_writer(self) -> None:
        thread = threading.Thread(target=self._run, name="dsh-actors-store", daemon=True)
        thread.start()
        self._thread = thread

    def _attach(self, session_id: str) -> None:
        """Get to know a session that an earlier opening of the store has written.

        Between the read and the lock another thread can attach it, write to it and forget it
        again, and then the read is stale; the count of forgotten logs tells.
        """
        with self._lock:
            forgotten = self._forgotten
        log = self._lookup(session_id)
        with self._lock:
            self._check_open()
            if session_id in self._deleting:
                raise SessionNotFound(f"{self._name}: session {session_id!r} is being deleted")
            if forgotten == self._forgotten:
                if self._thread is None:
                    self._start_writer()
                self._logs.setdefault(session_id, log)

    # -- how much may wait --------------------------------------------------------------------

    def _move_bytes(self, count: int) -> None:
        """Note that so many of the bytes that wait are in the group now. With the lock."""
        self._queue_bytes -= count
        self._group_bytes += count
        self._set_room()

    def _set_limit(self, limit: int) -> None:
        self._limit = limit
        self._set_room()

    def _set_room(self) -> None:
        self._room = self._limit - self._group_bytes if self._refusal is None else 0

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)  # the writer waits for work
        self._done = threading.Condition(self._lock)  # others wait for the writer

    def _is_writer(self) -> bool:
        return threading.current_thread() is self._thread


def size_of(op: Op) -> int:
    """About what an operation costs in memory."""
    return _OVERHEAD + (len(op[4]) if isinstance(op, tuple) else 0)
