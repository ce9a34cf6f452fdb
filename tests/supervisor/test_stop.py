"""Stop and dispose: one teardown for all callers, child-first, and a receipt that is true."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch, in_threads

import dsh_actors as dsh

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool", "own"])


@pytest.mark.behaviour(32)
@EVERYWHERE
def test_the_handle_disposes_and_the_receipt_says_so(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.pid, id="a", isolation=isolation)
        pid = handle.agent.ask(None).result(PATIENCE)
        receipt = handle.dispose().result(PATIENCE)
        assert receipt.to_dict()["agents"] == [{"id": "a", "outcome": "completed", "pid": pid}]
        assert [p.pid for p in receipt.processes] == ([pid] if isolation == "own" else [])
        assert receipt.complete
    whole = system.receipt()
    assert [end.id for end in whole.agents] == ["a"]
    assert [p.pid for p in whole.processes] == ([] if isolation == "inline" else [pid])


@pytest.mark.behaviour(33)
def test_an_agent_alone_cannot_be_torn_down() -> None:
    with dsh.ActorSystem() as system:
        system.create(behaviours.echo, id="a")
        agent = system.agent("a")
        public = {name for name in dir(agent) if not name.startswith("_")}
        assert public == {
            "ask", "cancel", "id", "inject", "interrupt", "send", "session_id", "status", "steer",
            "when_idle",
        }  # fmt: skip


@pytest.mark.behaviour(35, 64, 65, 67)
def test_all_callers_share_one_teardown() -> None:
    watch, gate = Watch(), Gate()

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()
        turn.check()

    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(hold, id="w")
        handle.agent.send(None)
        gate.reached()

        def dispose(number: int) -> Any:
            if number % 4 == 1:
                return system.stop("w")
            return handle.dispose()

        futures = in_threads(32, dispose)
        assert len({id(future) for future in futures}) == 1
        assert not futures[0].done()
        gate.open()
        receipt = futures[0].result(PATIENCE)
        assert [end.outcome for end in receipt.agents] == ["aborted"]
        assert len(watch.of("agent/ended", "w")) == 1


@pytest.mark.behaviour(69)
def test_a_dispose_after_the_end_returns_at_once() -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(behaviours.echo, id="a")
        first = handle.dispose().result(PATIENCE)
        events = len(watch.events)
        for _ in range(3):
            again = handle.dispose()
            assert again.done()
            assert again.result(0) is first
        assert len(watch.events) == events
        with pytest.raises(dsh.AgentGone):
            system.stop("a")


@pytest.mark.behaviour(66)
def test_a_dispose_from_a_callback_of_the_cancel_joins_it() -> None:
    """The callback runs inside the first dispose, before that has returned."""
    joined = []

    def watched(turn: dsh.Turn, message: Any) -> None:
        turn.signal.add_callback(lambda: joined.append(handle.dispose()))
        begun.set()
        turn.sleep(3600)

    begun = threading.Event()
    with dsh.ActorSystem() as system:
        handle = system.create(watched)
        handle.agent.send(None)
        assert begun.wait(PATIENCE)
        future = handle.dispose()
        assert joined == [future]
        assert future.result(PATIENCE).complete


def test_a_dispose_from_an_observer_joins_it() -> None:
    joined: list[Any] = []

    def observer(event: Any) -> None:
        if event["type"] == "agent/ended" and not joined:
            joined.append(None)
            joined.append(handle.dispose())

    with dsh.ActorSystem(on_event=observer) as system:
        handle = system.create(behaviours.echo)
        receipt = handle.dispose().result(PATIENCE)
        assert joined[1].result(PATIENCE).agents == receipt.agents


@pytest.mark.behaviour(36)
def test_a_stop_waits_for_the_real_end_of_the_turn() -> None:
    gate, watch = Gate(), Watch()

    def slow_to_end(turn: dsh.Turn, message: Any) -> None:
        try:
            turn.progress(note="waits")
            turn.sleep(3600)
        finally:
            gate.hold()

    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(slow_to_end, id="a")
        handle.agent.send(None)
        watch.see("progress", "a")
        future = handle.dispose()
        gate.reached()
        assert not future.done()
        assert handle.agent.status == "stopping"
        gate.open()
        assert future.result(PATIENCE).complete


@pytest.mark.behaviour(42)
@EVERYWHERE
def test_an_id_is_free_as_soon_as_its_agent_has_ended(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        for number in range(5 if isolation == "own" else 50):
            handle = system.create(behaviours.echo, id="same", isolation=isolation)
            assert handle.agent.ask(number).result(PATIENCE) == number
            with pytest.raises(dsh.DuplicateId):
                system.create(behaviours.echo, id="same", isolation=isolation)
            handle.dispose().result(PATIENCE)


@pytest.mark.behaviour(43)
def test_a_late_dispose_cannot_touch_a_newer_agent_with_the_id() -> None:
    with dsh.ActorSystem() as system:
        old = system.create(behaviours.echo, id="same")
        old.dispose().result(PATIENCE)
        new = system.create(behaviours.echo, id="same")
        old.dispose().result(PATIENCE)
        old.agent.cancel()
        with pytest.raises(dsh.AgentGone):
            old.agent.send("x")
        assert new.agent.ask("x").result(PATIENCE) == "x"


@pytest.mark.behaviour(49)
def test_a_tree_in_three_processes_stops_child_first() -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=2, on_event=watch) as system:
        handle = system.create(behaviours.nested, id="n")
        handle.agent.send({"levels": ["pool", "inline", "own", "pool"]})
        watch.see("progress", "n....")
        receipt = handle.dispose().result(PATIENCE)
        names = ["n" + "." * level for level in range(5)]
        assert [end.id for end in receipt.agents] == names  # in the order of the marks
        assert {end.outcome for end in receipt.agents} == {"aborted"}
        ended = [event["agent"] for event in watch.of("agent/ended")]
        assert ended == names[::-1]
        assert system.tree() == []


@pytest.mark.behaviour(48)
def test_siblings_end_side_by_side() -> None:
    """All are at the gate of their end at the same time: nobody waits for a sibling."""
    count, watch = 20, Watch()
    together = threading.Barrier(count)

    def child(turn: dsh.Turn, message: Any) -> None:
        turn.progress(note="waits")
        try:
            turn.sleep(3600)
        finally:
            together.wait(PATIENCE)

    def parent(turn: dsh.Turn, message: Any) -> None:
        for number in range(count):
            turn.spawn(child, None, id=f"c{number}")

    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(parent)
        handle.agent.ask(None).result(PATIENCE)
        watch.see("progress", count=count)
        assert handle.dispose().result(PATIENCE).complete


def test_two_agents_that_stop_and_ask_each_other_end() -> None:
    system = dsh.ActorSystem()
    handles: dict[str, dsh.AgentHandle] = {}
    together = threading.Barrier(2)

    def fights(turn: dsh.Turn, message: Any) -> None:
        together.wait(PATIENCE)
        other = handles["b" if turn.agent_id == "a" else "a"]
        other.dispose()
        other.agent.ask("hello").result(PATIENCE)

    for name in "ab":
        handles[name] = system.create(fights, id=name)
    for handle in handles.values():
        handle.agent.send(None)
    assert system.shutdown().result(PATIENCE).complete


# -- escalation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_who_ignores_its_signal_in_a_worker_is_ended_by_force(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, stop_grace=0.3, on_event=watch) as system:
        handle = system.create(behaviours.spin, id="s", isolation=isolation)
        reply = handle.agent.ask(None)
        watch.see("progress", "s")
        pid = system.tree()[0].pid
        started = time.monotonic()
        receipt = handle.dispose().result(PATIENCE)
        took = time.monotonic() - started
        assert 0.3 <= took < 0.3 + 2.0
        assert receipt.complete
        assert [(end.id, end.outcome) for end in receipt.agents] == [("s", "aborted")]
        assert [(p.pid, p.kind) for p in receipt.processes] == [(pid, "worker")]
        assert receipt.processes[0].ended in ("terminated", "killed")
        assert isinstance(reply.exception(PATIENCE), dsh.TurnAborted)


def test_an_inline_one_is_a_named_survivor_with_its_stack() -> None:
    gate = Gate()

    def deaf(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(deaf, None, id="deaf")

    with dsh.ActorSystem(stop_grace=0.1) as system:
        handle = system.create(parent, id="parent")
        handle.agent.ask(None).result(PATIENCE)
        gate.reached()
        receipt = handle.dispose().result(PATIENCE)
        assert not receipt.complete
        assert {survivor.id for survivor in receipt.survivors} == {"parent", "deaf"}
        stacks = {survivor.id: survivor.stack for survivor in receipt.survivors}
        assert "in deaf" in stacks["deaf"]
        assert "gate.hold()" in stacks["deaf"]
        assert stacks["parent"] == "waits for deaf"
        assert not receipt.agents
        gate.open()


def test_an_async_survivor_is_named_with_its_stack() -> None:
    gate = Gate()

    async def blocks(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem(stop_grace=0.1) as system:
        handle = system.create(blocks, id="b")
        handle.agent.send(None)
        gate.reached()
        receipt = handle.dispose().result(PATIENCE)
        (survivor,) = receipt.survivors
        gate.open()
        assert "in blocks" in survivor.stack
        assert "gate.hold()" in survivor.stack


def test_the_grace_of_one_stop_can_be_given() -> None:
    gate = Gate()

    def deaf(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem(stop_grace=3600) as system:
        system.create(deaf, id="d").agent.send(None)
        gate.reached()
        receipt = system.stop("d", grace=0.0).result(PATIENCE)
        assert [survivor.id for survivor in receipt.survivors] == ["d"]
        gate.open()


def test_a_shutdown_with_a_survivor_ends_all_the_same() -> None:
    gate = Gate()

    def deaf(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    system = dsh.ActorSystem(stop_grace=0.1, workers=1)
    system.create(deaf, id="d").agent.send(None)
    quick = system.create(behaviours.echo, id="e", isolation="pool")
    assert quick.agent.ask(1).result(PATIENCE) == 1
    gate.reached()
    receipt = system.shutdown().result(PATIENCE)
    assert [survivor.id for survivor in receipt.survivors] == ["d"]
    assert [end.id for end in receipt.agents] == ["e"]
    gate.open()
