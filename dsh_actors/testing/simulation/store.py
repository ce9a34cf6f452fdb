"""A session store whose commits are late, or fail, and that survives the crash of its system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.codec import decode
from dsh_actors.errors import SessionNotFound, StoreError
from dsh_actors.sessions.events import ACTIVE, Event, SessionInfo, SessionLog
from dsh_actors.sessions.store import subtree
from dsh_actors.testing.simulation.scheduler import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.store import OnCommit
    from dsh_actors.testing.simulation.scheduler import Scheduler


class SimulatedStore:
    """What the supervisor needs of a store: appends that are committed in order, at later steps.

    Parameters:
        scheduler: chooses when a group is committed.
        failing: how likely it is that a commit fails for good, from 0 to 1.
        hanging: how likely it is that the store commits nothing any more.
    """

    def __init__(self, scheduler: Scheduler, *, failing: float, hanging: float) -> None:
        self._scheduler = scheduler
        self._queue: list[tuple[Callable[[], None], OnCommit | None]] = []
        self._failing = failing
        self.hangs = scheduler.random.random() < hanging
        self.reliable = not failing and not self.hangs
        # What is committed, in the order of its creation.
        self.sessions: dict[str, SessionHeader] = {}
        self.logs: dict[str, list[tuple[str, bytes]]] = {}
        self.times: dict[str, list[float]] = {}
        self.status: dict[str, str] = {}
        self._known: set[str] = set()
        scheduler.sources.append(self)
        self._tasks = Tasks(scheduler, "store")

    def reopened(self, scheduler: Scheduler) -> Self:
        """What another system finds after a crash: all that was committed, and nothing else."""
        store = type(self)(scheduler, failing=self._failing, hanging=0.0)
        store.sessions = dict(self.sessions)
        store.logs = {id: list(log) for id, log in self.logs.items()}
        store.times = {id: list(times) for id, times in self.times.items()}
        store.status = dict(self.status)
        store._known = set(self.sessions)
        return store

    # -- writing -----------------------------------------------------------------------------------

    def create(self, header: SessionHeader, on_commit: OnCommit | None = None) -> None:
        """Queue a session."""
        if header.id in self._known:
            raise StoreError(f"session {header.id!r} exists already")
        self._known.add(header.id)

        def commit() -> None:
            self.sessions[header.id] = header
            self.logs[header.id] = []
            self.times[header.id] = []
            self.status[header.id] = ACTIVE

        self._queue.append((commit, on_commit))

    def append(
        self, session_id: str, type: str, data: bytes, *, on_commit: OnCommit | None = None
    ) -> int:
        """Queue an event."""
        self._check(session_id)
        time = self._scheduler.now

        def commit() -> None:
            self.logs[session_id].append((type, data))
            self.times[session_id].append(time)

        self._queue.append((commit, on_commit))
        return len(self._queue)

    def set_status(
        self, session_id: str, status: str, *, on_commit: OnCommit | None = None
    ) -> None:
        """Queue how it ended."""
        self._check(session_id)
        self._queue.append((lambda: self.status.update({session_id: status}), on_commit))

    def acquire(self, session_ids: Sequence[str]) -> None:
        """Nobody else is there."""
        for session in session_ids:
            self._check(session)

    def release(self, session_id: str, *, on_commit: OnCommit | None = None) -> None:
        """See :meth:`acquire`."""

    def _check(self, session_id: str) -> None:
        if session_id not in self._known:
            raise SessionNotFound(f"no session {session_id!r}")

    # -- reading -----------------------------------------------------------------------------------

    def family(self, session_id: str) -> list[SessionInfo]:
        """A session and all below it, of those that are committed."""
        infos = [
            SessionInfo(
                id, header.agent_id, header.system_id, header.root, header.parent, header.depth,
                header.behaviour, header.created, self.status[id], len(self.logs[id]), None,
                self.times[id][-1] if self.times[id] else None,
            )
            for id, header in self.sessions.items()
        ]  # fmt: skip
        found = subtree(infos, session_id)
        if not found:
            raise SessionNotFound(f"no session {session_id!r}")
        return found

    def load(self, session_id: str) -> SessionLog:
        """What is committed of a session."""
        if session_id not in self.sessions:
            raise SessionNotFound(f"no session {session_id!r}")
        pairs = zip(self.logs[session_id], self.times[session_id], strict=True)
        events = [
            Event(seq, time, type, decode(data)) for seq, ((type, data), time) in enumerate(pairs)
        ]
        return SessionLog(self.sessions[session_id], events)

    # -- what happens ------------------------------------------------------------------------------

    def ready(self) -> int:
        """Whether a group can be committed."""
        return 1 if self._queue and not self.hangs else 0

    def step(self, index: int) -> str:
        """Commit a group, or fail to."""
        count = self._scheduler.random.randint(1, len(self._queue))
        self._commit(count)
        return f"store: commits {count} events"

    def _commit(self, count: int) -> None:
        group, self._queue = self._queue[:count], self._queue[count:]
        for commit, on_commit in group:
            error: StoreError | None = None
            if self._may_fail(commit) and self._scheduler.random.random() < self._failing:
                error = StoreError("the disk is gone")
            else:
                commit()
            if on_commit is not None:
                on_commit(error)

    def _may_fail(self, commit: Callable[[], None]) -> bool:
        return bool(self._failing) and commit.__qualname__.startswith("SimulatedStore.append")

    def flush(self, timeout: float | None = None) -> bool:
        """Commit everything now, unless the store hangs."""
        if not self.hangs:
            self._commit(len(self._queue))
        return not self.hangs
