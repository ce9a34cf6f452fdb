"""Writes a group of operations as rows, many to a statement."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from dsh_actors.sessions.blobs import LARGE
from dsh_actors.sessions.damage import event_checksum, row_checksum, seed_of
from dsh_actors.sessions.events import ACTIVE
from dsh_actors.sessions.ops import Create, Log, Release, SetStatus

if TYPE_CHECKING:
    import sqlite3

    from dsh_actors.sessions.blobs import Blobs
    from dsh_actors.sessions.lease import Leases
    from dsh_actors.sessions.ops import Ops

__all__ = ["Heads", "write_group"]

Heads: TypeAlias = dict[Log, list[Any]]

_SESSIONS = (
    "INSERT INTO sessions (key, id, agent_id, system_id, root, parent, depth, behaviour, created,"
    " policy, options, format, forked_from, forked_at, checksum) VALUES "
)
_EVENTS = "INSERT INTO events (session, seq, time, type, data, checksum) VALUES "
_HEADS = "REPLACE INTO heads (session, status, ended, next_seq, last_time, holder, token) VALUES "

_MAX_VARIABLES = 999
"""Values in one statement that every release of SQLite allows."""


def write_group(connection: sqlite3.Connection, group: Ops, blobs: Blobs, leases: Leases) -> Heads:
    """Write a group inside the open transaction; return the new head of each log in it.

    A head is ``[key, status, ended, next_seq, last_time, holder, token]``. The logs
    themselves change only once the transaction is committed.
    """
    heads: dict[Log, list[Any]] = {}
    sessions: list[Any] = []
    creates = [op for op in group if isinstance(op, Create)]
    first_key = _next_key(connection) if creates else 0
    for key, create in enumerate(creates, first_key):
        ended = None if create.status == ACTIVE else create.header.created
        holder = leases.key if create.status == ACTIVE else None
        heads[create.log] = [key, create.status, ended, 0, None, holder, 1]
        sessions += _session_row(key, create)
    events: list[Any] = []
    last: Log | None = None
    head: list[Any] = []
    for op in group:
        is_event = op.__class__ is tuple
        log = op[0] if is_event else op.log  # type: ignore[index, union-attr]
        if log is not last:
            if log not in heads:
                if isinstance(op, Release) and not log.token:
                    continue  # not ours
                heads[log] = _head(log, leases)
            last, head = log, heads[log]
        if is_event:
            _, seq, time, kind, data, _ = op  # type: ignore[misc]
            if len(data) > LARGE:
                data = blobs.write(log.id, data)
            checksum = crc32(data, seed_of(kind) ^ (seq & 0xFFFFFFFF))  # as event_checksum
            events += (head[0], seq, time, kind, data, checksum)
            head[3], head[4] = seq + 1, time
        elif isinstance(op, SetStatus):
            head[1] = op.status
            head[2] = None if op.status == ACTIVE else op.time
            head[5] = leases.key if op.status == ACTIVE else None
        elif isinstance(op, Release):
            head[5] = None
        elif isinstance(op, Create):
            for seq, time, kind, data in op.events:
                if len(data) > LARGE:
                    data = blobs.write(log.id, data)
                events += (head[0], seq, time, kind, data, event_checksum(seq, kind, data))
                head[3], head[4] = seq + 1, time
    leases.admit(connection, heads)
    _insert(connection, _SESSIONS, 15, sessions)
    _insert(connection, _EVENTS, 6, events)
    _insert(connection, _HEADS, 7, list(chain.from_iterable(heads.values())))
    return heads


def _head(log: Log, leases: Leases) -> list[Any]:
    return [
        log.key,
        log.status,
        log.ended,
        log.written,
        log.last_time,
        leases.key,
        log.token,
    ]


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
