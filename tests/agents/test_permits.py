"""The limit of running plain turns, and what happens to permits while turns wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.agents.permits import Permits

if TYPE_CHECKING:
    from collections.abc import Callable


def test_no_more_plain_turns_run_than_may() -> None:
    lock = threading.Lock()
    running = most = 0
    full = threading.Barrier(3)

    def work(turn: dsh.Turn, message: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(PATIENCE)  # opens only if three run at once
        with lock:
            running -= 1

    with dsh.ActorSystem(max_turns=3) as system:
        replies = [system.create(work).agent.ask(n) for n in range(30)]
        for reply in replies:
            reply.result(PATIENCE)
    assert most == 3


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_waits_nest_deeper_than_the_limit(isolation: str) -> None:
    with dsh.ActorSystem(max_turns=2, workers=1) as system:
        assert system.create(behaviours.deep, isolation=isolation).agent.ask(100).result(60) == 100


def test_nested_asks_need_no_permits_while_they_wait() -> None:
    """The future of an ask held the permit of the turn that waited for it."""

    def chain(turn: dsh.Turn, depth: int) -> int:
        return 1 + agents[depth - 1].ask(depth - 1).result(PATIENCE) if depth else 0

    with dsh.ActorSystem(max_turns=2) as system:
        agents = [system.create(chain).agent for _ in range(101)]
        assert agents[100].ask(100).result(PATIENCE) == 100


def test_an_agent_that_ends_in_the_line_does_not_hold_up_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The permit was offered to the agent that had ended, and nobody else heard of it."""
    gate, in_line = Gate(), threading.Semaphore(0)
    stand_in_line = Permits.wait

    def wait(permits: Permits, ring: Callable[[], object]) -> None:
        stand_in_line(permits, ring)
        in_line.release()

    monkeypatch.setattr(Permits, "wait", wait)

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem(max_turns=1) as system:
        system.create(hold).agent.send(None)
        gate.reached()
        second = system.create(behaviours.echo)
        second.agent.send("never")
        assert in_line.acquire(timeout=PATIENCE)
        third = system.create(behaviours.echo).agent.ask("third")
        assert in_line.acquire(timeout=PATIENCE)
        second.dispose().result(PATIENCE)
        gate.open()
        assert third.result(PATIENCE) == "third"


def test_a_cancelled_turn_ends_without_a_permit() -> None:
    """It waited for one before it could learn that it was cancelled."""
    gate, watch = Gate(), Watch()

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem(max_turns=1, on_event=watch) as system:
        waiting = system.create(behaviours.wait, id="waiting")
        reply = waiting.agent.ask(None)
        watch.see("progress", "waiting")
        system.create(hold).agent.send(None)
        gate.reached()  # it got the permit of the turn that waits
        receipt = waiting.dispose().result(PATIENCE)
        assert receipt.complete
        with pytest.raises(dsh.TurnAborted):
            reply.result(0)
        gate.open()
