"""A child's work as a future, and its outcome as a value."""

from __future__ import annotations

import queue
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors.actors.future import Future
from dsh_actors.agents.waiting import Awaited, wait_in_turn
from dsh_actors.errors import AgentFailed, AgentLost, TurnAborted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator

    from dsh_actors.lifecycle.causes import Outcome as OutcomeKind


class Outcome(NamedTuple):
    """How a one-shot child ended, as a value: a child's failure is never raised by itself.

    ``kind`` is ``completed``, ``aborted``, ``failed`` or ``lost``. ``value`` is what its
    behaviour returned; ``error_type``, ``error`` and ``traceback`` say what went wrong.
    """

    kind: OutcomeKind
    value: Any = None
    error_type: str | None = None
    error: str | None = None
    traceback: str = ""

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.kind == "completed"

    def unwrap(self) -> Any:
        """Return the value, or raise what went wrong.

        Raises:
            AgentFailed, TurnAborted, AgentLost: by ``kind``.
        """
        if self.kind == "completed":
            return self.value
        if self.kind == "failed":
            raise AgentFailed(self.error_type or "Exception", self.error or "", self.traceback)
        if self.kind == "lost":
            raise AgentLost(self.error or "the worker process ended")
        cause = "budget" if self.error_type == "BudgetExceeded" else "parent"
        raise TurnAborted(cause, self.error or "")


class Job:
    """A one-shot child that was started by a turn.

    ``await job`` or ``job.result()`` gives its :class:`Outcome`; in a plain turn, waiting is
    interrupted by the turn's cancel signal.
    """

    __slots__ = ("_future", "behaviour", "id")

    def __init__(self, id: str, behaviour: str) -> None:
        self.id = id
        self.behaviour = behaviour
        self._future: Future[Outcome] = Awaited()

    @property
    def outcome(self) -> Outcome:
        """Its outcome, once it is done.

        Raises:
            RuntimeError: it is not done yet.
        """
        if not self._future.done():
            raise RuntimeError(f"job {self.id} is not done; await it, or call result()")
        return self._future.result(0)

    def done(self) -> bool:
        """Whether it has ended and was released."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait for its outcome.

        Parameters:
            timeout: at most so many seconds; None waits for as long as it takes.

        Raises:
            TimeoutError: the time is over; the job goes on.
            Cancelled: the waiting turn was cancelled.
        """
        return wait_in_turn(self._future, timeout)

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self._future.__await__()

    def __repr__(self) -> str:
        return f"<Job {self.id} {self._future.result(0).kind if self.done() else 'running'}>"


class as_settled:  # noqa: N801 - used like a function, as asyncio.as_completed is
    """Give jobs as they settle, by ``for`` in a plain behaviour and ``async for`` in an async one.

    Parameters:
        jobs: the jobs to wait for.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = list(jobs)

    def __iter__(self) -> Iterator[Job]:
        settled: queue.SimpleQueue[Job] = queue.SimpleQueue()
        pending = [Future[None]() for _ in self._jobs]
        slots = iter(pending)

        def arrived(job: Job) -> None:
            settled.put(job)
            next(slots).set(None)

        for job in self._jobs:
            job._future.add_done_callback(partial(_then, arrived, job))
        for each in pending:
            wait_in_turn(each, None)
            yield settled.get()

    async def __aiter__(self) -> AsyncIterator[Job]:
        import asyncio

        loop = asyncio.get_running_loop()
        settled: asyncio.Queue[Job] = asyncio.Queue()
        for job in self._jobs:
            job._future.add_done_callback(partial(_then, _call_on, loop, settled.put_nowait, job))
        for _ in self._jobs:
            yield await settled.get()


def _then(function: Callable[..., None], *args: Any) -> None:
    """Call a function as a done-callback, without the future that comes last."""
    function(*args[:-1])


def _call_on(loop: Any, function: Any, *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        # The loop is closed: nobody iterates any more.
