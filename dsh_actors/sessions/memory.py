"""A session store without a disk, for tests and for embedding where nothing need survive."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import TYPE_CHECKING

from dsh_actors.codec import decode_leniently
from dsh_actors.errors import SessionNotFound, StoreError
from dsh_actors.sessions.damage import decoded
from dsh_actors.sessions.events import ACTIVE, SessionInfo, SessionLog
from dsh_actors.sessions.holders import new_row
from dsh_actors.sessions.lease import LEASE_TTL
from dsh_actors.sessions.ops import Create, Log, Ops, RefusedError, Release, SetStatus
from dsh_actors.sessions.store import match_prefix, subtree
from dsh_actors.sessions.verbs import StoreVerbs

if TYPE_CHECKING:
    from dsh_actors.errors import Holder
    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.ops import StoredEvent
    from dsh_actors.sessions.store import SessionIds, SessionInfos, StoredEvents

__all__ = ["MemoryStore"]


class _Record:
    """A committed session. The data stays encoded: what was appended cannot change."""

    __slots__ = ("ended", "events", "header", "held", "options", "policy", "status")

    def __init__(self, op: Create) -> None:
        self.header, self.policy, self.options = op.header, op.policy, op.options
        self.status, self.held = op.status, False
        self.ended = None if op.status == ACTIVE else op.header.created
        self.events: list[StoredEvent] = list(op.events)


class MemoryStore(StoreVerbs):
    """Keeps sessions in this process's memory; confirms like any other store, on its thread.

    Parameters:
        flush_interval: the shortest time between two commits, in seconds.
        holder: the name under which it holds sessions.
    """

    def __init__(self, *, flush_interval: float = 0.0, holder: str | None = None) -> None:
        super().__init__("memory", flush_interval=flush_interval)
        self._row = new_row(holder or "another system", LEASE_TTL)
        self._records: dict[str, _Record] = {}

    def list(self, *, limit: int | None = None) -> SessionInfos:
        """Return the sessions, newest first; see ``SessionReader.list``."""
        records = [*self._committed().values()]
        records.reverse()
        records.sort(key=lambda record: record.header.created, reverse=True)
        return [_info(record) for record in records[:limit]]

    def load(self, session_id: str) -> SessionLog:
        """Return the header and all events of a session; see ``SessionReader.load``."""
        header, stored = self._stored(session_id)
        damage: list[str] = []
        events = [decoded(event, damage) for event in stored]
        return SessionLog(header, events, tuple(damage))

    def family(self, session_id: str) -> SessionInfos:
        """Return a session and all below it; see ``SessionReader.family``."""
        self._find(session_id)
        # In the order of their creation, so that parents are before their children.
        return subtree([_info(record) for record in self._committed().values()], session_id)

    def _stored(self, session_id: str) -> tuple[SessionHeader, StoredEvents]:
        record = self._find(session_id)
        policy, options = decode_leniently(record.policy), decode_leniently(record.options)
        with self._lock:
            events = list(record.events)
        return replace(record.header, policy=policy, options=options), events

    def _family(self, session_id: str) -> SessionIds:
        return [info.id for info in self.family(session_id)]

    def _delete(self, session_id: str, known: frozenset[str]) -> bool:
        with self._lock:
            infos = [_info(record) for record in self._records.values()]
            if not known.issuperset(info.id for info in subtree(infos, session_id)):
                return False
            for name in known:
                self._records.pop(name, None)
        return True

    def resolve(self, prefix: str) -> str:
        """Return the one id that begins with ``prefix``; see ``SessionReader.resolve``."""
        found = [name for name in self._committed() if name.startswith(prefix)]
        return match_prefix(self._name, prefix, found)

    def _committed(self) -> dict[str, _Record]:
        with self._lock:
            self._check_fork()
            return dict(self._records)

    def _find(self, session_id: str) -> _Record:
        record = self._committed().get(session_id)
        if record is None:
            raise SessionNotFound(
                f"memory: no session {session_id!r}; list() names those there are"
            )
        return record

    def _lookup(self, session_id: str) -> Log:
        record = self._find(session_id)
        log = Log(session_id, next_seq=len(record.events))
        log.status, log.ended = record.status, record.ended
        return log

    def _commit(self, group: Ops) -> None:
        with self._lock:
            used = {
                op.log: StoreError(f"memory: session {op.log.id!r} exists already; mint a new id")
                for op in group
                if isinstance(op, Create) and op.log.id in self._records
            }
            if used:
                raise RefusedError(used)
            for op in group:
                if isinstance(op, tuple):
                    log, seq, when, type, data, _ = op
                    record = self._records[log.id]
                    record.events.append((seq, when, type, data))
                    if not log.token and record.status == ACTIVE:
                        _hold(record, log, True)
                elif isinstance(op, SetStatus):
                    record = self._records[op.log.id]
                    record.status = op.log.status = op.status
                    record.ended = None if op.status == ACTIVE else op.time
                    _hold(record, op.log, op.status == ACTIVE)
                elif isinstance(op, Release):
                    _hold(self._records[op.log.id], op.log, False)
                else:
                    self._records[op.log.id] = record = _Record(op)
                    op.log.status = record.status
                    _hold(record, op.log, op.status == ACTIVE)

    def _acquire(self, session_ids: SessionIds) -> None:
        with self._lock:
            logs = [(name, self._logs.get(name)) for name in session_ids]
        new = [self._lookup(name) for name, log in logs if log is None]
        with self._lock:
            for log in new:
                self._logs.setdefault(log.id, log)
            for name in session_ids:
                _hold(self._records[name], self._logs[name], True)

    def holder_of(self, session_id: str) -> Holder | None:
        """Return this store, if it works on a session; see ``SessionReader.holder_of``."""
        return self._holder() if self._find(session_id).held else None

    def holders(self) -> dict[str, Holder]:
        """Return which sessions this store works on; see ``SessionReader.holders``."""
        holder = self._holder()
        return {name: holder for name, record in self._committed().items() if record.held}

    def _holder(self) -> Holder:
        return self._row._replace(heartbeat=time()).public

    def _release(self) -> None:
        """Nothing to release: what was stored can be read until the store is dropped."""


def _hold(record: _Record, log: Log, is_held: bool) -> None:
    record.held, log.token = is_held, int(is_held)


def _info(record: _Record) -> SessionInfo:
    header = record.header
    return SessionInfo(
        id=header.id,
        agent_id=header.agent_id,
        system_id=header.system_id,
        root=header.root,
        parent=header.parent,
        depth=header.depth,
        behaviour=header.behaviour,
        created=header.created,
        status=record.status,
        events=len(record.events),
        ended=record.ended,
        last_event=record.events[-1][1] if record.events else None,
    )
