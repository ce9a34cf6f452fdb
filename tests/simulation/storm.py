"""A scenario that does everything at once: random trees under random cancels, stops and deaths."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from dsh_actors.supervisor.turns import Turns
from tests.simulation.lives import Lives

if TYPE_CHECKING:
    from random import Random

    from dsh_actors.testing.simulation import Simulation

HERE = "tests.simulation.storm"
ISOLATIONS = ("inline", "pool", "pool", "own")


@dsh.behaviour(settlements=True)
async def player(turn: dsh.Turn, plan: list[Any]) -> Any:
    """Play a plan: a list of [operation, ...]. Notices of children are just counted."""
    if isinstance(plan, dsh.Settlement):
        return plan.child
    result: Any = None
    jobs = []
    spawned: list[dsh.Agent] = []
    for operation, *rest in plan:
        if operation == "sleep":
            await turn.sleep(rest[0])
        elif operation == "swallow":
            try:
                await turn.sleep(rest[0])
            except asyncio.CancelledError:
                await asyncio.sleep(0)
        elif operation == "fail":
            raise ValueError("as planned")
        elif operation == "run":
            isolation, restart, below = rest
            jobs.append(turn.run(f"{HERE}:player", below, isolation=isolation, restart=restart))
        elif operation == "plain":
            jobs.append(turn.run(f"{HERE}:plain", rest[1], isolation=rest[0]))
        elif operation == "spawn" and isinstance(turn._actor.host.port, Turns):
            # From a worker it waits for the supervisor, which one thread alone cannot do.
            isolation, name, below = rest
            child = turn.spawn(f"{HERE}:{name}", below, isolation=isolation)
            spawned.append(child)
        elif operation == "ask":
            if spawned:
                try:
                    result = await spawned[rest[0] % len(spawned)].ask(rest[1])
                except dsh.DshActorsError as error:
                    result = type(error).__name__
        elif operation == "gather":
            async for job in dsh.as_settled(jobs):
                result = job.outcome.kind
            jobs = []
        elif operation == "return":
            result = rest[0]
    return result


def plain(turn: dsh.Turn, value: Any) -> Any:
    """A plain behaviour: one step."""
    turn.check()
    return value


class Stateful(dsh.Behaviour):
    """A class with hooks."""

    def on_start(self, turn: dsh.Turn) -> None:
        self.count = 0

    def on_message(self, turn: dsh.Turn, message: Any) -> int:
        self.count += 1
        if message == "fail":
            raise ValueError("as planned")
        return self.count

    def on_stop(self, turn: dsh.Turn) -> None:
        if self.count == 3:
            raise ValueError("three is too many")


def a_plan(random: Random, depth: int) -> list[Any]:
    """A random plan, with plans for children in it down to some depth."""
    plan: list[Any] = []
    for _ in range(random.randint(1, 4)):
        kind = random.choice(
            ["sleep", "run", "run", "plain", "gather", "swallow", "return", "spawn", "ask"]
        )
        if kind in ("sleep", "swallow"):
            plan.append([kind, random.choice([0, 0.01, 1, 30])])
        elif kind == "run" and depth > 0:
            restart = random.choice(["temporary", "transient"])
            plan.append([kind, random.choice(ISOLATIONS), restart, a_plan(random, depth - 1)])
        elif kind == "spawn" and depth > 0:
            name = random.choice(["player", "plain", "Stateful"])
            plan.append([kind, random.choice(ISOLATIONS), name, a_plan(random, depth - 1)])
            if random.random() < 0.5:  # it may have settled by then
                plan.append(["sleep", 1])
                plan.append(["ask", random.randint(0, 3), a_plan(random, 0)])
        elif kind == "ask":
            plan.append([kind, random.randint(0, 3), a_plan(random, 0)])
        elif kind == "plain":
            plan.append([kind, random.choice(ISOLATIONS), 7])
        elif kind == "gather":
            plan.append([kind])
        elif kind == "return":
            plan.append([kind, random.randint(0, 9)])
    if random.random() < 0.1:
        plan.append(["fail"])
    return plan


async def storm(sim: Simulation) -> None:
    """Agents with random plans, and users who do random things to them."""
    random = sim.random
    lives = Lives(sim)
    handles = []
    for number in range(random.randint(1, 3)):
        behaviour = random.choice(["player", "player", "Stateful"])
        restart = random.choice(["temporary", "transient", "permanent"])
        created = lives.create(
            f"{HERE}:{behaviour}", id=f"root-{number}", isolation=random.choice(ISOLATIONS),
            restart=restart,
        )  # fmt: skip
        if created is not None:
            handles.append(created)

    async def user(number: int) -> None:
        for _ in range(random.randint(1, 5)):
            for _ in range(random.randint(0, 12)):
                await sim.pause()
            act = random.randrange(15)
            if act == 14 or not handles:
                created = lives.create(
                    f"{HERE}:player", id=f"more-{random.randint(0, 3)}",
                    isolation=random.choice(ISOLATIONS), restart="transient",
                )  # fmt: skip
                if created is not None:
                    handles.append(created)
                continue
            handle = random.choice(handles)
            if act < 5:
                sim.ask(handle.agent, a_plan(random, 2))
            elif act == 5:
                handle.agent.cancel(tree=random.random() < 0.5)
            elif act == 6:
                handle.agent.interrupt()
            elif act == 7:
                sim.watch.replies.append(("when_idle", handle.agent.when_idle()))
            elif act == 8:
                sim.kill_a_worker()
            elif act == 9 and random.random() < 0.3:
                sim.watch.replies.append(("dispose", handle.dispose()))
            elif act == 10:
                sim.send(handle.agent, a_plan(random, 1))
            elif act == 11 and random.random() < 0.3:
                lives.end_one()
            elif act == 12 and random.random() < 0.5:
                drained = random.sample(handles, random.randint(1, len(handles)))
                for each in drained:
                    sim.ask(each.agent, [*a_plan(random, 1), ["run", "inline", "temporary", []]])
                for _ in range(random.randint(5, 40)):
                    await sim.pause()
                sim.drain_descendants(drained)
            elif act == 13 and random.random() < 0.1:
                sim.drain()

    for number in range(random.randint(1, 3)):
        sim.start(user(number), f"user-{number}")
    for _ in range(random.randint(0, 60)):
        await sim.pause()
    if random.random() < 0.3:
        await asyncio.sleep(random.choice([0.1, 5, 60]))
