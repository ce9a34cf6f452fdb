"""What only the launcher knows, on its way to whoever is mounted from configuration."""

from __future__ import annotations

from typing import Any

import pytest

import dsh_actors as dsh
from dsh_actors.config import AgentSpec, TreeSpec
from dsh_actors.errors import StoreError
from dsh_actors.sessions import MemoryStore, SessionHeader
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


@dsh.behaviour
def echo(turn: dsh.Turn, message: Any) -> Any:
    return message


@pytest.mark.behaviour(165)
@pytest.mark.behaviour(166)
def test_identities_are_those_of_the_configured_agents_that_they_name() -> None:
    agents = tuple(AgentSpec(name, f"{__file__}:echo") for name in ("a", "b", "c"))
    with MemoryStore() as store:
        with dsh.ActorSystem(store=store) as system:
            old = system.start_tree(TreeSpec("t", agents=agents[:1]))[0].agent
            assert old.session_id is not None
            old.ask(1).result(timeout=30)
        bound = {
            "a": LaunchIdentity(old.session_id, resume=True),
            "b": LaunchIdentity("s-chosen", resume=False),
        }
        with dsh.ActorSystem(store=store, slots=Slots(bound, launch={"tree": "t"})) as system:
            a, b, c = (handle.agent for handle in system.start_tree(TreeSpec("t", agents=agents)))
            for agent in (a, b, c):
                agent.ask(2).result(timeout=30)
        assert (a.session_id, b.session_id) == (old.session_id, "s-chosen")
        assert c.session_id not in (old.session_id, "s-chosen", None)
        starts = {
            each.id: [e.data["turn"] for e in store.load(each.id).events if e.type == "turn/start"]
            for each in store.list()
        }
        assert starts == {old.session_id: [1, 2], "s-chosen": [1], c.session_id: [1]}
        # How it was launched is kept where the launcher chose the session, and nowhere else.
        launches = {
            each.id: store.load(each.id).header.options.get("launch") for each in store.list()
        }
        assert launches == {old.session_id: None, "s-chosen": {"tree": "t"}, c.session_id: None}


@pytest.mark.behaviour(166)
@pytest.mark.behaviour(167)
@pytest.mark.parametrize(("id", "resume"), [("s-there", False), ("s-gone", True)])
def test_a_log_is_neither_overwritten_nor_made_up(id: str, resume: bool) -> None:
    agents = (AgentSpec("a", f"{__file__}:echo"),)
    events: list[Any] = []
    with MemoryStore() as store:
        store.create(SessionHeader("s-there", "a", "old", "s-there", None, 0, "m:f", 1.0))
        store.set_status("s-there", "completed")
        slots = Slots({"a": LaunchIdentity(id, resume)})
        with dsh.ActorSystem(store=store, slots=slots, on_event=events.append) as system:
            with pytest.raises(StoreError, match=id):
                system.start_tree(TreeSpec("t", agents=agents))
            assert system.tree() == []
        assert [each.id for each in store.list()] == ["s-there"]
    (failed,) = [event for event in events if event["type"] == "agent/start-failed"]
    assert (failed["agent"], failed["session"]) == ("a", id)
