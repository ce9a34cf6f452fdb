"""Gates: every point is reached and can be held, in this process and in workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Watch, in_threads

import dsh_actors as dsh
from dsh_actors import gates as points
from dsh_actors.lifecycle import disposal
from dsh_actors.testing.gates import Gates

if TYPE_CHECKING:
    from collections.abc import Callable

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool", "own"])
IN_WORKERS = pytest.mark.parametrize("isolation", ["pool", "own"])

CREATION = ("prepared", "entered", "announced")
DISPOSAL = (
    "cancelled", "children-awaited", "idle", "flushed", "captured", "handle-disposed", "removed",
    "notified", "released", "settled",
)  # fmt: skip


class Aside:
    """Something that blocks, done on a thread of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._result = self._function()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert self.done
        return self._result


def test_the_points_are_those_that_are_tested() -> None:
    assert (*CREATION, "claimed", *DISPOSAL) == points.POINTS


@pytest.mark.parametrize("point", CREATION)
@EVERYWHERE
def test_a_creation_is_held(gates: Gates, point: str, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        with gates.hold(point, agent="child") as held:
            made = Aside(lambda: system.create(behaviours.echo, id="child", isolation=isolation))
            assert held.wait() == "child"
            assert not made.done
            assert ("child" in system._core.tree.nodes) == (point != "prepared")
            assert bool(watch.of("agent/started")) == (point == "announced")
            other = system.create(behaviours.echo, id="other")
            assert other.agent.ask(1).result(PATIENCE) == 1
        assert made.result().agent.ask(2).result(PATIENCE) == 2


def test_a_creation_with_listeners_is_held_when_they_have_been_told(gates: Gates) -> None:
    with dsh.ActorSystem() as system:
        told: list[str] = []
        system.on("session-start", lambda event: told.append(event.agent.id))
        with gates.hold("announced") as held:
            made = Aside(lambda: system.create(behaviours.echo, id="child"))
            assert held.wait() == "child"
            assert told == ["child"]
            assert not made.done
        made.result()


@EVERYWHERE
def test_a_claimed_turn_is_held_and_nobody_else(gates: Gates, isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        child, other = (
            system.create(behaviours.echo, id=id, isolation=isolation).agent
            for id in ("child", "other")
        )
        with gates.hold("claimed", agent="child") as held:
            reply = child.ask(1)
            held.wait()
            assert not reply.done()
            assert other.ask(2).result(PATIENCE) == 2
            child.cancel()  # after the claim, and before the first step
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)


@EVERYWHERE
def test_an_async_turn_is_held_and_not_its_loop(gates: Gates, isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        child, other = (
            system.create(behaviours.OnlyMessages, id=id, isolation=isolation).agent
            for id in ("child", "other")
        )
        with gates.hold("claimed", agent="child") as held:
            replies = [child.ask(number) for number in range(3)]
            held.wait()
            assert other.ask(9).result(PATIENCE) == 9
            assert not replies[0].done()
        assert [reply.result(PATIENCE) for reply in replies] == [0, 1, 2]
        assert gates.visits("claimed", "child") == 3


@pytest.mark.parametrize("point", DISPOSAL)
@EVERYWHERE
def test_a_disposal_is_held_and_nobody_else(gates: Gates, point: str, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        child = system.create(behaviours.Counter, id="child", isolation=isolation)
        assert child.agent.ask(1).result(PATIENCE) == 101
        with gates.hold(point, agent="child") as held:
            stopped = child.dispose()
            assert held.wait() == "child"
            assert ("child" in system._core.tree.nodes) == (
                DISPOSAL.index(point) < DISPOSAL.index("removed")
            )
            assert bool(watch.of("agent/ended")) == (point == "settled")
            other = system.create(behaviours.Counter, id="other")  # the supervisor is free
            assert other.agent.ask(2).result(PATIENCE) == 102
            assert other.dispose().result(PATIENCE).complete
        assert stopped.result(PATIENCE).complete
        for each in DISPOSAL:
            assert gates.visits(each, "child") >= 1, each


@pytest.mark.parametrize("point", DISPOSAL)
def test_a_held_child_holds_its_parent(gates: Gates, point: str) -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        for name in ("first", "second"):
            turn.spawn(behaviours.wait, None, id=name)

    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(parent, id="parent")
        handle.agent.ask(None).result(PATIENCE)
        for name in ("first", "second"):
            watch.see("progress", name)
        with gates.hold(point, agent="first") as held:
            stopped = handle.dispose()
            held.wait()
            watch.see("agent/ended", "second")
            assert gates.visits("idle", "parent") == 0
            assert not stopped.done()
        assert stopped.result(PATIENCE).complete
        ended = [event["agent"] for event in watch.of("agent/ended")]
        assert ended[-1] == "parent"


@pytest.mark.parametrize("point", DISPOSAL)
def test_a_parent_is_held_while_its_child_goes_on(gates: Gates, point: str) -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(behaviours.wait, None, id="child")

    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(parent, id="parent")
        handle.agent.ask(None).result(PATIENCE)
        watch.see("progress", "child")
        with gates.hold(point, agent="parent") as held:
            stopped = handle.dispose()
            held.wait()
            if point == "cancelled":  # its children are not begun yet, but cancelled
                watch.see("turn/end", "child", reason="aborted")
                assert not watch.of("agent/ended")
            else:
                watch.see("agent/ended", "child")
        assert stopped.result(PATIENCE).complete


@IN_WORKERS
def test_a_worker_is_held_when_it_has_set_the_tokens(gates: Gates, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        child = system.create(behaviours.wait, id="child", isolation=isolation).agent
        reply = child.ask(None)
        watch.see("progress", "child")
        with gates.hold("cancelled", agent="child") as held:
            child.cancel()  # not a disposal: it is the worker that comes to the point
            held.wait()
            with pytest.raises(dsh.TurnAborted):  # the token works already
                reply.result(PATIENCE)
            behind = child.ask(None)  # its frame waits behind that of the cancel
        watch.see("progress", "child", count=2)
        child.cancel()
        with pytest.raises(dsh.TurnAborted):
            behind.result(PATIENCE)


@IN_WORKERS
def test_a_worker_is_held_when_a_stop_hook_has_run(gates: Gates, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        child = system.create(behaviours.Counter, id="child", isolation=isolation)
        child.agent.ask(1).result(PATIENCE)
        with gates.hold("handle-disposed", agent="child") as held:
            stopped = child.dispose()
            held.wait()
            watch.see("progress", "child", note="stopped at 101")
            assert gates.visits("handle-disposed", "child") == 1  # the supervisor is not there yet
            assert not stopped.done()
        assert stopped.result(PATIENCE).complete
        assert gates.visits("handle-disposed", "child") == 2


@IN_WORKERS
def test_a_worker_that_dies_while_it_is_held_keeps_nobody_waiting(
    gates: Gates, isolation: str
) -> None:
    with dsh.ActorSystem(workers=1) as system:
        child = system.create(behaviours.echo, id="child", isolation=isolation).agent
        held = gates.hold("claimed", agent="child")
        reply = child.ask(1)
        held.wait()
        os.kill(system.tree()[0].pid, signal.SIGKILL)
        with pytest.raises(dsh.AgentLost):
            reply.result(PATIENCE)


def test_a_worker_that_outlives_the_gates_goes_on() -> None:
    gates = Gates()
    with gates:
        system = dsh.ActorSystem(workers=1)
        child = system.create(behaviours.echo, id="child", isolation="pool").agent
        assert child.ask(1).result(PATIENCE) == 1
        gates.hold("claimed")
        reply = child.ask(2)
    with system:
        assert reply.result(PATIENCE) == 2
        assert child.ask(3).result(PATIENCE) == 3


def test_two_holds_at_one_point_must_both_be_released(gates: Gates) -> None:
    with dsh.ActorSystem() as system:
        handle = system.create(behaviours.echo, id="a")
        one, two = gates.hold("removed"), gates.hold("removed", agent="a")
        stopped = handle.dispose()
        one.wait()
        two.wait()
        one.release()
        one.release()
        done = threading.Event()
        system._supervisor.post(done.set)
        assert done.wait(PATIENCE)
        assert not stopped.done()
        two.release()
        assert stopped.result(PATIENCE).complete
        assert one.arrived == two.arrived == ["a"]


def test_a_hold_can_be_released_on_the_supervisors_own_thread(gates: Gates) -> None:
    """A step of another disposal lets it go, in the middle of the machine's run."""
    held = gates.hold("removed", agent="held")

    def observe(event: Any) -> None:
        if event["type"] == "agent/ended":
            held.release()

    with dsh.ActorSystem(on_event=observe) as system:
        handles = [system.create(behaviours.echo, id=id) for id in ("held", "other")]
        stops = [handle.dispose() for handle in handles]
        for stop in stops:
            assert stop.result(PATIENCE).complete


@EVERYWHERE
def test_a_delay_widens_a_window(gates: Gates, isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.echo, id="slow", isolation=isolation)
        handle.agent.ask(0).result(PATIENCE)
        gates.delay("claimed", 0.02, agent="slow")
        gates.delay("notified", 0.02)
        for act in (lambda: handle.agent.ask(1), handle.dispose):
            began = time.monotonic()
            act().result(PATIENCE)
            assert time.monotonic() - began >= 0.02


def test_jitter_is_the_same_for_the_same_seed_and_changes_no_outcome() -> None:
    def delays(seed: int) -> list[float]:
        with Gates() as gates:
            gates.jitter(seed)
            return [gates._arrive(point, "a")[1] for point in points.POINTS * 2]

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)
    for seed in range(3):
        with Gates() as gates, dsh.ActorSystem(workers=2) as system:
            gates.jitter(seed, most=0.001)

            def use(number: int, system: dsh.ActorSystem = system) -> int:
                isolation = ("inline", "pool")[number % 2]
                handle = system.create(behaviours.echo, isolation=isolation)
                answer: int = handle.agent.ask(number).result(PATIENCE)
                assert handle.dispose().result(PATIENCE).complete
                return answer

            assert in_threads(8, use) == list(range(8))


def test_nothing_is_left_of_the_gates() -> None:
    steps = disposal.STEPS
    with Gates() as gates:
        assert points.plan is gates
        assert disposal.STEPS is not steps
        with pytest.raises(RuntimeError, match="only one"), Gates():
            pass
    assert points.plan is None
    assert disposal.STEPS is steps


def test_what_is_wrong_with_a_hold_is_said(gates: Gates) -> None:
    with pytest.raises(ValueError, match="no point 'gone'"):
        gates.hold("gone")
    with pytest.raises(TimeoutError, match="agent 'a' did not come to the point 'removed'"):
        gates.hold("removed", agent="a").wait(0.01)
    with pytest.raises(TimeoutError, match="no agent came to the point 'removed'"):
        gates.hold("removed").wait(0.01)
