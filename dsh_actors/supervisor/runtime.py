"""Where the threads, processes and clocks of a system come from.

One place, so that a simulation can put others in their stead: the same supervisor, agents and
links then run on one thread, under a seeded scheduler and a virtual clock.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from dsh_actors.actors.dispatcher import Dispatcher
from dsh_actors.actors.timers import Timers
from dsh_actors.agents.loop import LoopThread
from dsh_actors.workers.early import take_early
from dsh_actors.workers.pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.workers.worker import WorkerEvents


class Runtime:
    """The real one: threads, worker processes, the clocks of the machine."""

    work_per_visit = 256
    """How many posted effects the supervisor performs before others get the thread."""

    may_wait = True
    """Whether a thread of the caller may wait for something that another one does."""

    turns_per_visit = 16
    """How many turns a thread runs for one agent before the next agent's turn comes."""

    @property
    def pid(self) -> int:
        """The process that this system belongs to."""
        return os.getpid()

    def monotonic(self) -> float:
        """A clock for intervals, in seconds."""
        return time.monotonic()

    def now(self) -> float:
        """The time of day, in Unix seconds."""
        return time.time()

    def token(self) -> str:
        """A few random characters."""
        return secrets.token_hex(4)

    def session_id(self) -> str:
        """The id of a new session."""
        from dsh_actors.sessions.ids import new_session_id

        return new_session_id()

    def dispatcher(self, name: str) -> Dispatcher:
        """The threads that run mailboxes and plain turns."""
        return Dispatcher(name)

    def timers(self, name: str) -> Timers:
        """The deadlines of the system."""
        return Timers(name)

    def loop(self, name: str) -> LoopThread:
        """The event loop for async turns."""
        return LoopThread(name)

    def pool(
        self, size: int, system_id: str, events: WorkerEvents, params: dict[str, Any]
    ) -> WorkerPool:
        """The worker processes."""
        early = take_early()
        if early is not None:
            return WorkerPool(size, early.marker, events, params, early.process)
        return WorkerPool(size, f"{system_id}:{self.token()}", events, params)

    def in_background(self, name: str, function: Callable[[], None]) -> None:
        """Run something that waits, on a thread of its own."""
        threading.Thread(target=function, name=name, daemon=True).start()
