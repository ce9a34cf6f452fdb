"""Drains: of a whole system, and of what is below some agents."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import growing
import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch, in_threads

import dsh_actors as dsh
from dsh_actors.lifecycle.tree import Tree

if TYPE_CHECKING:
    from dsh_actors.testing.gates import Gates

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])
FOREST: dict[str, dict[str, Any]] = {
    "a": {"a1": {"a11": {}, "a12": {}}},
    "b": {"b1": {}, "b2": {"b21": {}}},
    "c": {},
}


def plant(
    system: dsh.ActorSystem, watch: Watch, forest: dict[str, Any], isolation: str = "inline"
) -> dict[str, dsh.AgentHandle]:
    """Create roots that grow; returns once everybody below them waits in a turn."""
    handles = {}
    for name, below in forest.items():
        handles[name] = system.create(
            growing.grow, id=name, isolation=isolation, args={"isolation": isolation}
        )
        handles[name].agent.ask(below).result(PATIENCE)
        for id in names(below):
            watch.see("progress", id, note="waits")
    return handles


def names(below: dict[str, Any]) -> list[str]:
    found = list(below)
    for more in below.values():
        found += names(more)
    return found


def edges(below: dict[str, Any], parent: str | None = None) -> list[tuple[str, str]]:
    found = []
    for name, more in below.items():
        if parent is not None:
            found.append((parent, name))
        found += edges(more, name)
    return found


def alive(system: dsh.ActorSystem) -> set[str]:
    return set(system._core.tree.nodes)


def supervised(system: dsh.ActorSystem) -> None:
    """Wait until the supervisor has done all that was posted before."""
    done = threading.Event()
    system._supervisor.post(done.set)
    assert done.wait(PATIENCE)


def creating(
    system: dsh.ActorSystem, id: str, **options: Any
) -> tuple[threading.Thread, list[Any]]:
    """Create an agent on a thread of its own; what comes of it is in the list."""
    result: list[Any] = []

    def create() -> None:
        try:
            result.append(system.create(behaviours.echo, id=id, **options))
        except dsh.DshActorsError as error:
            result.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    return thread, result


# -- the whole system ------------------------------------------------------------------------------


@pytest.mark.behaviour(123)
def test_every_start_after_the_drain_was_entered_is_refused() -> None:
    started: list[str] = []
    goes_on = threading.Barrier(5)

    def start(number: int) -> int:
        for count in range(100_000):
            if count == 3:
                goes_on.wait(PATIENCE)
            try:
                started.append(system.create(behaviours.echo, id=f"{number}-{count}").agent.id)
            except dsh.SystemClosed:
                break
        refused = 0
        for isolation in ("inline", "pool") * 20:
            try:
                system.create(behaviours.echo, isolation=isolation)
            except dsh.SystemClosed:
                refused += 1
        return refused

    with dsh.ActorSystem(workers=1) as system:
        drained: list[dsh.Receipt] = []

        def drain() -> None:
            goes_on.wait(PATIENCE)
            drained.append(system.drain().result(PATIENCE))

        thread = threading.Thread(target=drain)
        thread.start()
        assert in_threads(4, start) == [40] * 4
        thread.join(PATIENCE)
        assert {end.id for end in drained[0].agents} == set(started)
        assert system.tree() == []


@pytest.mark.behaviour(123)
def test_admission_is_closed_before_anything_is_waited_for(gates: Gates) -> None:
    with dsh.ActorSystem() as system:
        system.create(behaviours.echo, id="a")
        held = gates.hold("cancelled", agent="a")
        drained = system.drain()
        with pytest.raises(dsh.SystemClosed):
            system.create(behaviours.echo)
        held.wait()
        assert not drained.done()
        held.release()
        assert drained.result(PATIENCE).complete


@pytest.mark.behaviour(124)
@EVERYWHERE
def test_a_drain_waits_for_an_admitted_creation_then_disposes_it(
    gates: Gates, isolation: str
) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        system.create(behaviours.echo, id="there")
        held = gates.hold("entered", agent="late")
        thread, result = creating(system, "late", isolation=isolation)
        held.wait()
        drained = system.drain()
        supervised(system)
        assert not drained.done()
        assert alive(system) == {"there", "late"}
        held.release()
        thread.join(PATIENCE)
        assert {end.id for end in drained.result(PATIENCE).agents} == {"there", "late"}
        assert result[0].agent.status == "settled"
        kinds = [event["type"] for event in watch.events if event.get("agent") == "late"]
        assert kinds == ["agent/started", "agent/ended"]


@pytest.mark.behaviour(124)
def test_a_creation_in_set_up_is_rolled_back_before_a_drain_ends() -> None:
    gate = Gate()
    with dsh.ActorSystem() as system:
        thread, result = creating(system, "late", setup=lambda preparation: gate.hold())
        gate.reached()
        receipt = system.drain().result(PATIENCE)
        assert receipt.agents == ()
        thread.join(PATIENCE)
        assert isinstance(result[0], dsh.SystemClosed)
        assert alive(system) == set()
        gate.open()


@pytest.mark.behaviour(124)
def test_a_creation_that_is_not_admitted_yet_is_refused(gates: Gates) -> None:
    with dsh.ActorSystem() as system:
        held = gates.hold("prepared", agent="late")
        thread, result = creating(system, "late")
        held.wait()
        assert system.drain().result(PATIENCE).agents == ()
        held.release()
        thread.join(PATIENCE)
        assert isinstance(result[0], dsh.SystemClosed)
        assert alive(system) == set()


def test_a_creation_that_hangs_does_not_hold_a_drain_beyond_its_grace(gates: Gates) -> None:
    with dsh.ActorSystem() as system:
        system.create(behaviours.echo, id="there")
        held = gates.hold("entered", agent="late")
        thread, _ = creating(system, "late")
        held.wait()
        receipt = system.drain(grace=0.05).result(PATIENCE)
        assert receipt.complete
        assert {end.id for end in receipt.agents} == {"there", "late"}
        held.release()
        thread.join(PATIENCE)


@pytest.mark.behaviour(125, 126)
@EVERYWHERE
def test_a_drain_disposes_a_forest_child_first_and_each_once(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        plant(system, watch, FOREST, isolation)
        drained = system.drain()
        assert system.drain() is drained
        receipt = drained.result(PATIENCE)
        assert sorted(end.id for end in receipt.agents) == sorted(names(FOREST))
        ended = [event["agent"] for event in watch.of("agent/ended")]
        assert sorted(ended) == sorted(names(FOREST))
        for parent, child in edges(FOREST):
            assert ended.index(child) < ended.index(parent)
        assert system.tree() == []
        for _ in range(3):
            with pytest.raises(dsh.SystemClosed):
                system.create(behaviours.echo)
        assert {end.id for end in system.receipt().agents} == set(names(FOREST))
        assert system.drain() is drained


@pytest.mark.behaviour(67, 126)
@pytest.mark.parametrize("repeat", range(20))
def test_all_ways_to_end_meet_in_one_teardown(repeat: int) -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handles = plant(system, watch, FOREST)
        ways = [
            system.drain,
            lambda: system.drain_descendants(handles.values()),
            handles["a"].dispose,
            lambda: system.drain_descendants([handles["b"].agent]),
            system.shutdown,
            lambda: system.stop("b"),
        ]
        for future in in_threads(12, lambda number: ways[number % 6]()):
            if not isinstance(future, dsh.AgentGone):  # b has ended by then
                assert future.result(PATIENCE).complete
    ended = [event["agent"] for event in watch.of("agent/ended")]
    assert sorted(ended) == sorted(names(FOREST))


def test_a_drain_from_an_observer_of_ends_shares_the_outcome() -> None:
    inner: list[Any] = []

    def observe(event: Any) -> None:
        if event["type"] == "agent/ended":
            inner.append(system.drain())
            inner.append(system.drain_descendants([handle]))

    with dsh.ActorSystem(on_event=observe) as system:
        handle = system.create(behaviours.echo, id="a")
        system.create(behaviours.echo, id="b")
        outer = system.drain()
        outer.result(PATIENCE)
        assert len(inner) == 4
        assert inner[0] is inner[2] is outer
        assert [future.result(PATIENCE).agents for future in inner[1::2]] == [(), ()]


def test_a_drain_after_the_end_of_the_system_returns() -> None:
    system = dsh.ActorSystem()
    handle = system.create(behaviours.echo)
    system.shutdown().result(PATIENCE)
    assert system.drain().result(PATIENCE).agents == ()
    assert system.drain_descendants([handle]).result(PATIENCE).agents == ()


def test_whoever_does_not_end_is_named() -> None:
    gate = Gate()

    def ignores(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(ignores, None, id="deaf")

    with dsh.ActorSystem() as system:
        handle = system.create(parent, id="p")
        handle.agent.ask(None).result(PATIENCE)
        gate.reached()
        for drained in (
            system.drain_descendants([handle], grace=0.01), system.drain(grace=0.01),
        ):  # fmt: skip
            assert "deaf" in [each.id for each in drained.result(PATIENCE).survivors]
        gate.open()


# -- what is below some agents ---------------------------------------------------------------------


@pytest.mark.behaviour(127, 129)
@EVERYWHERE
def test_others_go_on_creating_during_a_drain_of_descendants(gates: Gates, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=2, on_event=watch) as system:
        handles = plant(system, watch, {"a": {"a1": {}}, "b": {}}, isolation)
        held = gates.hold("removed", agent="a1")
        drained = system.drain_descendants([handles["a"]])
        held.wait()
        for number in range(10):
            handles["b"].agent.ask({f"b{number}": {}}).result(PATIENCE)
        system.create(behaviours.echo, id="new")
        assert not drained.done()
        held.release()
        assert [end.id for end in drained.result(PATIENCE).agents] == ["a1"]
        assert alive(system) == {"a", "b", "new", *(f"b{number}" for number in range(10))}


@pytest.mark.behaviour(128)
@EVERYWHERE
def test_the_lineage_of_a_drained_agent_gets_nothing_new(gates: Gates, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handles = plant(system, watch, {"a": {"a1": {}}}, isolation)
        below = system._core.tree.nodes["a1"]
        held = gates.hold("children-awaited", agent="a1")
        drained = system.drain_descendants([handles["a"]])
        with pytest.raises(dsh.AgentFailed, match="AdmissionRefused"):
            handles["a"].agent.ask({"a2": {}}).result(PATIENCE)
        factory = system._supervisor.factory
        with pytest.raises(dsh.AdmissionRefused):
            factory.create(factory.spec(behaviours.echo, "inline", "temporary", None), parent=below)
        held.release()
        drained.result(PATIENCE)
        with pytest.raises(dsh.AgentFailed, match="cleared of its descendants"):
            handles["a"].agent.ask({"a2": {}}).result(PATIENCE)


@pytest.mark.behaviour(128, 134)
def test_the_cut_off_in_the_tree_reaches_down_and_ends_with_its_node() -> None:
    tree = Tree()

    def enter(id: str, parent: Any) -> Any:
        node = tree.prepare(id, parent)
        tree.enter(node)
        return node

    a, b = enter("a", None), enter("b", None)
    a1, b1 = enter("a1", a), enter("b1", b)
    a11 = enter("a11", a1)
    prepared = tree.prepare("late", a11)
    assert tree.seal([a, a1, a]) == [a1]
    for parent in (a, a1, a11):
        with pytest.raises(dsh.AdmissionRefused):
            tree.prepare("x", parent)
    with pytest.raises(dsh.AdmissionRefused):
        tree.enter(prepared)
    enter("b11", b1)
    for node in (a11, a1, a):
        assert tree.remove(node)
        tree.release(node)
    assert tree.sealed == 0
    assert tree.seal([a]) == []
    enter("a1", enter("a", None))


@pytest.mark.behaviour(129)
def test_a_drained_agent_can_finish_its_turn() -> None:
    watch, gate = Watch(), Gate()

    def works(turn: dsh.Turn, message: Any) -> str:
        turn.spawn(growing.grow_and_wait, {}, id="below")
        gate.hold()
        turn.check()
        return "done"

    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(works, id="a")
        reply = handle.agent.ask(None)
        gate.reached()
        assert [e.id for e in system.drain_descendants([handle]).result(PATIENCE).agents] == [
            "below"
        ]
        assert system.agent("a").status == "running"
        gate.open()
        assert reply.result(PATIENCE) == "done"


@pytest.mark.behaviour(130)
def test_a_stale_reference_does_nothing_to_the_agent_with_its_id() -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system, dsh.ActorSystem() as other:
        stale = system.create(growing.grow, id="a")
        stale.dispose().result(PATIENCE)
        foreign = other.create(behaviours.echo, id="a")
        handles = plant(system, watch, {"a": {"a1": {}}})
        for agents in ([stale], [stale.agent, foreign], []):
            drained = system.drain_descendants(agents)
            assert drained.result(0).agents == ()
        assert alive(system) == {"a", "a1"}
        assert system.agent("a1").status == "running"
        handles["a"].agent.ask({"a2": {}}).result(PATIENCE)
        assert alive(system) == {"a", "a1", "a2"}


def spawns_late(turn: dsh.Turn, message: Any) -> None:
    if message == "late":
        turn.spawn(growing.grow_and_wait, {}, id="late")
    else:
        growing.grow(turn, message)


@pytest.mark.behaviour(131, 132)
def test_all_targets_are_cancelled_while_a_creation_is_held_and_that_is_rolled_back(
    gates: Gates,
) -> None:
    watch = Watch()
    deep = {"a": {"a1": {"a11": {}}}, "b": {"b1": {"b11": {}}}}
    with dsh.ActorSystem(on_event=watch) as system:
        roots = [system.create(spawns_late, id=name) for name in deep]
        for root in roots:
            root.agent.ask(deep[root.agent.id]).result(PATIENCE)
        for id in ("a1", "a11", "b1", "b11"):
            watch.see("progress", id, note="waits")
        held = gates.hold("entered", agent="late")
        reply = roots[0].agent.ask("late")
        held.wait()
        nodes = dict(system._core.tree.nodes)
        signals = [nodes[id].agent.running.signal for id in ("a1", "a11", "b1", "b11")]
        drained = system.drain_descendants(roots)
        assert [signal.cause for signal in signals] == ["disposed"] * 4
        assert nodes["late"].closing == "disposed"
        for id in ("a1", "a11", "b1", "b11"):
            watch.see("turn/end", id, reason="aborted")
        supervised(system)
        assert not drained.done()
        assert not watch.of("agent/ended")
        held.release()
        receipt = drained.result(PATIENCE)
        assert {end.id for end in receipt.agents} == {"a1", "a11", "b1", "b11", "late"}
        with pytest.raises(dsh.AgentFailed, match="AgentGone"):
            reply.result(PATIENCE)
        assert not watch.of("turn/start", "late")
        assert alive(system) == {"a", "b"}


@pytest.mark.behaviour(133)
def test_agents_of_others_keep_children_inbox_and_turn() -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handles = plant(system, watch, {"p1": {"p11": {}}, "p2": {"p21": {}}, "q": {"q1": {}}})
        system.agent("q1").send({"q11": {}})
        drained = system.drain_descendants([handles["p1"], handles["p2"].agent])
        assert {end.id for end in drained.result(PATIENCE).agents} == {"p11", "p21"}
        kept = system.tree()[2].children[0]
        assert (kept.id, kept.status, kept.queued) == ("q1", "running", 1)
        assert not watch.of("turn/end", "q1")
        handles["q"].agent.ask({"q2": {}}).result(PATIENCE)


@pytest.mark.behaviour(134)
def test_a_later_agent_with_the_id_may_have_children() -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        first = plant(system, watch, {"a": {"a1": {}}})["a"]
        system.drain_descendants([first]).result(PATIENCE)
        with pytest.raises(dsh.AgentFailed, match="AdmissionRefused"):
            first.agent.ask({"a1": {}}).result(PATIENCE)
        first.dispose().result(PATIENCE)
        plant(system, watch, {"a": {"a1": {}}})
        assert alive(system) == {"a", "a1"}


@pytest.mark.behaviour(134)
def test_what_a_one_shot_left_behind_is_found(gates: Gates) -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        root = system.create(growing.run_one_shot, id="root")
        held = gates.hold("removed", agent="one-shot")
        reply = root.agent.ask("continuable")
        held.wait()  # the agent between them has left the registry
        drained = system.drain_descendants([root])
        supervised(system)
        held.release()
        drained.result(PATIENCE)
        assert alive(system) == {"root"}
        assert reply.result(PATIENCE) == "completed"


@pytest.mark.behaviour(135)
def test_one_failing_branch_is_reported_when_all_have_settled(gates: Gates) -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        root = system.create(growing.spawn_each, id="root")
        root.agent.ask({"x": "Waits", "y": "FailsAtStop", "z": "Waits"}).result(PATIENCE)
        for id in "xyz":
            watch.see("progress", id, note="waits")
        held = gates.hold("flushed", agent="z")
        drained = system.drain_descendants([root])
        held.wait()
        watch.see("agent/ended", "y")
        watch.see("agent/ended", "x")
        supervised(system)
        assert not drained.done()
        held.release()
        error = drained.exception(PATIENCE)
        assert isinstance(error, ExceptionGroup)
        (failure,) = error.exceptions
        assert isinstance(failure, dsh.AgentFailed)
        assert "no end today" in str(failure)
        assert "'y'" in str(failure)
        assert len(watch.of("agent/ended")) == 3
        assert alive(system) == {"root"}
