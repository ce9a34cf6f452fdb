"""However a part of a system ends, it ends once, and leaves the same."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.actors import live_actors
from dsh_actors.agents.actor import AgentActor
from dsh_actors.lifecycle.node import Node
from tests.watching import PATIENCE, Watch, in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

CALLERS = 32


def echo(turn: dsh.Turn, message: Any) -> Any:
    return message


@pytest.mark.behaviour(70)
@pytest.mark.parametrize("what", ["scope", "handle", "initiators"])
def test_each_of_them_has_one_end_for_all_of_its_callers(what: str) -> None:
    released: list[str] = []
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(echo, id="agent")
        scope = handle.scope
        scope.effect(lambda: lambda: released.append("effect"))
        ends: dict[str, Callable[[], Any]] = {
            "scope": scope.dispose,
            "handle": handle.dispose,
            "initiators": system.initiators.dispose,
        }
        barrier = threading.Barrier(CALLERS)

        def end(_: int) -> Any:
            barrier.wait(PATIENCE)
            return ends[what]()

        futures = in_threads(CALLERS, end)
        assert all(future is futures[0] for future in futures)
        futures[0].result(PATIENCE)
        assert ends[what]() is futures[0] or what == "handle"
    assert released == ["effect"]
    assert len(watch.of("agent/ended", "agent")) == 1


def _left(system: dsh.ActorSystem) -> dict[str, Any]:
    """What is left of agents in a system, by where."""
    core = system._core
    tables = (
        "specs", "runs", "progress", "uncommitted", "idle_waiters", "started_at", "sessions",
        "publishing", "owned",
    )  # fmt: skip
    left: dict[str, Any] = {name: len(getattr(core, name)) for name in tables}
    left["nodes"], left["roots"] = sorted(core.tree.nodes), sorted(core.tree.roots)
    left["actors"] = sum(isinstance(actor, AgentActor) for actor in live_actors())
    left["stops"] = len(system._supervisor.teardown._stops)
    left["seats"] = sum(len(w.seats) for w in system._supervisor.pool.workers.values())
    return left


@pytest.mark.behaviour(82)
def test_a_factory_and_a_drain_leave_the_same() -> None:
    ends: list[dict[str, Any]] = []
    for by in ("factory", "drain"):
        told: list[tuple[str, str]] = []
        spawned: list[dsh.Agent] = []

        def parent(turn: dsh.Turn, message: Any, spawned: list[dsh.Agent] = spawned) -> None:
            turn.scope.tool("tool", echo)
            spawned.extend(
                turn.spawn(
                    "tests.worker_behaviours:wait", None,
                    id=f"child-{isolation}", isolation=isolation,
                )
                for isolation in ("inline", "pool")
            )  # fmt: skip

        with dsh.ActorSystem(workers=1) as system:
            for event in ("agent/created", "agent/disposed", "session/disposed"):
                system.on(event, lambda life, told=told: told.append((life.name, life.agent.id)))
            factory = system.factory("loop")
            handle = factory.create(parent, id="parent")
            scope = handle.scope
            handle.agent.ask(None).result(PATIENCE)
            end = factory.dispose() if by == "factory" else system.drain()
            end.result(PATIENCE)
            with pytest.raises(dsh.ScopeInactive):
                scope.tool("another", echo)
            with pytest.raises(dsh.AgentGone):
                handle.agent.send("late")
            ends.append(
                {
                    **_left(system),
                    "told": sorted(told),
                    "scope": scope.state,
                    "tools": sorted(scope.tools),
                    "statuses": [agent.status for agent in (handle.agent, *spawned)],
                    "outcomes": sorted((e.id, e.outcome) for e in system.receipt().agents),
                    "factory": factory.agents,
                }
            )
    assert ends[0] == ends[1]
    assert ends[0]["nodes"] == []
    assert ends[0]["actors"] == 0


def test_children_that_come_and_go_leave_nothing() -> None:
    """2,000 of them, one after the other: memory, threads, descriptors, registries stay flat."""

    def parent(turn: dsh.Turn, count: int) -> None:
        for number in range(count):
            turn.run(echo, number, isolation="pool" if number % 10 == 0 else "inline").result()

    def state(system: dsh.ActorSystem) -> dict[str, Any]:
        gc.collect()
        return {
            **_left(system),
            "threads": threading.active_count(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "nodes alive": sum(isinstance(each, Node) for each in gc.get_objects()),
        }

    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(parent, id="parent").agent
        agent.ask(500).result(60)
        agent.when_idle().result(PATIENCE)
        before = state(system)
        agent.ask(1500).result(60)
        agent.when_idle().result(PATIENCE)
        after = state(system)
    assert after == before
