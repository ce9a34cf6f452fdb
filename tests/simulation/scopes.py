"""A scenario of scopes and initiators: turns register and create while agents are stopped."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from dsh_actors.supervisor.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.scope import Scope
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.testing.simulation import Simulation

HERE = "tests.simulation.scopes"


class Ledger:
    """What was registered for which life of an agent, and what of that was taken back."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.done: dict[int, set[int]] = {}
        self.undone: dict[int, list[int]] = {}
        self.wrong: list[str] = []
        self.names = itertools.count()
        teardown: Any = sim.system._supervisor.teardown
        remove = teardown.remove

        def checked(node: Node) -> None:
            if not node.agent.lost:  # what is in a process that died goes with it
                self._check(node)
            remove(node)

        teardown.remove = checked

    def _check(self, node: Node) -> None:
        done = self.done.get(node.generation, set())
        undone = self.undone.get(node.generation, [])
        if sorted(undone) != sorted(done):
            self.wrong.append(f"{node} leaves the map with {done} registered, {undone} undone")
        if (
            node.parent is not None
            and self.sim.system._core.tree.nodes.get(node.parent.id) is not node.parent
        ):
            self.wrong.append(f"{node} leaves the map after its initiator {node.parent}")

    def effect(self, generation: int) -> Callable[[], Callable[[], None]]:
        """A set-up that notes what it did, and what was undone."""
        number = next(self.names)

        def setup() -> Callable[[], None]:
            self.done.setdefault(generation, set()).add(number)
            return lambda: self.undone.setdefault(generation, []).append(number)

        return setup

    def register(self, scope: Scope, generation: int) -> None:
        """Register a few things of all kinds."""
        random = self.sim.random
        for _ in range(random.randint(1, 3)):
            kind = random.randrange(4)
            if kind == 0:
                raw = scope.effect(self.effect(generation))
                if random.random() < 0.3:
                    raw()
            elif kind == 1:
                below = scope.plugin(lambda below: below.effect(self.effect(generation)))
                if random.random() < 0.3:
                    below.dispose()
            elif kind == 2:
                scope.tool(f"tool-{next(self.names)}", len)
            else:
                scope.listen("turn/end", _nothing)

    def create(self, turn: dsh.Turn) -> None:
        """Create an agent in a turn of this process; to whom does it belong?"""
        random, system = self.sim.random, self.sim.system

        def create() -> Any:
            return system.create(f"{HERE}:registers", isolation=random.choice(["inline", "pool"]))

        if random.random() < 0.5:
            made, expected = create(), turn.agent_id
        else:
            made, expected = dsh.without_initiator(create), None
        parent = made.agent._target.parent
        if (parent.id if parent is not None else None) != expected:
            self.wrong.append(f"{made} belongs to {parent}, not to {expected}")
        self.sim.send(made.agent, random.randint(0, 2))


ledger: Ledger


def _nothing(*args: Any) -> None: ...


async def registers(turn: dsh.Turn, depth: int) -> None:
    """Register, sleep, create: with the chances of the run."""
    random = ledger.sim.random
    inline = isinstance(turn._actor.host.port, Turns)
    generation = turn._actor.key.generation if inline else turn._actor.key
    for _ in range(random.randint(1, 3)):
        ledger.register(turn.scope, generation)
        agent = dsh.current_agent()
        if agent is None or agent.id != turn.agent_id:
            ledger.wrong.append(f"{turn} acts for {agent}")
        await turn.sleep(random.choice([0, 0.1]))
        if inline and depth and random.random() < 0.5:
            ledger.create(turn)


async def scopes(sim: Simulation) -> None:
    """Users send, cancel, stop and kill; at the end nothing is left of any scope."""
    global ledger
    ledger = mine = Ledger(sim)
    random = sim.random
    handles = [
        sim.system.create(
            f"{HERE}:registers", isolation=random.choice(["inline", "inline", "pool"])
        )
        for _ in range(random.randint(1, 3))
    ]
    for _ in range(random.randint(2, 12)):
        for _ in range(random.randint(0, 10)):
            await sim.pause()
        handle = random.choice(handles)
        act = random.randrange(8)
        if act < 4:
            sim.send(handle.agent, 2)
        elif act == 4:
            handle.agent.cancel(tree=random.random() < 0.5)
        elif act == 5:
            sim.watch.replies.append(("dispose", handle.dispose()))
        elif act == 6 and random.random() < 0.3:
            sim.kill_a_worker()
        else:
            node = handle.agent._target
            try:
                mine.register(handle.scope, node.generation)
            except (dsh.ScopeInactive, dsh.UsageError):
                continue
