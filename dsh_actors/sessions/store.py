"""The contract that every session store fulfils."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from dsh_actors.errors import SessionNotFound, StoreError
from dsh_actors.sessions.events import Event, SessionHeader, SessionInfo, SessionLog
from dsh_actors.sessions.ops import StoredEvent

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from dsh_actors.errors import Holder

__all__ = ["Listener", "OnCommit", "SessionReader", "SessionStore", "match_prefix", "subtree"]

OnCommit: TypeAlias = Callable[[BaseException | None], None]
"""Called with None once a write is durable, or with the error if it never will be."""

Listener: TypeAlias = Callable[[str, Event], None]
"""Told of each event after its commit, with the id of its session."""

SessionInfos: TypeAlias = list[SessionInfo]
StoredEvents: TypeAlias = list[StoredEvent]
SessionIds: TypeAlias = list[str]


class SessionReader(Protocol):
    """What can be read. Only committed data is seen."""

    def list(self, *, limit: int | None = None) -> SessionInfos:
        """Return the sessions, newest first, at most ``limit`` of them.

        A damaged session breaks nothing; its ``SessionInfo`` says that it is.

        Raises:
            StoreError: the store cannot be read.
        """

    def load(self, session_id: str) -> SessionLog:
        """Return the header and all events of one session, in order, and what is damaged.

        A dataclass that is not registered in this process is returned as the dict of its fields.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the store cannot be read, or the header of the session is damaged.
        """

    def family(self, session_id: str) -> SessionInfos:
        """Return a session and all below it, parents before their children.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the store cannot be read.
        """

    def resolve(self, prefix: str) -> str:
        """Return the id of the one session whose id is ``prefix`` or begins with it.

        Raises:
            SessionNotFound: no id begins so.
            StoreError: several ids begin so.
        """

    def holder_of(self, session_id: str) -> Holder | None:
        """Return who may write to a session, or None if it is free or its holder is dead.

        One that is there but gives no sign of life is returned; its ``heartbeat`` tells.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the store cannot be read.
        """

    def holders(self) -> dict[str, Holder]:
        """Return the same for all sessions that somebody holds, by their ids.

        Raises:
            StoreError: the store cannot be read.
        """

    def close(self, timeout: float | None = 10.0) -> bool:
        """Release what the reader holds. Idempotent."""


@runtime_checkable
class SessionStore(SessionReader, Protocol):
    """A place for sessions: appends are queued, committed in groups and then confirmed.

    ``create``, ``append`` and ``set_status`` may be called from any thread and do not wait. They
    are committed in the order of the calls, and their ``on_commit`` callbacks run in that order
    too, one at a time, on a thread of the store. A callback must be short. It may append, which
    is committed with a later group, but it must not flush or close. An exception out of it is
    logged and stops nothing.
    """

    def create(self, header: SessionHeader, on_commit: OnCommit | None = None) -> None:
        """Add a session with the status ``active`` and no events.

        Raises:
            MessageError: the header's policy or options cannot be stored.
            StoreError: this store has a live session with that id, or is closed. An id that an
                earlier system used is found at the commit: ``on_commit`` gets the error, and so
                does everything appended to that session.
        """

    def append(
        self, session_id: str, type: str, data: bytes, *, on_commit: OnCommit | None = None
    ) -> int:
        """Add an event and return its number in the session.

        For a session that this store did not create and has not yet appended to, its last number
        is read first; only that first append waits for the disk.

        Parameters:
            session_id: the session.
            type: what happened, e.g. ``turn/start``.
            data: more about it, already encoded with ``dsh_actors.codec.encode``.
            on_commit: called once the event is durable, or never will be.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the event cannot be stored; the store is closed; too much is waiting while
                it cannot be written; or called by a listener that is told of this session.
        """

    def set_status(
        self, session_id: str, status: str, *, on_commit: OnCommit | None = None
    ) -> None:
        """Record how a session's agent ended, or that it is ``active`` again.

        The end also lets the store forget what it keeps in memory about the session.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the store is closed.
        """

    def acquire(self, session_ids: Sequence[str]) -> None:
        """Take sessions for this store, all of them or none, so that nobody else can write to them.

        What a dead process held is taken over. What a living one holds is not, unless it has given
        no sign of life for as long as its store's ``lease_ttl``; then whatever it writes after it
        has woken up is refused. Those which this store holds already stay as they are. ``create``
        takes what it creates, and the first append to a session takes it, too.

        Raises:
            SessionHeld: a living process works on one of them.
            SessionNotFound: one of them does not exist.
            StoreError: it cannot be written; or called from an ``on_commit`` callback.
        """

    def release(self, session_id: str, *, on_commit: OnCommit | None = None) -> None:
        """Give a session back, after what was appended to it. One that is not held is no error.

        ``set_status`` does the same with every status but ``active``, and ``close`` for all.

        Raises:
            StoreError: the store is closed.
        """

    def fork(self, session_id: str, *, at: int | None = None, new_id: str | None = None) -> str:
        """Copy the first events of a session into a new one, and wait until that is durable.

        The new session is a root of the status ``forked``, and its header says where it came
        from. Only what is committed is copied.

        Parameters:
            session_id: the session to copy from; it does not change.
            at: how many events to copy; None for all of them.
            new_id: the id of the new session; None mints one.

        Returns:
            The id of the new session.

        Raises:
            SessionNotFound: there is no such session.
            StoreError: the events end inside a turn that is open, or some of them are damaged (the
                message names where a fork is possible); or it cannot be written.
        """

    def delete(self, session_id: str) -> int:
        """Remove a session and all below it, for good; return how many these were.

        Raises:
            SessionNotFound: there is no such session.
            SessionHeld: another process works on one of them.
            StoreError: one of them is live in this store, or it cannot be written.
        """

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Have ``listener(session_id, event)`` called for each event appended here.

        It is called after the commit, in commit order, on a thread of the store, and must be
        short. An exception out of it is logged: it undoes nothing, and the other listeners are
        called. It must not flush or close, nor append to the session of that event.

        Returns:
            A function that removes the listener.
        """

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything accepted so far is durable.

        Parameters:
            timeout: seconds to wait at most; None waits as long as it takes.

        Returns:
            True if it is durable; False if the time is over or the attempt to write failed. What
            was not written is kept and tried again.

        Raises:
            StoreError: called from an ``on_commit`` callback, which could never be answered.
        """

    def close(self, timeout: float | None = 10.0) -> bool:
        """Write what is queued, confirm it, and release the store. Idempotent.

        Parameters:
            timeout: seconds to wait at most; None waits as long as it takes.

        Returns:
            True if everything was written. Otherwise the callbacks of what was not get the error.
        """

    def __enter__(self) -> Self:
        """Return the store."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store."""


def match_prefix(store: str, prefix: str, found: list[str]) -> str:
    """Choose the one id that a prefix means.

    Parameters:
        store: what to call the store in an error.
        prefix: what the user typed.
        found: the ids that begin with it; it is enough to give the first few.

    Raises:
        SessionNotFound: there is none.
        StoreError: there are several, and none of them is ``prefix`` itself.
    """
    if prefix in found:
        return prefix
    if not found:
        raise SessionNotFound(
            f"{store}: no session {prefix!r}; 'dsh-actors sessions list' shows those there are"
        )
    if len(found) > 1:
        names = ", ".join(sorted(found)[:3])
        raise StoreError(f"{store}: {prefix!r} could be {names}; type more of the id")
    return found[0]


def subtree(infos: Iterable[SessionInfo], session_id: str) -> SessionInfos:
    """Return a session and all below it, parents first.

    Parameters:
        infos: the sessions to look in, parents before their children.
        session_id: the session at the top.
    """
    below: set[str] = {session_id}
    found: SessionInfos = []
    for info in infos:
        if info.id == session_id or (info.parent is not None and info.parent in below):
            below.add(info.id)
            found.append(info)
    return found
