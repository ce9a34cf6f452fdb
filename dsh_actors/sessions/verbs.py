"""What a store does with whole sessions: fork, delete, observe."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING

from dsh_actors.errors import SessionNotFound, StoreError
from dsh_actors.sessions.events import ACTIVE, FORKED
from dsh_actors.sessions.forking import fork_point
from dsh_actors.sessions.ids import new_session_id
from dsh_actors.sessions.leasing import LeasedStore
from dsh_actors.sessions.ops import Create, Log, log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.ops import StoredEvent
    from dsh_actors.sessions.store import Listener, SessionIds, StoredEvents

__all__ = ["StoreVerbs"]

PATIENCE = 60.0
"""Seconds to wait for the disk in a fork or a delete."""


class StoreVerbs(LeasedStore):
    """The parts of the contract that the stores have in common, above the queue."""

    def _stored(self, session_id: str) -> tuple[SessionHeader, StoredEvents]:
        """Return a session as it is stored: its events encoded, ``DAMAGED`` ones among them."""
        raise NotImplementedError

    def _family(self, session_id: str) -> SessionIds:
        """Return the ids of a session and of all below it."""
        raise NotImplementedError

    def _delete(self, session_id: str, known: frozenset[str]) -> bool:
        """Remove a session and all below it; do nothing and return False unless all are known."""
        raise NotImplementedError

    def fork(self, session_id: str, *, at: int | None = None, new_id: str | None = None) -> str:
        """Copy the first events of a session into a new one; see ``SessionStore.fork``."""
        self._refuse_in_callback("fork")
        self.flush(PATIENCE)  # what was appended before this call belongs to the session
        header, events = self._stored(session_id)
        where = f"{self._name}: session {session_id!r}"
        count = fork_point(where, [event[2] for event in events], at)
        fork_id = new_id or new_session_id()
        now = time()
        fork = replace(
            header,
            id=fork_id,
            root=fork_id,
            parent=None,
            created=now,
            forked_from=session_id,
            forked_at=count,
        )
        answers: list[BaseException | None] = []
        log = Log(fork_id, next_seq=count)
        copied = events[:count]
        self._create(Create(log, fork, answers.append, events=copied, status=FORKED))
        self.flush(PATIENCE)
        if not answers:
            raise StoreError(
                f"{where}: the fork {fork_id!r} waits to be written: {self.failure or 'disk hangs'}"
            )
        if answers[0] is not None:
            raise answers[0]
        return fork_id

    def bring_in(
        self, sessions: Iterable[tuple[SessionHeader, Sequence[StoredEvent], str]]
    ) -> None:
        """Add whole sessions that another store has written, with their times and status.

        Parameters:
            sessions: header, encoded events and status of each, parents first.

        Raises:
            StoreError: one of them exists here, or cannot be written; then none is added.
        """
        self._refuse_in_callback("bring_in")
        added: dict[str, list[BaseException | None]] = {}
        try:
            for header, events, status in sessions:
                for _, _, type, data in events:
                    self._check_event(header.id, type, data)
                log = Log(header.id, next_seq=len(events))
                answer: list[BaseException | None] = []
                self._create(Create(log, header, answer.append, events=events, status=status))
                added[header.id] = answer
            self.flush(PATIENCE)
            for answer in added.values():
                if not answer:
                    problem = self.failure or "the disk hangs"
                    raise StoreError(f"{self._name}: the sessions wait to be written: {problem}")
                if answer[0] is not None:
                    raise answer[0]
        except BaseException:
            self._take_back([name for name, answer in added.items() if answer == [None]])
            raise
        for session_id in added:
            self.release(session_id)  # nobody works on them here

    def _take_back(self, added: Sequence[str]) -> None:
        """Remove what was added before something else could not be."""
        for session_id in added:
            self.release(session_id)
        for session_id in added:
            with suppress(SessionNotFound):
                self.delete(session_id)

    def delete(self, session_id: str) -> int:
        """Remove a session and all below it; see ``SessionStore.delete``."""
        self._refuse_in_callback("delete")
        self.flush(PATIENCE)
        while True:
            known = frozenset(self._family(session_id))
            if not known:
                raise SessionNotFound(f"{self._name}: no session {session_id!r}")
            with self._lock:
                self._check_open()
                self._forget_for_deletion(known)
                self._deleting |= known
            try:
                if self._delete(session_id, known):
                    return len(known)
            finally:
                with self._lock:
                    self._deleting -= known

    def _forget_for_deletion(self, known: frozenset[str]) -> None:
        """Make sure that nobody writes to these sessions here. With the lock."""
        queued = {log_of(op).id for op in (*self._group, *self._queue)}
        for name in known:
            log = self._logs.get(name)
            if log is None:
                continue
            if name in queued or (log.refused is None and log.status == ACTIVE):
                raise StoreError(
                    f"{self._name}: session {name!r} is live in this system; end its agent first"
                )
        for name in known:
            self._logs.pop(name, None)
        self._forgotten += 1

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Have a listener told of every event; see ``SessionStore.observe``."""
        with self._lock:
            self._check_open()
            entry = self._observers.add(listener)

        def remove() -> None:
            with self._lock:
                self._observers.remove(entry)

        return remove
