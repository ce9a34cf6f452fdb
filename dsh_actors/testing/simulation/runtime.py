"""Threads, timers and event loops in terms of the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from dsh_actors.actors.dispatcher import Dispatcher
from dsh_actors.actors.registry import live_actors
from dsh_actors.actors.timers import Timer, Timers
from dsh_actors.agents.loop import LoopThread
from dsh_actors.supervisor.runtime import Runtime
from dsh_actors.testing.simulation.scheduler import Tasks
from dsh_actors.testing.simulation.wire import SimulatedPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.worker import Runnable
    from dsh_actors.testing.simulation.scheduler import Scheduler
    from dsh_actors.workers.pool import WorkerPool
    from dsh_actors.workers.worker import WorkerEvents


SUPERVISOR_PID = 1


class SimulatedDispatcher(Dispatcher):
    """Ready actors, served in an order that the scheduler chooses."""

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        super().__init__(name)
        self._waiting: list[Runnable] = []
        self._scheduler = scheduler
        scheduler.sources.append(self)

    def submit(self, actor: Runnable) -> None:
        """Have an actor served, at some step."""
        self._waiting.append(actor)

    def enter_blocking(self) -> None:
        """Nothing else would run meanwhile."""

    def exit_blocking(self) -> None:
        """See :meth:`enter_blocking`."""

    def ready(self) -> int:
        """How many actors are runnable."""
        return len(self._waiting)

    def step(self, index: int) -> str:
        """Serve one."""
        actor = self._waiting.pop(index)
        name = str(getattr(actor, "name", type(actor).__name__))
        if actor.serve():
            self._waiting.append(actor)
        return f"{self.name} serves {name}"

    def drop(self) -> None:
        """The process is gone, and with it everything that would have run here."""
        self._scheduler.sources.remove(self)
        self.closed = True
        for actor in live_actors():
            if actor.dispatcher is self:
                actor.retire()
        for waiting in self._waiting:  # those end in the visit that they wait for
            waiting.serve()
        self._waiting.clear()

    def shutdown(self, timeout: float | None = None) -> bool:
        """End the actors that are left."""
        if not self.closed:
            self.drop()
        return True


class SimulatedTimers(Timers):
    """Deadlines on the virtual clock."""

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        super().__init__(name)
        self._scheduler = scheduler

    def after(self, seconds: float, call: Callable[..., None], *args: Any) -> Timer:
        """Call when the virtual clock has moved so far."""
        timer = Timer(call, args)

        def fire() -> str | None:
            if self._closed or timer._call is None:
                return None
            name = getattr(args[0], "__name__", "") if args else ""
            timer._fire()
            return f"deadline: {name or getattr(call, '__name__', 'call')}"

        self._scheduler.at(seconds, fire)
        return timer


# Untyped, since it reaches into what asyncio keeps to itself.
_BaseEventLoop: Any = asyncio.BaseEventLoop


class _EventLoop(_BaseEventLoop):  # type: ignore[misc]
    """An asyncio loop that runs one handle when it is told to, in whatever order."""

    _ready: deque[asyncio.Handle]  # of the base class

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def time(self) -> float:
        return self._scheduler.now

    def _write_to_self(self) -> None:
        pass

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)

        def fire() -> str | None:
            if handle.cancelled() or self.is_closed():
                return None
            self._ready.append(handle)
            return "a sleep is over"

        self._scheduler.at(max(0.0, delay), fire)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def run_one(self, index: int) -> str:
        ready = self._ready
        handle: Any = ready[index]
        del ready[index]
        if handle.cancelled():
            return "a cancelled call"
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)
        owner = getattr(handle._callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            return f"a step of {owner.get_name()}"
        return str(getattr(handle._callback, "__name__", "a call"))


class SimulatedLoop(LoopThread):
    """The event loop of one simulated process."""

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        super().__init__(name)
        self._scheduler = scheduler
        self._events = _EventLoop(scheduler)
        self._events.set_exception_handler(_raise)
        self._loop = self._events
        self._pending: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        scheduler.sources.append(self)

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """Call on the loop, in the order of the calls."""
        self._pending.append((function, args))
        with contextlib.suppress(RuntimeError):  # its process has ended
            self._events.call_soon(self._run_next)

    def _run_next(self) -> None:
        function, args = self._pending.popleft()
        function(*args)

    def ready(self) -> int:
        """How many callbacks are due."""
        return len(self._events._ready)

    def step(self, index: int) -> str:
        """Run one."""
        return f"{self._name}: {self._events.run_one(index)}"

    def close(self, timeout: float) -> bool:
        """End it, with whatever still runs there."""
        loop = self._events
        if loop.is_closed():
            return True
        if self in self._scheduler.sources:
            self._scheduler.sources.remove(self)
        loop.set_exception_handler(lambda loop, context: None)  # nobody looks at what is left
        for task in asyncio.all_tasks(loop):
            vars_of_task: Any = task
            vars_of_task._log_destroy_pending = False
            vars_of_task.get_coro().close()
        loop._ready.clear()
        loop.close()
        return True


def _raise(loop: Any, context: dict[str, Any]) -> None:
    raise AssertionError(f"an error in the event loop: {context}") from context.get("exception")


class SimulatedRuntime(Runtime):
    """Everything on one thread, in an order that the scheduler chooses."""

    work_per_visit = 1
    turns_per_visit = 1
    may_wait = False

    def __init__(self, scheduler: Scheduler, tokens: int = 0) -> None:
        self.scheduler = scheduler
        self.background = Tasks(scheduler, "background")
        self.pool_made: SimulatedPool | None = None
        self.tokens = tokens
        """How many were given."""

    @property
    def pid(self) -> int:
        """The same in every run."""
        return SUPERVISOR_PID

    def monotonic(self) -> float:
        """The virtual clock."""
        return self.scheduler.now

    def now(self) -> float:
        """The virtual clock."""
        return self.scheduler.now

    def token(self) -> str:
        """The same in every run."""
        self.tokens += 1
        return f"{self.tokens:04x}"

    def session_id(self) -> str:
        """The same in every run."""
        return f"s-{self.token()}"

    def dispatcher(self, name: str) -> SimulatedDispatcher:
        """See :class:`SimulatedDispatcher`."""
        return SimulatedDispatcher("supervisor", self.scheduler)

    def timers(self, name: str) -> SimulatedTimers:
        """See :class:`SimulatedTimers`."""
        return SimulatedTimers(name, self.scheduler)

    def loop(self, name: str) -> SimulatedLoop:
        """See :class:`SimulatedLoop`."""
        return SimulatedLoop("loop", self.scheduler)

    def pool(
        self, size: int, system_id: str, events: WorkerEvents, params: dict[str, Any]
    ) -> WorkerPool:
        """See :class:`SimulatedPool`."""
        self.pool_made = SimulatedPool(size, system_id, events, params, self)
        return self.pool_made

    def in_background(self, name: str, function: Callable[[], None]) -> None:
        """At some later step."""
        self.background.add(name, function)
