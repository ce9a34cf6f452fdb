"""One simulated run: a seed is one interleaving, and reproduces exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.agents.message import FOLLOW_UP
from dsh_actors.errors import DshActorsError
from dsh_actors.supervisor.delivery import Reply
from dsh_actors.system import ActorSystem
from dsh_actors.testing.simulation.invariants import Watch
from dsh_actors.testing.simulation.runtime import SimulatedLoop, SimulatedRuntime
from dsh_actors.testing.simulation.scheduler import Scheduler, Stuck
from dsh_actors.testing.simulation.store import SimulatedStore
from dsh_actors.testing.simulation.wire import KILLED, SimulatedWorker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.handle import Agent, AgentHandle

TRACE_SHOWN = 60


class Failure(AssertionError):
    """A run in which something did not hold. Says which seed reproduces it, and its last steps."""

    def __init__(self, seed: int, problem: BaseException, trace: list[str]) -> None:
        self.seed = seed
        self.problem = problem
        self.trace = trace
        shown = "\n".join(
            f"  {number:5} {step}"
            for number, step in list(enumerate(trace, start=1))[-TRACE_SHOWN:]
        )
        super().__init__(
            f"seed {seed}, step {len(trace)}: {type(problem).__name__}: {problem}\n"
            f"the last steps of {len(trace)}:\n{shown}"
        )


class Simulation:
    """A simulated system under a seeded scheduler.

    Parameters:
        seed: determines the whole run.
        store: whether sessions are recorded, in a store whose commits are late.
        failing: how likely a commit fails, from 0 to 1.
        hanging: how likely the store hangs for good.
        workers: how many shared workers there may be.
        before: a run whose system has crashed; this one is a new system on what its store had
            committed, some time later.
        options: further parameters of :class:`~dsh_actors.ActorSystem`.
    """

    def __init__(
        self,
        seed: int,
        *,
        store: bool = False,
        failing: float = 0.0,
        hanging: float = 0.0,
        workers: int = 2,
        before: Simulation | None = None,
        **options: Any,
    ) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.store: SimulatedStore | None = None
        tokens = 0
        if before is not None:
            assert before.store is not None
            self.scheduler.now = before.scheduler.now + self.random.choice([0.0, 1.0, 3600.0])
            self.store = before.store.reopened(self.scheduler)
            tokens = before._runtime.tokens
        elif store:
            self.store = SimulatedStore(self.scheduler, failing=failing, hanging=hanging)
        self._runtime: SimulatedRuntime = SimulatedRuntime(self.scheduler, tokens)
        self._outside = SimulatedLoop("outside", self.scheduler)
        self._tasks: list[Any] = []
        self._coroutines: list[Coroutine[Any, Any, Any]] = []
        attached: Any = self.store  # as much of a store as the supervisor uses
        self.system = ActorSystem(
            workers=workers, store=attached, _runtime=self._runtime, **options
        )
        self.watch = Watch(self.system)
        self.scheduler.at_rest.append(self.watch.at_rest)

    # -- what a scenario uses ----------------------------------------------------------------------

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Run something from outside of the system, beside everything else."""
        self._coroutines.append(coroutine)

        def begin() -> None:
            loop = self._outside.loop
            assert loop is not None
            self._tasks.append(loop.create_task(coroutine, name=name))

        self._outside.call(begin)

    async def pause(self) -> None:
        """Let other things happen first; the scheduler chooses how many."""
        import asyncio

        await asyncio.sleep(0)

    def ask(self, agent: Agent, message: Any) -> Future[Any] | None:
        """Ask without waiting for a commit; None if it was refused. Must be answered in the end."""
        reply = Reply()
        if self._deliver(agent, message, reply):
            self.watch.replies.append((f"{agent.id} <- {message!r}", reply))
            return reply
        return None

    def send(self, agent: Agent, message: Any) -> bool:
        """Send without waiting for a commit; False if it was refused."""
        return self._deliver(agent, message, None)

    def _deliver(self, agent: Agent, message: Any, reply: Reply | None) -> bool:
        delivery = self.system._supervisor.delivery
        try:
            delivery.deliver(agent._target, FOLLOW_UP, codec.encode(message), reply)
        except DshActorsError:
            return False
        return True

    def drain(self) -> Future[Any]:
        """Drain the system. Must end; and nobody lives from then on."""
        drained = self.system.drain()
        self.watch.drained(None, drained)
        self.watch.replies.append(("drain", drained))
        return drained

    def drain_descendants(self, handles: list[AgentHandle]) -> Future[Any]:
        """Drain what is below some agents. Must end; and nothing lives there from then on."""
        drained = self.system.drain_descendants(handles)
        self.watch.drained([handle.agent._target for handle in handles], drained)
        self.watch.replies.append(("drain_descendants", drained))
        return drained

    def kill_a_worker(self) -> bool:
        """A worker process dies, in whatever state it is; False if there is none."""
        alive = [
            worker
            for worker in self.system._supervisor.pool.workers.values()
            if isinstance(worker, SimulatedWorker) and worker.alive
        ]
        if alive:
            self.random.choice(alive).die(KILLED)
        return bool(alive)

    # -- the run -----------------------------------------------------------------------------------

    def run(self, scenario: Callable[[Simulation], Awaitable[None]], *, most: int = 20_000) -> None:
        """Run a scenario to its end, then shut the system down, checking after every step.

        Raises:
            Failure: an invariant did not hold, something was raised, or it never ended.
        """
        try:
            self._drive(scenario, most)
        except Failure:
            raise
        except (Exception, AssertionError) as error:
            raise Failure(self.seed, error, self.scheduler.trace) from error
        finally:
            self._close()

    def crash(
        self, scenario: Callable[[Simulation], Awaitable[None]], steps: int, *, most: int = 20_000
    ) -> bool:
        """Run a scenario for so many steps; then the process of the system is gone, as it is.

        Returns:
            False if the run was through before.

        Raises:
            Failure: an invariant did not hold until then, or something was raised.
        """
        try:
            return self._drive(scenario, most, steps)
        except Failure:
            raise
        except (Exception, AssertionError) as error:
            raise Failure(self.seed, error, self.scheduler.trace) from error
        finally:
            self._close()

    def _drive(
        self,
        scenario: Callable[[Simulation], Awaitable[None]],
        most: int,
        crash_after: int | None = None,
    ) -> bool:
        receipts: list[Any] = []

        async def main() -> None:
            await scenario(self)
            receipt = await self.system.shutdown()
            receipts.append(receipt)

        self.start(main(), "scenario")
        while self.scheduler.step():
            self.watch.after_step()
            if crash_after is not None and len(self.scheduler.trace) >= crash_after:
                return True
            if len(self.scheduler.trace) > most:
                raise Stuck(f"it goes on after {most} steps")
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()
        if not receipts:
            raise Stuck(
                f"nothing can happen any more, but the system has not ended: "
                f"{list(self.system._core.tree.nodes.values())}"
            )
        if not receipts[0].survivors:
            self.watch.at_end(self.store)
        return False

    def _close(self) -> None:
        """Leave nothing behind, however the run ended."""
        for worker in list(self.system._supervisor.pool.workers.values()):
            if isinstance(worker, SimulatedWorker):
                worker.die(KILLED)
        self.system._supervisor.host.close(0)
        self.system._dispatcher.shutdown(0)
        self._outside.close(0)
        for coroutine in self._coroutines:  # those that were never begun
            coroutine.close()


def simulate(
    scenario: Callable[[Simulation], Awaitable[None]],
    seed: int,
    *,
    most: int = 20_000,
    **options: Any,
) -> Simulation:
    """Run one scenario under one seed.

    Parameters:
        scenario: an async function of a :class:`Simulation`; when it returns, the system is shut
            down.
        seed: determines every choice.
        most: how many steps a run may take.
        options: of :class:`Simulation`.

    Returns:
        The run, with its trace.

    Raises:
        Failure: with the seed and the last steps.
    """
    simulation = Simulation(seed, **options)
    simulation.run(scenario, most=most)
    return simulation
