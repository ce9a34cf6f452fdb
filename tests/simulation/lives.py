"""Listeners that raise or dispose, and owners and factories that end, for the storm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from dsh_actors.supervisor.listeners import CREATED, DISPOSED

if TYPE_CHECKING:
    from dsh_actors.testing.simulation import Simulation


class Veto(Exception):
    """What a listener raises."""


class Lives:
    """Everything around the creation of agents, at random.

    Parameters:
        sim: the simulated system. In half of the runs nobody listens, as usual.
    """

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._random = sim.random
        self._owners = [sim.system.owner(f"owner-{number}") for number in range(2)]
        self._factories = [sim.system.factory(f"factory-{number}") for number in range(2)]
        self._signal: dsh.AbortSignal | None = None
        for each in (*self._owners, *self._factories):
            sim.watch.lives.owns(each)
        if self._random.random() < 0.5:
            sim.watch.lives.listen()
            for event in CREATED:
                sim.system.on(event, self._interferes)
            for event in DISPOSED.values():
                sim.system.on(event, self._raises)
            sim.system.on("cancel_requested", self._raises)
            if self._random.random() < 0.5:
                sim.system.on("cancel_requested", lambda event: event.agent.cancel())

    def create(self, behaviour: str, **options: Any) -> dsh.AgentHandle | None:
        """Create an agent under whom chance wants; None if it is refused or vetoed."""
        random, owned = self._random, {}
        if random.random() < 0.4:
            owned["owner"] = random.choice(self._owners)
        if random.random() < 0.4:
            owned["factory"] = random.choice(self._factories)
        self._signal = options["signal"] = dsh.AbortSignal()
        try:
            return self._sim.system.create(behaviour, **options, **owned)
        except (dsh.DshActorsError, Veto):
            return None
        finally:
            self._signal = None

    def end_one(self) -> None:
        """An owner or a factory ends."""
        which = self._random.choice([*self._owners, *self._factories])
        self._sim.watch.replies.append((which.name, which.dispose()))

    def _interferes(self, event: dsh.LifeEvent) -> None:
        chance = self._random.random()
        if chance < 0.03:
            raise Veto(event.name)
        if chance < 0.06:
            self._sim.watch.replies.append(("stop", self._sim.system.stop(event.agent.id)))
        elif chance < 0.09:
            self.end_one()
        elif chance < 0.12 and self._signal is not None:
            self._signal.abort(Veto("the caller"))
        elif chance < 0.2:
            self._sim.ask(event.agent, 1)
        elif chance < 0.23:
            event.agent.cancel()
        elif chance < 0.25:
            self._sim.kill_a_worker()

    def _raises(self, event: dsh.LifeEvent) -> None:
        if self._random.random() < 0.2:
            raise Veto(event.name)
