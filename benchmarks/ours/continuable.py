"""Continuable children, inline, with their sessions in the real store."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from benchmarks import meter
from dsh_actors.sessions import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 120.0
FAN_OUT = 10


class Stays(dsh.Behaviour):
    """A child that stays live, since its state could not be brought back; spawns what it is told.

    The message is ``[how many children, how many levels below]``.
    """

    def on_message(self, turn: dsh.Turn, message: list[int]) -> None:
        """Spawn."""
        count, levels = message
        if levels:
            for _ in range(count):
                turn.spawn(Stays, [FAN_OUT, levels - 1])


def settles(turn: dsh.Turn, message: Any) -> Any:
    """A child that settles after its first turn."""
    return message


def spawns(turn: dsh.Turn, count: int) -> None:
    """Spawn children that settle."""
    for number in range(count):
        turn.spawn(settles, number)


@contextmanager
def _system() -> Iterator[dsh.ActorSystem]:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(os.path.join(folder, "sessions.db"))
        with dsh.ActorSystem(store=store, inbox_limit=1 << 30) as system:
            yield system
        store.close()


def _until_quiet(system: dsh.ActorSystem, agents: int) -> None:
    """Wait until so many live and all of them have had their first turn."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        ids = list(system._core.tree.nodes)
        if len(ids) == agents:
            for id in ids:
                system.agent(id).when_idle().result(TIMEOUT)
            return
        time.sleep(0.005)
    raise TimeoutError(f"{len(system._core.tree.nodes)} live agents, not {agents}")


def _stop(root: dsh.AgentHandle, agents: int) -> dict[str, float]:
    start = time.perf_counter()
    stopped = root.dispose()
    marked = time.perf_counter() - start
    receipt = stopped.result(TIMEOUT)
    disposed = time.perf_counter() - start
    assert len(receipt.agents) == agents
    return {
        "marked_ms": marked * 1e3,
        "disposed_ms": disposed * 1e3,
        "disposed_us_each": disposed / agents * 1e6,
    }


def flat(n: int) -> dict[str, float]:
    """Spawn *n* children with a first message each, until it is accepted; then stop all."""
    meter.relax_collector()
    with _system() as system:
        root = system.create(Stays)
        before = meter.resident()
        start = time.perf_counter()
        root.agent.ask([n, 1]).result(TIMEOUT)
        accepted = time.perf_counter() - start
        _until_quiet(system, n + 1)
        each = (meter.resident() - before) / n
        return {"rate": n / accepted, "kib": each / 1024, **_stop(root, n + 1)}


def tree(n: int) -> dict[str, float]:
    """Stop a tree of depth *n* and fan-out 10, each agent with its final flush."""
    meter.relax_collector()
    agents = sum(FAN_OUT**level for level in range(n + 1))
    with _system() as system:
        root = system.create(Stays)
        root.agent.ask([FAN_OUT, n]).result(TIMEOUT)
        _until_quiet(system, agents)
        return _stop(root, agents)


def settled(n: int) -> dict[str, float]:
    """What *n* children leave behind once they have settled, beside what the first ones did."""
    with _system() as system:
        root = system.create(spawns)
        for warm_up in (n, n):
            root.agent.ask(warm_up).result(TIMEOUT)
            _until_quiet(system, 1)
        before = meter.resident()
        root.agent.ask(n).result(TIMEOUT)
        _until_quiet(system, 1)
        return {"kib": max(0.0, (meter.resident() - before) / n / 1024)}
