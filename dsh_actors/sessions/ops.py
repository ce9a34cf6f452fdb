"""What is queued for a store: sessions to add, events, and changes of status."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeAlias

from dsh_actors.codec import encode
from dsh_actors.errors import StoreError
from dsh_actors.sessions.events import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.store import OnCommit

__all__ = [
    "Create",
    "EventOp",
    "Log",
    "Op",
    "Ops",
    "RefusedError",
    "Release",
    "SetStatus",
    "StoreBusyError",
    "StoreDamagedError",
    "StoredEvent",
    "log_of",
    "refusal",
]


class StoreBusyError(StoreError):
    """Another process holds the store; the same write may succeed in a moment."""


class StoreDamagedError(StoreError):
    """The store's file is damaged. Opened for writing by one store alone, it is salvaged."""


class RefusedError(Exception):
    """Some sessions of a group can never be written by this store; the others can."""

    def __init__(self, errors: dict[Log, StoreError]) -> None:
        super().__init__(f"{len(errors)} sessions refused")
        self.errors = errors


class Log:
    """What a store remembers about a session that it writes."""

    __slots__ = (
        "ended",
        "id",
        "key",
        "last_time",
        "next_seq",
        "refused",
        "status",
        "token",
        "written",
    )

    def __init__(self, session_id: str, *, key: int | None = None, next_seq: int = 0) -> None:
        self.id = session_id
        # Under the store's lock.
        self.next_seq = next_seq
        self.refused: StoreError | None = None
        # Of the writer thread alone: what is committed.
        self.key = key
        self.written = next_seq
        self.status = ACTIVE
        self.ended: float | None = None
        self.last_time: float | None = None
        self.token = 0  # of the lease; 0 without one


class Create:
    """A session to add.

    Parameters:
        events: what it begins with: seq, time, type and encoded data of each. They are committed
            together with it, and listeners are not told of them.
        status: the one that it begins with.
    """

    __slots__ = ("events", "header", "log", "on_commit", "options", "policy", "status")

    def __init__(
        self,
        log: Log,
        header: SessionHeader,
        on_commit: OnCommit | None,
        *,
        events: Sequence[StoredEvent] = (),
        status: str = ACTIVE,
    ) -> None:
        self.log, self.header, self.on_commit = log, header, on_commit
        self.policy = encode(header.policy)
        self.options = encode(header.options)
        self.events, self.status = events, status


class SetStatus:
    """A status to record."""

    __slots__ = ("log", "on_commit", "status", "time")

    def __init__(self, log: Log, status: str, now: float, on_commit: OnCommit | None) -> None:
        self.log, self.status, self.time, self.on_commit = log, status, now, on_commit


class Release:
    """A lease to give back."""

    __slots__ = ("log", "on_commit")

    def __init__(self, log: Log, on_commit: OnCommit | None) -> None:
        self.log, self.on_commit = log, on_commit


StoredEvent: TypeAlias = tuple[int, float, str, bytes]
"""Number, time, type and encoded data of an event."""

# An event is a bare tuple: it is made once per append, and nothing is cheaper.
EventOp: TypeAlias = "tuple[Log, int, float, str, bytes, OnCommit | None]"
Op: TypeAlias = "EventOp | Create | SetStatus | Release"
Ops: TypeAlias = list[Op]


def log_of(op: Op) -> Log:
    """Return the session that an operation belongs to."""
    return op[0] if isinstance(op, tuple) else op.log


def refusal(error: StoreError) -> StoreError:
    """Return a fresh error that says the same, to be raised once more."""
    return copy(error)
