"""Cancel: at once, in order, for exactly what was there; and what survives it."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch, in_threads

import dsh_actors as dsh
from dsh_actors.agents.actor import AgentActor
from dsh_actors.sessions import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])


@pytest.fixture
def fine_switches() -> Iterator[None]:
    """Threads take turns as often as they can, to provoke races."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.behaviour(2, 24)
def test_a_cancel_waits_for_nothing() -> None:
    gate = Gate()

    def deaf(turn: dsh.Turn, message: Any) -> bool:
        gate.hold()
        return turn.signal.is_set()

    with dsh.ActorSystem() as system:
        agent = system.create(deaf).agent
        running = agent.ask(None)
        gate.reached()
        started = time.perf_counter()
        waiting = [agent.ask(number) for number in range(10_000)]
        sent = time.perf_counter()
        agent.cancel()
        cancelled = time.perf_counter()
        # In effect already, although the turn still runs.
        assert agent.status == "running"
        assert all(reply.done() for reply in waiting)
        assert (sent - started) / 10_000 < 0.05
        assert cancelled - sent < 1.0  # it has told 10,000 askers; the mark itself took no time
        gate.open()
        assert running.result(PATIENCE) is True


@pytest.mark.behaviour(3)
def test_inbox_then_wake_then_signal() -> None:
    """An observer of the signal finds the inbox empty and no wake pending."""
    gate, seen = Gate(), []

    def watched(turn: dsh.Turn, message: Any) -> None:
        inbox = turn._actor.inbox
        turn.signal.add_callback(lambda: seen.append((inbox.count, inbox.waking)))
        gate.hold()
        turn.check()

    with dsh.ActorSystem() as system:
        agent = system.create(watched).agent
        agent.send(None)
        gate.reached()
        for number in range(5):
            agent.send(number)
        agent.steer("x")
        agent.cancel()
        assert seen == [(0, 0)]
        gate.open()
        agent.when_idle().result(PATIENCE)


@pytest.mark.behaviour(5, 28)
@EVERYWHERE
def test_an_interrupt_keeps_the_inbox_for_the_next_wake(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        agent = system.create(behaviours.wait_or_echo, id="a", isolation=isolation).agent
        first = agent.ask("wait")
        watch.see("progress", "a")
        second, third = agent.ask("B"), agent.ask("C")
        agent.inject("quiet")
        agent.interrupt()
        with pytest.raises(dsh.TurnAborted, match="user"):
            first.result(PATIENCE)
        watch.see("turn/end", "a")
        assert not second.done()
        assert not third.done()
        assert len(watch.of("turn/start", "a")) == 1  # none started on its own
        order = []
        for name, reply in (("B", second), ("C", third), ("D", agent.ask("D"))):
            reply.add_done_callback(lambda _, name=name: order.append(name))
        assert agent.when_idle().result(PATIENCE) is None
        assert order == ["B", "C", "D"]
        assert second.result(PATIENCE) == "B"


def test_an_interrupt_without_a_turn_changes_nothing() -> None:
    """What is queued was not begun for want of a permit, and is begun with one."""
    gate = Gate()

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem(max_turns=1) as system:
        system.create(hold).agent.send(None)
        gate.reached()
        agent = system.create(behaviours.echo).agent
        reply = agent.ask("hello")
        agent.interrupt()
        gate.open()
        assert reply.result(PATIENCE) == "hello"


@pytest.mark.behaviour(29)
def test_a_cancel_after_an_interrupt_drops_what_it_kept() -> None:
    gate, ran = Gate(), []

    def deaf(turn: dsh.Turn, message: Any) -> None:
        ran.append(message)
        gate.hold()

    with dsh.ActorSystem() as system:
        agent = system.create(deaf).agent
        agent.send("A")
        gate.reached()
        agent.interrupt()
        agent.send("B")
        agent.cancel()
        gate.open()
        agent.when_idle().result(PATIENCE)
        agent.send("C")
        agent.when_idle().result(PATIENCE)
    assert ran == ["A", "C"]


@pytest.mark.behaviour(6)
@pytest.mark.usefixtures("fine_switches")
def test_a_claim_races_a_cancel() -> None:
    """Each message is discarded, or runs in a turn that is aborted; never both, never neither."""
    ran: list[int] = []

    def waits(turn: dsh.Turn, message: int) -> None:
        ran.append(message)
        turn.sleep(3600)

    with MemoryStore() as store, dsh.ActorSystem(store=store) as system:
        agent = system.create(waits).agent
        for number in range(1000):
            reply = agent.ask(number)
            while not reply.done():
                agent.cancel()
            error = reply.exception(0)
            assert isinstance(error, dsh.TurnAborted)
            agent.when_idle().result(PATIENCE)
        assert store.flush(PATIENCE)
        assert agent.session_id is not None
        events = store.load(agent.session_id).events
    claimed = {id for e in events if e.type == "turn/start" for id in e.data["messages"]}
    discarded = {e.data["id"] for e in events if e.type == "prompt/discarded"}
    accepted = {e.data["id"] for e in events if e.type == "prompt/accepted"}
    assert claimed | discarded == accepted
    assert not claimed & discarded
    assert len(accepted) == 1000
    ends = [e.data["reason"] for e in events if e.type == "turn/end"]
    assert ends == ["aborted"] * len(claimed)
    assert len(ran) <= len(claimed)  # a turn may be cancelled before its first step


@pytest.mark.behaviour(7)
@EVERYWHERE
def test_what_is_accepted_after_a_cancel_is_not_touched_by_it(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviours.wait_or_echo, isolation=isolation).agent
        for number in range(200):
            before = agent.ask("wait")
            agent.cancel()
            after = agent.ask(number)
            assert after.result(PATIENCE) == number
            assert isinstance(before.exception(PATIENCE), dsh.TurnAborted)


@pytest.mark.behaviour(8)
@EVERYWHERE
def test_cancelling_an_idle_agent_is_nothing(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        agent = system.create(behaviours.echo, isolation=isolation).agent
        agent.ask("ready").result(PATIENCE)
        for _ in range(3):
            agent.cancel()
            agent.interrupt()
        assert agent.ask("next").result(PATIENCE) == "next"
    assert not watch.of("cancel_requested")


@pytest.mark.behaviour(11)
@pytest.mark.usefixtures("fine_switches")
def test_the_first_cause_wins() -> None:
    causes = ["user", "parent", "deadline"]
    with MemoryStore() as store, dsh.ActorSystem(store=store) as system:
        told: list[str] = []

        def waits(turn: dsh.Turn, message: Any) -> None:
            gate.release()
            try:
                turn.sleep(3600)
            except dsh.Cancelled as cancelled:
                told.append(cancelled.cause)
                raise

        gate = threading.Semaphore(0)
        handle = system.create(waits)
        node = system._core.tree.nodes[handle.agent.id]
        teardown = system._supervisor.teardown
        for _ in range(300):
            handle.agent.send(None)
            assert gate.acquire(timeout=PATIENCE)
            in_threads(
                3,
                lambda n: teardown.cancel_work(node, tree=False, keep_inbox=True, cause=causes[n]),
            )
            handle.agent.when_idle().result(PATIENCE)
        handle.agent.send(None)
        assert gate.acquire(timeout=PATIENCE)
        handle.agent.cancel()
        handle.dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        events = store.load(handle.agent.session_id or "").events
    recorded = [e.data["cause"] for e in events if e.type == "turn/end"]
    assert recorded == told
    assert len(told) == 301
    assert told[-1] == "user"  # and not disposed


@pytest.mark.behaviour(12)
def test_the_next_checkpoint_raises() -> None:
    steps = []

    def counts(turn: dsh.Turn, message: Any) -> None:
        for step in range(100):
            turn.check()
            steps.append(step)
            if step == 5:
                turn._actor.host.port._supervisor.cancel(  # type: ignore[attr-defined]
                    turn._actor.key, tree=False, keep_inbox=False
                )

    with dsh.ActorSystem() as system, pytest.raises(dsh.TurnAborted):
        system.create(counts).agent.ask(None).result(PATIENCE)
    assert steps == [0, 1, 2, 3, 4, 5]


@pytest.mark.behaviour(15)
@EVERYWHERE
def test_a_cancel_takes_nothing_back(isolation: str) -> None:
    watch = Watch()
    with MemoryStore() as store, dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        agent = system.create(behaviours.remembers_then_waits, id="r", isolation=isolation).agent
        reply = agent.ask("this")
        watch.see("progress", "r")
        agent.cancel()
        assert isinstance(reply.exception(PATIENCE), dsh.TurnAborted)
        assert store.flush(PATIENCE)
        events = store.load(agent.session_id or "").events
    assert [e.type for e in events[:4]] == [
        "prompt/accepted", "turn/start", "custom/noted", "turn/end",
    ]  # fmt: skip


@pytest.mark.behaviour(17)
def test_when_idle_waits_for_the_whole_end_of_a_cancelled_turn() -> None:
    gate, watch, done = Gate(), Watch(), []

    def slow_to_end(turn: dsh.Turn, message: Any) -> None:
        turn.progress(note="waits")
        try:
            turn.sleep(3600)
        finally:
            gate.hold()
            done.append(message)

    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(slow_to_end, id="a").agent
        agent.send("first")
        watch.see("progress", "a")
        agent.cancel()
        gate.reached()
        idle = agent.when_idle()
        agent.send("second")  # a wake between the cancel and rest: its turn is waited for too
        assert not idle.done()
        gate.open()
        watch.see("progress", "a", count=2)
        assert not idle.done()
        agent.cancel()
        idle.result(PATIENCE)
        assert done == ["first", "second"]


@pytest.mark.behaviour(19, 20)
def test_a_tree_is_marked_from_the_top_before_anything_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four levels, in this process and in two workers, one of them with a deaf agent."""
    watch = Watch()
    with dsh.ActorSystem(workers=2, on_event=watch) as system:
        top = system.create(behaviours.nested, id="n")
        top.agent.send({"levels": ["pool", "inline", "own"]})
        watch.see("progress", "n...")
        nodes = [system._core.tree.nodes["n" + "." * level] for level in range(4)]
        set_signal, signalled = AgentActor.cut, []
        released: list[str] = []

        def cut(actor: AgentActor, *args: Any) -> Any:
            signalled.append(actor.name)
            return set_signal(actor, *args)

        def waited(event: Any) -> None:
            if event["type"] == "agent/ended":
                released.append(event["agent"])

        monkeypatch.setattr(AgentActor, "cut", cut)
        before = [node.mark for node in nodes]
        top.agent.cancel(tree=True)
        marks = [node.mark for node in nodes]
        assert marks == sorted(marks)
        assert min(marks) > max(before)
        assert signalled == ["n", "n.."]  # the inline ones, before cancel has returned
        watch.see("agent/ended", "n.")
        top.dispose().result(PATIENCE)


@pytest.mark.behaviour(21)
@pytest.mark.usefixtures("fine_switches")
def test_a_spawn_races_a_cancel() -> None:
    """Whatever is started is seen by the cancel of the tree, or refused: nothing is left over."""

    def child(turn: dsh.Turn, message: Any) -> None:
        turn.sleep(3600)

    def parent(turn: dsh.Turn, message: Any) -> None:
        begun.release()
        while True:
            turn.run(child, None)

    begun = threading.Semaphore(0)
    with dsh.ActorSystem() as system:
        handle = system.create(parent)
        for _ in range(150):
            handle.agent.send(None)
            assert begun.acquire(timeout=PATIENCE)
            handle.agent.cancel(tree=True)
            handle.agent.when_idle().result(PATIENCE)
        handle.agent.send(None)
        assert begun.acquire(timeout=PATIENCE)
        receipt = handle.dispose().result(PATIENCE)
        assert receipt.complete
        assert system.tree() == []


@pytest.mark.behaviour(22)
@EVERYWHERE
def test_cancel_then_dispose_ends(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=2, on_event=watch) as system:
        for number in range(10):
            handle = system.create(behaviours.parent_of_waiting, id=f"p{number}")
            handle.agent.send([isolation, "inline", isolation])
            watch.see("progress", count=3 * number + 3)
            handle.agent.cancel(tree=True)
            assert handle.dispose().result(PATIENCE).complete
        assert system.tree() == []


def test_cancel_requested_is_told_for_what_has_an_effect() -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(behaviours.wait, id="a").agent
        agent.send(None)
        watch.see("progress", "a")
        agent.cancel()
        assert [e["cause"] for e in watch.of("cancel_requested", "a")] == ["user"]
        agent.when_idle().result(PATIENCE)
        agent.send(None)
        watch.see("progress", "a", count=2)
        system.stop("a").result(PATIENCE)
