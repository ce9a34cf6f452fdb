"""A scenario for agents that make calls on the record, in systems that crash and are resumed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh

if TYPE_CHECKING:
    from random import Random

    from dsh_actors.testing.simulation import Simulation

HERE = "tests.simulation.calling"
ISOLATIONS = ("inline", "pool", "own")
Label = tuple[int, int]
"""A call: the id of its message, and its place in the plan."""


class Books:
    """What was really done, which no crash of a simulated process takes back."""

    def __init__(self) -> None:
        self.made: Counter[Label] = Counter()
        self.idempotent: set[Label] = set()
        self.unknown: set[Label] = set()
        self.ended: Counter[Label] = Counter()
        self.wrong: list[Any] = []


books = Books()


async def act(message: int, place: int, seconds: float) -> int:
    """The body of a call."""
    books.made[message, place] += 1
    await asyncio.sleep(seconds)
    return place


async def payer(turn: dsh.Turn, plan: list[Any]) -> Any:
    """Play a plan of calls."""
    assert turn._message is not None
    message = turn._message.id
    for place, (kind, amount) in enumerate(plan):
        label = (message, place)
        if kind == "sleep":
            await turn.sleep(amount)
        elif kind == "checkpoint":
            await turn.checkpoint()
        else:
            idempotent = kind == "put"
            if idempotent:
                books.idempotent.add(label)
            key = f"place {place}" if place % 2 else None
            try:
                found = await turn.call(
                    kind, act, message, place, amount, key=key, idempotent=idempotent
                )
                books.ended[label] += 1
                books.wrong += [(label, found)] if found != place else []
            except dsh.OutcomeUnknown as error:
                books.unknown.add(label)
                told = [(call.key, call.call_args) for call in turn.unknown_calls]
                right = error.call_args["args"][:2] == [message, place]
                if not right or (error.key, error.call_args) not in told:
                    books.wrong.append((label, error))
    return len(plan)


def a_plan(random: Random) -> list[Any]:
    plan: list[Any] = []
    for _ in range(random.randint(1, 5)):
        kind = random.choice(["sleep", "checkpoint", "pay", "pay", "pay", "put"])
        plan.append([kind, random.choice([0, 0, 0.01, 1])])
    return plan


async def busy(sim: Simulation) -> None:
    random = sim.random
    for _ in range(random.randint(3, 10)):
        for _ in range(random.randint(0, 25)):
            await sim.pause()
        shown = [node.id for node in sim.system.tree()]
        if not shown:
            return
        try:
            agent = sim.system.agent(random.choice(shown))
        except dsh.AgentGone:
            continue
        what = random.randrange(10)
        if what == 0:
            agent.cancel()
        elif what < 3:
            sim.kill_a_worker()
        elif what == 3:
            await asyncio.sleep(1)
        else:
            sim.send(agent, a_plan(random))


async def start(sim: Simulation) -> None:
    """The first system."""
    for number in range(2):
        sim.system.create(
            f"{HERE}:payer", id=f"payer-{number}", isolation=sim.random.choice(ISOLATIONS),
            restart="transient", interrupted=sim.random.choice(["fail", "retry", "retry"]),
        )  # fmt: skip
    await busy(sim)


async def go_on(sim: Simulation) -> None:
    """A later system, on what is left."""
    assert sim.store is not None
    for id, header in [*sim.store.sessions.items()]:
        if header.parent is None:
            for reply in sim.system.resume(id).resumed.restored.values():
                sim.watch.replies.append(("restored", reply))
    await busy(sim)
