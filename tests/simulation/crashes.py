"""A scenario for systems that crash at any moment and are resumed, again and again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.actors.future import Future
from dsh_actors.agents.message import FOLLOW_UP, INJECT, STEER
from dsh_actors.errors import DshActorsError
from dsh_actors.supervisor.turns import Turns

if TYPE_CHECKING:
    from random import Random

    from dsh_actors.testing.simulation import Simulation

HERE = "tests.simulation.crashes"
ISOLATIONS = ("inline", "inline", "pool", "own")


@dsh.behaviour(settlements=True)
async def worker(turn: dsh.Turn, plan: Any) -> Any:
    """Play a plan; notices of children are taken as they come."""
    if isinstance(plan, dsh.Settlement):
        return plan.child
    jobs = []
    for operation, *rest in plan:
        if operation == "sleep":
            await turn.sleep(rest[0])
        elif operation == "fail":
            raise ValueError("as planned")
        elif operation == "run":
            jobs.append(turn.run(f"{HERE}:worker", rest[1], isolation=rest[0]))
        elif operation == "gather":
            async for job in dsh.as_settled(jobs):
                assert job.outcome.kind
            jobs = []
        elif operation == "spend":
            turn.spend(tokens=rest[0])
        elif isinstance(turn._actor.host.port, Turns):
            # From a worker it waits for the supervisor, which one thread alone cannot do.
            if operation == "spawn":
                isolation, name, id, first = rest
                with contextlib.suppress(dsh.DuplicateId):
                    turn.spawn(f"{HERE}:{name}", first, isolation=isolation, id=id)
            elif operation == "child":
                with contextlib.suppress(DshActorsError):
                    turn.child(rest[0]).send(rest[1])
    return len(plan)


class Adder(dsh.Behaviour):
    """Keeps a sum over its lives, and notices if something of it was lost or came twice."""

    def __init__(self) -> None:
        self.sum = 0

    def replay(self, event: dsh.Remembered) -> None:
        before, self.sum = self.sum, event.data[1]
        assert event.data[0] == before, f"{before} was remembered as {event.data[0]}"

    def on_message(self, turn: dsh.Turn, message: Any) -> int:
        after = self.sum + 1
        turn.remember("added", [self.sum, after])
        self.sum = after
        return after


def a_plan(random: Random, depth: int) -> list[Any]:
    plan: list[Any] = []
    for _ in range(random.randint(0, 4)):
        kind = random.choice(["sleep", "run", "gather", "spawn", "spawn", "child", "spend"])
        if kind == "sleep":
            plan.append([kind, random.choice([0, 0.01, 1, 30])])
        elif kind == "run" and depth:
            plan.append([kind, random.choice(ISOLATIONS), a_plan(random, depth - 1)])
        elif kind == "gather":
            plan.append([kind])
        elif kind == "spend":
            plan.append([kind, random.randint(0, 5)])
        elif kind == "spawn" and depth:
            id = f"child-{random.randint(0, 4)}"
            name = random.choice(["worker", "worker", "Adder"])
            plan.append([kind, random.choice(ISOLATIONS), name, id, a_plan(random, depth - 1)])
        elif kind == "child":
            plan.append([kind, f"child-{random.randint(0, 4)}", a_plan(random, 0)])
    if random.random() < 0.1:
        plan.append(["fail"])
    return plan


class Ledger:
    """What the user was told of: the prompts that were acknowledged, by session and id."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, int]] = []
        self.resumed = 0
        self.restored = 0
        self.slept = 0

    def send(self, sim: Simulation, agent: dsh.Agent, message: Any) -> None:
        """Deliver, and note the acknowledgement once it comes."""
        delivery = sim.system._supervisor.delivery
        session = agent.session_id
        assert session is not None
        kind: Any = sim.random.choice([FOLLOW_UP, FOLLOW_UP, FOLLOW_UP, STEER, INJECT])
        committed: Future[None] = Future()
        try:
            id = delivery.deliver(
                agent._target, kind, codec.encode(message), None, committed=committed
            )
        except DshActorsError:
            return

        def acknowledged(future: Future[None]) -> None:
            if future.exception(0) is None:
                self.acknowledged.append((session, id))

        committed.add_done_callback(acknowledged)


async def busy(sim: Simulation, ledger: Ledger) -> None:
    """Users do random things to the agents that there are."""
    random = sim.random

    async def user(number: int) -> None:
        for _ in range(random.randint(2, 8)):
            for _ in range(random.randint(0, 12)):
                await sim.pause()
            shown = [node.id for root in sim.system.tree() for node in (root, *root.children)]
            if not shown:
                continue
            try:
                agent = sim.system.agent(random.choice(shown))
            except dsh.AgentGone:
                continue
            act = random.randrange(12)
            if act < 7:
                ledger.send(sim, agent, a_plan(random, 2))
            elif act == 7:
                agent.cancel(tree=random.random() < 0.5)
            elif act == 8:
                agent.interrupt()
            elif act == 9:
                sim.kill_a_worker()
            elif act == 10 and random.random() < 0.3:
                with contextlib.suppress(dsh.AgentGone):
                    sim.watch.replies.append(("stop", sim.system.stop(agent.id)))
            else:
                await asyncio.sleep(random.choice([0, 0.1, 5]))

    for number in range(random.randint(1, 3)):
        sim.start(user(number), f"user-{number}")
    for _ in range(random.randint(0, 200)):
        await sim.pause()
    if random.random() < 0.3:
        await asyncio.sleep(random.choice([0.1, 5, 60]))


async def start(sim: Simulation, ledger: Ledger) -> None:
    """The first system."""
    random = sim.random
    for number in range(random.randint(1, 2)):
        budget = dsh.Budget(tokens=1000, turns=500, children=300)
        sim.system.create(
            f"{HERE}:{random.choice(['worker', 'worker', 'Adder'])}", id=f"root-{number}",
            isolation=random.choice(ISOLATIONS),
            restart=random.choice(["temporary", "transient", "permanent"]),
            interrupted=random.choice([None, "fail", "retry"]),
            budget=budget if random.random() < 0.5 else None,
        )  # fmt: skip
    await busy(sim, ledger)


async def go_on(sim: Simulation, ledger: Ledger) -> None:
    """A later system, on what is left."""
    store = sim.store
    assert store is not None
    if sim.random.random() < 0.4:
        sim.watch.lives.listen()
    for id, header in list(store.sessions.items()):
        if header.parent is None:
            handle = sim.system.resume(id)
            report = handle.resumed
            ledger.resumed += 1
            ledger.restored += len(report.restored)
            ledger.slept += len(report.sleeping)
            for message, reply in report.restored.items():
                sim.watch.replies.append((f"restored {message} of {id}", reply))
    await busy(sim, ledger)
