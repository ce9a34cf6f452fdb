"""On whose behalf code runs: the initiator.

A turn runs on behalf of its agent, with all that it awaits. Other code can do so for the length
of one operation, and a turn can leave it for one. What is created meanwhile belongs to the
initiator, and ends with it.

Context variables carry both the initiator and the chain of runs it is nested in. They follow
``await``, asyncio tasks and the releases of a scope by themselves. A thread starts with none: to
go on behalf of the same agent there, give it ``contextvars.copy_context().run``.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pykka

from dsh_actors.agents.job import Job
from dsh_actors.agents.waiting import Awaited, current_turn
from dsh_actors.errors import InitiatorClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.handle import Agent
    from dsh_actors.agents.turn import Turn

T = TypeVar("T")

ACTIVE: Final = "active"
CLOSING: Final = "closing"
DISPOSED: Final = "disposed"


class Run:
    """One operation under way, on behalf of an agent or of nobody."""

    __slots__ = ("agent", "counted", "outer", "registry", "turn")

    def __init__(self, registry: InitiatorRegistry, agent: Agent | None) -> None:
        self.registry = registry
        self.agent = agent
        self.outer = current_run.get()
        # The turn that the boundary is in: in a turn that began within it, it has no say.
        self.turn = current_turn.get()
        self.counted = False  # guarded by the lock of the registry


current_run: ContextVar[Run | None] = ContextVar("dsh_actors_run", default=None)
"""The innermost run that this code is in, beside the turn."""


class InitiatorRegistry:
    """Who acts on behalf of whom in one system: ``system.initiators``.

    The system closes it with its shutdown, and disposes it once its agents have ended.
    """

    __slots__ = ("_disposal", "_lock", "active", "state")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._disposal: Future[None] | None = None
        self.active = 0
        """How many runs have not ended; turns are not counted."""
        self.state = ACTIVE
        """``active``, ``closing`` or ``disposed``."""

    # -- boundaries ----------------------------------------------------------------------------

    def with_initiator(self, agent: Agent, operation: Callable[[], T]) -> T:
        """Run an operation on behalf of an agent.

        Parameters:
            agent: a live agent of this system.
            operation: called at once, on this thread. If it returns a future, the run lasts
                until that settles. A coroutine is made a task of the running event loop, so
                that it runs on behalf of the agent as well.

        Returns:
            What the operation returned: the very same object, but for a coroutine its task.

        Raises:
            InitiatorClosed: the system is ending.
            BaseException: what the operation raised.
        """
        return self._run(Run(self, agent), operation)

    def without_initiator(self, operation: Callable[[], T]) -> T:
        """Run an operation on behalf of nobody: what it creates belongs to the system alone.

        Parameters, result and errors are those of :meth:`with_initiator`.
        """
        return self._run(Run(self, None), operation)

    def _run(self, run: Run, operation: Callable[[], T]) -> T:
        with self._lock:
            if self.state != ACTIVE:
                raise InitiatorClosed
            run.counted = True
            self.active += 1
        token = current_run.set(run)
        lasts = False
        try:
            result = operation()
            lasting = _awaitable_of(result)
            if lasting is not None:
                result, lasts = _follow(result, lasting, lambda _: self._ended(run)), True
            return result
        finally:
            current_run.reset(token)
            if not lasts:
                self._ended(run)

    def _ended(self, run: Run) -> None:
        with self._lock:
            future = self._discount_locked(run)
        if future is not None:
            future.try_set_result(None)

    def _discount_locked(self, run: Run) -> Future[None] | None:
        if not run.counted:
            return None
        run.counted = False
        self.active -= 1
        return self._finish_locked()

    def _finish_locked(self) -> Future[None] | None:
        if self.active or self._disposal is None:
            return None
        self.state = DISPOSED
        return self._disposal

    # -- looking -------------------------------------------------------------------------------

    def current(self) -> Agent:
        """The agent on whose behalf this code runs.

        Raises:
            InitiatorClosed: the system has ended.
            UsageError: it runs on behalf of nobody.
        """
        agent = self.optional()
        if agent is None:
            raise UsageError(
                "no agent acts here; call this in a turn, or through initiators.with_initiator()"
            )
        return agent

    def optional(self) -> Agent | None:
        """The same, or None if it runs on behalf of nobody.

        Raises:
            InitiatorClosed: the system has ended.
        """
        if self.state == DISPOSED:
            raise InitiatorClosed
        turn, run = self.place()
        if run is not None:
            return run.agent
        return turn._actor.host.port.agent_of(turn._actor) if turn is not None else None

    def place(self) -> tuple[Turn | None, Run | None]:
        """The turn and the innermost run of this system that this code is in.

        A run has the say over the turn that it is in. One that a turn began within has none.
        """
        turn, run = current_turn.get(), current_run.get()
        while run is not None and (run.turn is not turn or run.registry is not self):
            run = run.outer if run.turn is turn else None
        if turn is not None and turn._actor.host.initiators is not self:
            turn = None
        return turn, run

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse new boundaries. Runs that are under way go on, and no agent is disposed."""
        with self._lock:
            if self.state == ACTIVE:
                self.state = CLOSING

    def leave(self) -> None:
        """Do not wait for the runs that this call is in: they may wait for the end themselves."""
        finished = None
        with self._lock:
            run = current_run.get()
            while run is not None:
                if run.registry is self:
                    finished = self._discount_locked(run) or finished
                run = run.outer
        if finished is not None:
            finished.try_set_result(None)

    def dispose(self) -> Future[None]:
        """Close, and disable for good once every other run has ended, with a value or an error.

        The runs that a call of this is in are not waited for, whatever thread they went to.

        Returns:
            A future of that, the same for all callers.
        """
        self.close()
        self.leave()
        with self._lock:
            if self._disposal is None:
                self._disposal = Awaited()
            future = self._disposal
            finished = self._finish_locked()
        if finished is not None:
            finished.try_set_result(None)
        return future

    def __repr__(self) -> str:
        return f"<InitiatorRegistry {self.state}, {self.active} runs>"


def registry_here() -> InitiatorRegistry | None:
    """That of the innermost run or turn that this code is in."""
    turn, run = current_turn.get(), current_run.get()
    if run is not None and run.turn is turn:
        return run.registry
    return turn._actor.host.initiators if turn is not None else None


def current_agent() -> Agent | None:
    """The agent on whose behalf this code runs, in any process; None if there is none.

    Raises:
        InitiatorClosed: its system has ended.
    """
    registry = registry_here()
    return registry.optional() if registry is not None else None


def without_initiator(operation: Callable[[], T]) -> T:
    """Run an operation on behalf of nobody.

    Agents that it creates are roots, which do not end with the agent that this code runs for.
    See :meth:`InitiatorRegistry.without_initiator`.
    """
    registry = registry_here()
    return registry.without_initiator(operation) if registry is not None else operation()


def _awaitable_of(result: Any) -> Any:
    """What settles when the operation ends that returned this; None if it has ended."""
    if isinstance(result, Job):
        return result._future
    if isinstance(result, pykka.Future) or hasattr(result, "add_done_callback"):
        return result
    return result if hasattr(result, "__await__") else None


def _follow(result: Any, lasting: Any, ended: Callable[[object], None]) -> Any:
    if hasattr(lasting, "add_done_callback"):
        lasting.add_done_callback(ended)
        return result
    if isinstance(lasting, pykka.Future):
        _watch(lasting, ended)
        return result
    task = _task_of(lasting)
    task.add_done_callback(ended)
    return task


def _watch(future: pykka.Future[Any], ended: Callable[[object], None]) -> None:
    """Pykka's own futures tell nobody: only a thread can wait for one."""

    def wait() -> None:
        try:
            future.get()
        except BaseException:
            ended(None)  # an error is an end as well, and for whoever has the future
        else:
            ended(None)

    threading.Thread(target=wait, name="dsh-initiator", daemon=True).start()


def _task_of(awaitable: Any) -> Any:
    """A coroutine that nobody runs would never end, so it is run."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if hasattr(awaitable, "close"):
            awaitable.close()
        raise UsageError(
            "the operation returned a coroutine, and no event loop runs on this thread; call it "
            "in a coroutine, or run the coroutine in the operation"
        ) from None
    return asyncio.ensure_future(awaitable)
