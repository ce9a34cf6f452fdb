"""Waiting inside a turn: interrupted by its signal, refused where it would block the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def waits(system: dsh.ActorSystem, gate: Gate) -> dict[str, Callable[[], Any]]:
    """Everything that a turn can wait for, here for an agent that is held at the gate."""

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    other = system.create(hold)
    other.agent.send(None)
    gate.reached()
    return {
        "ask": lambda: other.agent.ask(None).result(),
        "ask, exception": lambda: other.agent.ask(None).exception(),
        "ask, mapped": lambda: other.agent.ask(None).map(str).result(),
        "when_idle": lambda: other.agent.when_idle().result(),
        "dispose": lambda: other.dispose().result(),
    }


WAITS = pytest.mark.parametrize(
    "what", ["ask", "ask, exception", "ask, mapped", "when_idle", "dispose"]
)


@pytest.mark.behaviour(13)
@WAITS
def test_a_cancel_interrupts_whatever_a_plain_turn_waits_for(what: str, gate: Gate) -> None:
    """Only the wait for a job was interrupted."""
    watch = Watch()

    def waiter(turn: dsh.Turn, message: Any) -> None:
        turn.progress(note="waits")
        wait()

    system = dsh.ActorSystem(on_event=watch)
    wait = waits(system, gate)[what]
    agent = system.create(waiter, id="waiter").agent
    reply = agent.ask(None)
    watch.see("progress", "waiter")
    agent.cancel()
    with pytest.raises(dsh.TurnAborted):
        reply.result(PATIENCE)
    gate.open()
    system.shutdown().result(PATIENCE)


@pytest.mark.parametrize("what", ["ask", "ask, mapped", "when_idle", "dispose"])
def test_an_async_turn_is_told_to_await(what: str, gate: Gate) -> None:
    async def waiter(turn: dsh.Turn, message: Any) -> None:
        wait()

    with dsh.ActorSystem() as system:
        wait = waits(system, gate)[what]
        with pytest.raises(dsh.AgentFailed, match=r"UsageError: .*await it instead"):
            system.create(waiter).agent.ask(None).result(PATIENCE)
        gate.open()


def test_a_thread_of_an_async_turn_may_wait() -> None:
    """It was taken for the loop's thread, because it has a copy of the turn's context."""

    def echo(turn: dsh.Turn, message: Any) -> Any:
        return message

    async def asks(turn: dsh.Turn, message: Any) -> Any:
        return await asyncio.to_thread(lambda: other.ask(message).result(PATIENCE))

    with dsh.ActorSystem(max_turns=1) as system:
        other = system.create(echo).agent
        assert system.create(asks).agent.ask("hello").result(PATIENCE) == "hello"


@pytest.mark.behaviour(65)
def test_a_waiters_own_timeout_holds(gate: Gate) -> None:
    """With another one waiting already, and in a plain turn as well."""

    def impatient(turn: dsh.Turn, message: Any) -> str:
        with pytest.raises(TimeoutError):
            futures["stop"].result(0.01)
        return "went on"

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    futures = {}
    with dsh.ActorSystem() as system:
        handle = system.create(hold)
        handle.agent.send(None)
        gate.reached()
        futures["stop"] = handle.dispose()
        waiting = threading.Thread(target=futures["stop"].result)
        waiting.start()
        with pytest.raises(TimeoutError):
            futures["stop"].result(0.01)
        assert system.create(impatient).agent.ask(None).result(PATIENCE) == "went on"
        gate.open()
        waiting.join(PATIENCE)


@pytest.mark.behaviour(66)
@pytest.mark.parametrize("how", ["dispose", "shutdown"])
def test_a_turn_that_waits_for_its_own_end_is_cancelled(how: str) -> None:
    """It waited for itself until it was given up as a survivor."""
    system = dsh.ActorSystem()

    def suicidal(turn: dsh.Turn, message: Any) -> None:
        stopped = handle.dispose() if how == "dispose" else system.shutdown()
        stopped.result()

    handle = system.create(suicidal)
    reply = handle.agent.ask(None)
    with pytest.raises(dsh.TurnAborted):
        reply.result(PATIENCE)
    receipt = handle.dispose().result(PATIENCE)
    assert receipt.complete
    assert [end.outcome for end in receipt.agents] == ["aborted"]
    system.shutdown().result(PATIENCE)
