"""Start and stop hooks of class behaviours, plain and async, wherever the agent lives."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.supervisor.turns import Turns

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool", "own"])


@EVERYWHERE
@pytest.mark.parametrize("kind", [behaviours.Counter, behaviours.AsyncCounter])
def test_hooks_run_around_the_messages(kind: type[dsh.Behaviour], isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(kind, id="c", args={"start": 1000}, isolation=isolation)
        assert handle.agent.ask(20).result(20) == 1120
        assert handle.agent.ask(3).result(20) == 1123
        receipt = handle.dispose().result(20)
    notes = [event["note"] for event in watch.of("progress", "c")]
    assert notes == ["started", "stopped at 1123"]
    assert [end.outcome for end in receipt.agents] == ["completed"]


@EVERYWHERE
def test_an_async_class_needs_no_hooks(isolation: str) -> None:
    """The hooks that it inherits are plain; awaiting what they return failed its release."""
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.OnlyMessages, isolation=isolation)
        assert handle.agent.ask("x").result(20) == "x"
        receipt = handle.dispose().result(20)
    assert [(end.outcome, end.detail) for end in receipt.agents] == [("completed", None)]


@EVERYWHERE
def test_a_failing_start_fails_the_agent_and_who_asked_it(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(behaviours.BadStart, id="b", isolation=isolation)
        try:
            reply = handle.agent.ask("x")
        except dsh.AgentGone:  # it has failed already
            pass
        else:
            with pytest.raises((dsh.AgentFailed, dsh.TurnAborted)):
                reply.result(20)
        ended = watch.see("agent/ended", "b")
        assert (ended["outcome"], ended["detail"]) == ("failed", "RuntimeError: no start today")
        with pytest.raises(dsh.AgentGone, match=r"'b' has ended \(failed\)"):
            handle.agent.send("y")


@EVERYWHERE
def test_a_failing_stop_is_told_and_holds_nothing_up(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.BadStop, isolation=isolation)
        assert handle.agent.ask("x").result(20) == "x"
        receipt = handle.dispose().result(20)
    (end,) = receipt.agents
    assert end.outcome == "failed"
    assert end.detail == "its stop hook failed: RuntimeError: no end today"
    assert receipt.complete


@pytest.mark.behaviour(38)
@pytest.mark.parametrize("isolation", ["inline", "pool"])
@pytest.mark.parametrize("kind", [behaviours.WaitsInStart, behaviours.WaitsInAsyncStart])
def test_a_stop_interrupts_a_start(kind: type[dsh.Behaviour], isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(kind, id="w", isolation=isolation)
        watch.see("progress", "w")
        receipt = handle.dispose().result(20)
        assert receipt.complete
        assert [end.outcome for end in receipt.agents] == ["aborted"]
        assert not receipt.processes  # its worker was not ended for it


@pytest.mark.parametrize("kind", [behaviours.WaitsInStart, behaviours.WaitsInAsyncStart])
def test_an_agent_whose_start_is_cancelled_ends(kind: type[dsh.Behaviour]) -> None:
    """It was taken for started, without the rest of its start, and as plain if it was async."""
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(kind, id="w")
        watch.see("progress", "w")
        handle.agent.interrupt()
        ended = watch.see("agent/ended", "w")
        assert ended["outcome"] == "aborted"
        assert ended["detail"] == "its start was cancelled (user)"


def test_an_async_start_may_ask_a_plain_agent_under_the_smallest_limit() -> None:
    """It held the only permit while it ran on the loop."""

    class Asks(dsh.Behaviour):
        async def on_start(self, turn: dsh.Turn) -> None:
            self.answer = await other.agent.ask("hello")

        async def on_message(self, turn: dsh.Turn, message: Any) -> Any:
            return self.answer

    with dsh.ActorSystem(max_turns=1) as system:
        other = system.create(behaviours.echo)
        assert system.create(Asks).agent.ask(None).result(20) == "hello"


def test_a_stop_that_races_a_failing_start_reports_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent was quiet before its failure was on record, so the stop called it completed."""
    starting, supervising, told = Gate(), Gate(), threading.Event()
    started = Turns.started

    def tell(turns: Turns, *args: Any) -> None:
        started(turns, *args)
        told.set()

    class Fails(dsh.Behaviour):
        def on_start(self, turn: dsh.Turn) -> None:
            starting.hold()
            raise RuntimeError("no start today")

    monkeypatch.setattr(Turns, "started", tell)
    with dsh.ActorSystem() as system:
        handle = system.create(Fails)
        starting.reached()
        system._supervisor.post(supervising.hold)
        supervising.reached()
        stopped = handle.dispose()  # its disposal is to begin when the supervisor goes on
        starting.open()
        assert told.wait(PATIENCE)  # and the report of the failure comes after that
        supervising.open()
        (end,) = stopped.result(PATIENCE).agents
    assert (end.outcome, end.detail) == ("failed", "RuntimeError: no start today")
