"""A session store whose commits are late, or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.errors import StoreError
from dsh_actors.testing.simulation.scheduler import Tasks

if TYPE_CHECKING:
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
        self._queue: list[tuple[str, str, bytes, OnCommit | None]] = []
        self._failing = failing
        self.hangs = scheduler.random.random() < hanging
        self.reliable = not failing and not self.hangs
        self.sessions: dict[str, SessionHeader] = {}
        self.logs: dict[str, list[tuple[str, bytes]]] = {}
        self.status: dict[str, str] = {}
        scheduler.sources.append(self)
        self._tasks = Tasks(scheduler, "store")

    def create(self, header: SessionHeader, on_commit: OnCommit | None = None) -> None:
        """Add a session."""
        self.sessions[header.id] = header
        self.logs[header.id] = []

    def append(
        self, session_id: str, type: str, data: bytes, *, on_commit: OnCommit | None = None
    ) -> int:
        """Queue an event."""
        self._queue.append((session_id, type, data, on_commit))
        return len(self.logs[session_id])

    def set_status(
        self, session_id: str, status: str, *, on_commit: OnCommit | None = None
    ) -> None:
        """Note how it ended."""
        self.status[session_id] = status

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
        for session, type, data, on_commit in group:
            error: StoreError | None = None
            if self._failing and self._scheduler.random.random() < self._failing:
                error = StoreError("the disk is gone")
            else:
                self.logs[session].append((type, data))
            if on_commit is not None:
                on_commit(error)

    def flush(self, timeout: float | None = None) -> bool:
        """Commit everything now, unless the store hangs."""
        if not self.hangs:
            self._commit(len(self._queue))
        return not self.hangs
