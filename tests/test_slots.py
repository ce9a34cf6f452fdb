"""What only the launcher knows, on its way to whoever is mounted from configuration."""

from __future__ import annotations

from typing import Any

import pytest

import dsh_actors as dsh
from dsh_actors.slots import NO_SLOTS, LaunchIdentity, Slots

LINE = "to resume: dsh-actors run tree.yaml --resume s-1"
SLOTS = Slots({"first": LaunchIdentity("s-1", resume=False)}, LINE, launch={"tree": "tree.yaml"})


class Reader(dsh.Behaviour):
    """Reads the slots before it does anything else."""

    def on_start(self, turn: dsh.Turn) -> None:
        self.seen = [turn.slots]

    def on_message(self, turn: dsh.Turn, message: Any) -> list[Any]:
        self.seen.append(turn.slots)
        return [
            [[key, one.id, one.resume] for key, one in slots.identities.items()]
            + [slots.exit_line, slots.hand_over is not None, slots.launch]
            for slots in self.seen
        ]


def hand_over(session_id: str) -> Any:
    raise AssertionError("nobody asked for it")


@pytest.mark.behaviour(163)
@pytest.mark.parametrize("isolation", ["inline", "pool", "own"])
def test_the_slots_are_there_in_the_first_statement_of_an_agent(isolation: str) -> None:
    slots = Slots(SLOTS.identities, LINE, hand_over, SLOTS.launch)
    with dsh.ActorSystem(workers=1, slots=slots) as system:
        assert system.slots is slots
        agent = system.create(Reader, isolation=isolation).agent
        here = isolation == "inline"
        expected = [["first", "s-1", False], LINE, here, {"tree": "tree.yaml"}]
        assert agent.ask(None).result(timeout=30) == [expected, expected]


@pytest.mark.behaviour(163)
def test_a_worker_that_was_started_before_the_system_gets_them_too() -> None:
    from dsh_actors.workers.early import start_early

    start_early()
    with dsh.ActorSystem(workers=1, slots=SLOTS) as system:
        agent = system.create(Reader, isolation="pool").agent
        (_, then) = agent.ask(None).result(timeout=30)
        assert then == [["first", "s-1", False], LINE, False, {"tree": "tree.yaml"}]


@pytest.mark.behaviour(168)
def test_a_system_that_nobody_launched_has_none() -> None:
    with dsh.ActorSystem(workers=1) as system:
        assert system.slots is NO_SLOTS
        agent = system.create(Reader, isolation="pool").agent
        assert agent.ask(None).result(timeout=30) == [[None, False, None]] * 2


@pytest.mark.behaviour(175)
@pytest.mark.parametrize(
    "slots", [Slots(exit_line=LINE), Slots(hand_over=hand_over)], ids=["line", "hand-over"]
)
def test_the_exit_line_and_the_hand_over_are_independent(slots: Slots) -> None:
    with dsh.ActorSystem(workers=1, slots=slots) as system:
        agent = system.create(Reader).agent
        seen = agent.ask(None).result(timeout=30)[0]
    assert seen == [slots.exit_line, slots.hand_over is not None, None]
