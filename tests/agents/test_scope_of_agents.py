"""The scope of a live agent, wherever it lives: it ends with the agent, and before its session."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import scoped_behaviours as behaviours
import worker_behaviours
from watching import PATIENCE, Gate, Watch, in_threads

import dsh_actors as dsh

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool", "own"])


@pytest.mark.behaviour(119)
@EVERYWHERE
@pytest.mark.parametrize("behaviour", [behaviours.registers, behaviours.registers_async])
def test_what_a_turn_registers_is_released_with_its_agent(
    behaviour: Any, isolation: str, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviour, id="a", isolation=isolation)
        assert handle.agent.ask(str(path)).result(PATIENCE) == ["search"]
        assert path.read_text() == "done\n"
        receipt = handle.dispose().result(PATIENCE)
        assert path.read_text() == "done\nundone\n"  # before anybody is told that it has ended
    assert [(end.outcome, end.detail) for end in receipt.agents] == [("completed", None)]


@EVERYWHERE
def test_the_scope_ends_after_the_stop_hook(isolation: str, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.Registers, isolation=isolation)
        handle.agent.ask(str(path)).result(PATIENCE)
        assert handle.dispose().result(PATIENCE).complete
    assert path.read_text().split("\n") == ["done", "stopped with ['search']", "undone", ""]


@pytest.mark.behaviour(118)
def test_an_agent_has_ended_only_after_its_scope() -> None:
    """Scope, then agent, then session: the end is told while nothing of them is left."""
    gate, watch = Gate(), Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(worker_behaviours.echo, id="a")
        handle.scope.effect(lambda: gate.hold)
        scope = handle.scope
        ended = handle.dispose()
        gate.reached()
        assert (scope.state, ended.done(), watch.of("agent/ended")) == ("unloading", False, [])
        assert [node.id for node in system.tree()] == ["a"]
        gate.open()
        ended.result(PATIENCE)
        assert scope.state == "disposed"
        assert watch.of("agent/ended", "a")


@EVERYWHERE
def test_a_release_that_fails_is_in_the_receipt(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.registers_what_breaks, isolation=isolation)
        handle.agent.ask(None).result(PATIENCE)
        receipt = handle.dispose().result(PATIENCE)
        both = system.create(behaviours.BreaksTwice, isolation=isolation)
        both.agent.ask(None).result(PATIENCE)
        second = both.dispose().result(PATIENCE)
    (end,) = receipt.agents
    assert end.outcome == "failed"
    assert end.detail == "its scope failed to end: ValueError: stuck; ValueError: stuck"
    (end,) = second.agents
    assert end.detail == (
        "its stop hook failed: RuntimeError: no end today; "
        "its scope failed to end: ValueError: stuck"
    )
    assert receipt.complete


@EVERYWHERE
def test_the_scope_of_an_agent_that_failed_to_start_is_released(
    isolation: str, tmp_path: Path
) -> None:
    path, watch = tmp_path / "notes", Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        system.create(
            behaviours.FailsToStart, id="a", args={"path": str(path)}, isolation=isolation
        )
        assert watch.see("agent/ended", "a")["outcome"] == "failed"
        assert path.read_text() == "done\nundone\n"


def test_a_release_that_never_ends_is_a_survivor() -> None:
    gate = Gate()
    with dsh.ActorSystem(stop_grace=0.05) as system:
        handle = system.create(worker_behaviours.echo, id="a")
        handle.scope.effect(lambda: gate.hold)
        receipt = handle.dispose().result(PATIENCE)
        assert [survivor.id for survivor in receipt.survivors] == ["a"]
        gate.open()


def test_a_release_that_never_ends_ends_with_its_worker() -> None:
    with dsh.ActorSystem(stop_grace=0.05) as system:
        handle = system.create(behaviours.never_released, id="a", isolation="own")
        handle.agent.ask(None).result(PATIENCE)
        receipt = handle.dispose().result(PATIENCE)
        assert receipt.complete
        assert [end.id for end in receipt.agents] == ["a"]


@pytest.mark.behaviour(121)
def test_what_is_in_the_scope_of_one_agent_is_invisible_to_another() -> None:
    heard: dict[str, list[Any]] = {"a": [], "b": []}

    def speaks(turn: dsh.Turn, word: str) -> list[str]:
        turn.scope.emit("said", word)
        return sorted(turn.scope.tools)

    with dsh.ActorSystem() as system:
        a, b = system.create(speaks, id="a"), system.create(speaks, id="b")
        a.scope.tool("search", len)
        for handle in (a, b):
            to = heard[handle.agent.id]
            handle.scope.listen("turn/start", lambda number, to=to: to.append(number))
            handle.scope.listen("said", to.append)
            handle.scope.listen("turn/end", lambda number, why, to=to: to.append(why))
        a.scope.section("style", "be brief")
        assert b.scope.sections == {}
        assert b.agent.ask("hello").result(PATIENCE) == []
        assert heard == {"a": [], "b": [1, "hello", "completed"]}
        assert a.agent.ask("hi").result(PATIENCE) == ["search"]
        assert heard["a"] == [1, "hi", "completed"]
        assert len(heard["b"]) == 3
        b.dispose().result(PATIENCE)
        assert a.scope.active


def test_a_listener_that_fails_leaves_the_turn_alone() -> None:
    def broken(*args: Any) -> None:
        raise dsh.Cancelled("user")

    with dsh.ActorSystem() as system:
        handle = system.create(worker_behaviours.echo)
        handle.scope.listen("turn/start", broken)
        handle.scope.listen("turn/end", broken)
        assert handle.agent.ask(1).result(PATIENCE) == 1
        assert handle.agent.ask(2).result(PATIENCE) == 2


@pytest.mark.behaviour(120)
def test_the_scope_of_an_agent_that_ended_takes_nothing() -> None:
    kept: list[dsh.Turn] = []

    def keep(turn: dsh.Turn, message: Any) -> None:
        kept.append(turn)

    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(keep, id="a")
        scope = handle.scope
        handle.agent.ask(None).result(PATIENCE)
        with pytest.raises(dsh.UsageError, match="turn 1 of agent 'a' is over"):
            _ = kept[0].scope
        handle.dispose().result(PATIENCE)
        with pytest.raises(dsh.ScopeInactive, match="the scope of agent a is ending or has ended"):
            scope.tool("late", len)
        with pytest.raises(dsh.ScopeInactive):
            handle.scope.effect(lambda: None)
        without = system.create(keep)
        without.dispose().result(PATIENCE)
        with pytest.raises(dsh.ScopeInactive, match="has ended, and its scope with it"):
            _ = without.scope
        remote = system.create(worker_behaviours.echo, isolation="pool")
        with pytest.raises(dsh.UsageError, match=r"lives in a worker process; .* turn\.scope"):
            _ = remote.scope


@pytest.mark.behaviour(120)
@pytest.mark.parametrize("attempt", range(5))
def test_registrations_race_with_the_end_of_the_agent(attempt: int) -> None:
    done: list[int] = []
    undone: list[int] = []

    with dsh.ActorSystem() as system:
        handle = system.create(worker_behaviours.echo)

        def register(number: int) -> Any:
            if number == 5:
                return handle.dispose()

            def setup() -> Callable[[], None]:
                done.append(number)
                return lambda: undone.append(number)

            for _ in range(10):
                handle.scope.effect(setup)
            return None

        results = in_threads(32, register)
        assert handle.dispose().result(PATIENCE).complete
        assert sorted(done) == sorted(undone)
        refused = [each for each in results if isinstance(each, BaseException)]
        assert all(isinstance(each, dsh.ScopeInactive) for each in refused), refused


@pytest.mark.behaviour(122)
def test_the_effects_of_an_agent_are_released_at_the_same_time() -> None:
    barrier = threading.Barrier(3)
    with dsh.ActorSystem() as system:
        handle = system.create(worker_behaviours.echo)
        for _ in range(3):
            handle.scope.effect(lambda: lambda: barrier.wait(PATIENCE))
        (end,) = handle.dispose().result(PATIENCE).agents
        assert (end.outcome, end.detail) == ("completed", None)
