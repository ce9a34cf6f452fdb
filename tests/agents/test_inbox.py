"""Delivery: order, kinds, limits, and who is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, in_threads

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])


@pytest.mark.behaviour(25)
@EVERYWHERE
@pytest.mark.parametrize("stored", [False, True])
def test_one_senders_messages_keep_their_order(isolation: str, stored: bool) -> None:
    with (
        MemoryStore() as store,
        dsh.ActorSystem(workers=1, store=store if stored else None) as system,
    ):
        agent = system.create(behaviours.collects, isolation=isolation).agent
        in_threads(4, lambda sender: [agent.send([sender, n]) for n in range(200)])
        got = agent.ask("all").result(PATIENCE)
    assert len(got) == 800
    for sender in range(4):
        assert [n for s, n in got if s == sender] == list(range(200))


@pytest.mark.behaviour(26, 27)
@EVERYWHERE
def test_a_quiet_message_waits_for_the_next_turn(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviours.collects, isolation=isolation).agent
        assert agent.ask("all").result(PATIENCE) == []
        agent.inject("quiet")
        assert agent.when_idle().result(PATIENCE) is None  # it starts nothing
        assert agent.status == "idle"
        agent.send("loud")
        # One turn took both, the quiet one first.
        assert agent.ask("all").result(PATIENCE) == ["quiet", "loud"]


@pytest.mark.behaviour(27)
def test_steering_joins_the_running_turn_and_a_prompt_does_not() -> None:
    gates = {"first": Gate(), "steer": Gate()}
    turns: list[tuple[int, Any]] = []

    def notes(turn: dsh.Turn, message: Any) -> None:
        turns.append((turn.number, message))
        if message in gates:
            gates[message].hold()

    with dsh.ActorSystem() as system:
        agent = system.create(notes).agent
        agent.send("first")
        gates["first"].reached()
        agent.send("prompt")
        agent.steer("steer")
        agent.inject("quiet")
        gates["first"].open()
        gates["steer"].reached()
        agent.inject("late")
        gates["steer"].open()
        agent.when_idle().result(PATIENCE)
    assert turns == [(1, "first"), (1, "steer"), (1, "quiet"), (1, "late"), (2, "prompt")]


@EVERYWHERE
def test_steering_wakes_an_idle_agent(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviours.collects, isolation=isolation).agent
        agent.steer("now")
        assert agent.ask("all").result(PATIENCE) == ["now"]


@EVERYWHERE
@pytest.mark.parametrize("stored", [False, True])
def test_a_full_inbox_refuses_and_drops_nothing(isolation: str, stored: bool) -> None:
    with MemoryStore() as store:
        system = dsh.ActorSystem(workers=1, inbox_limit=5, store=store if stored else None)
        with system:
            handle = system.create(behaviours.wait_or_echo, isolation=isolation)
            handle.agent.ask("ready").result(PATIENCE)
            handle.agent.send("wait")
            # Five fit; the running one may count or not.
            accepted = [handle.agent.ask(number) for number in range(4)]
            with pytest.raises(dsh.InboxFull, match="nothing was dropped"):
                accepted.extend(handle.agent.ask(number) for number in range(3))
            with pytest.raises(dsh.InboxFull):
                handle.agent.send("still full")
            assert not any(reply.done() for reply in accepted)
            handle.dispose().result(PATIENCE)
            assert all(reply.done() for reply in accepted)


def _send_or_stop(handle: dsh.AgentHandle, number: int) -> tuple[int, int, int]:
    """Send 60 messages; how many were refused, answered and discarded. The third one stops."""
    refused = answered = discarded = 0
    if number == 2:
        handle.dispose().result(PATIENCE)
        return 0, 0, 0
    replies = []
    for n in range(60):
        try:
            replies.append(handle.agent.ask(n))
        except dsh.AgentGone:
            refused += 1
    for reply in replies:
        error = reply.exception(PATIENCE)
        if error is None:
            answered += 1
        else:
            assert isinstance(error, dsh.TurnAborted)
            discarded += 1
    return refused, answered, discarded


@pytest.mark.behaviour(31)
@EVERYWHERE
def test_senders_race_a_stop(isolation: str) -> None:
    """Every message is refused, run, or discarded on the record; every ask is answered."""
    for _ in range(5):
        with MemoryStore() as store, dsh.ActorSystem(workers=1, store=store) as system:
            handle = system.create(behaviours.echo, isolation=isolation)
            counts = in_threads(3, partial(_send_or_stop, handle))
            refused, answered, discarded = (sum(column) for column in zip(*counts, strict=True))
            assert refused + answered + discarded == 120
            assert store.flush(PATIENCE)
            events = store.load(handle.agent.session_id or "").events
        kinds = [event.type for event in events]
        assert kinds.count("prompt/accepted") == answered + discarded
        dropped = kinds.count("prompt/discarded")
        assert (
            kinds.count("turn/start") == kinds.count("turn/end") == answered + discarded - dropped
        )


@EVERYWHERE
def test_an_agent_that_has_ended_refuses(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.echo, id="gone", isolation=isolation)
        handle.dispose().result(PATIENCE)
        for send in (
            handle.agent.send, handle.agent.ask, handle.agent.steer, handle.agent.inject,
        ):  # fmt: skip
            with pytest.raises(dsh.AgentGone, match="'gone' has ended"):
                send("hello")
        assert handle.agent.status == "settled"
        handle.agent.cancel()  # a silent nothing
        assert handle.agent.when_idle().result(PATIENCE) is None


def test_an_agent_that_is_stopping_refuses_at_once() -> None:
    gate = Gate()

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem() as system:
        handle = system.create(hold, id="h")
        handle.agent.send(None)
        gate.reached()
        stopped = handle.dispose()
        assert handle.agent.status == "stopping"
        with pytest.raises(dsh.AgentGone, match="'h' is stopping"):
            handle.agent.ask(None)
        gate.open()
        stopped.result(PATIENCE)


# -- circles of asks -----------------------------------------------------------------------------


def test_an_agent_that_asks_itself_is_told() -> None:
    def narcissus(turn: dsh.Turn, message: Any) -> Any:
        return agent.ask("me").result(PATIENCE)

    with dsh.ActorSystem() as system:
        agent = system.create(narcissus, id="n").agent
        with pytest.raises(dsh.AgentFailed, match=r"AskCycle: .*n -> n"):
            agent.ask("start").result(PATIENCE)


def test_a_circle_of_asks_is_named() -> None:
    agents: dict[str, dsh.Agent] = {}

    def ask_next(turn: dsh.Turn, message: Any) -> Any:
        following = {"a": "b", "b": "c", "c": "a"}[turn.agent_id]
        return agents[following].ask(message).result(PATIENCE)

    async def ask_next_async(turn: dsh.Turn, message: Any) -> Any:
        following = {"a": "b", "b": "c", "c": "a"}[turn.agent_id]
        return await agents[following].ask(message)

    for behaviour in (ask_next, ask_next_async):
        with dsh.ActorSystem() as system:
            for name in "abc":
                agents[name] = system.create(behaviour, id=name).agent
            with pytest.raises(dsh.AgentFailed, match="a -> b -> c -> a"):
                agents["a"].ask("x").result(PATIENCE)
            assert agents["b"].status == "idle"


def test_a_child_that_asks_the_parent_that_waits_for_it_is_told() -> None:
    def child(turn: dsh.Turn, message: Any) -> Any:
        return agent.ask("parent?").result(PATIENCE)

    def parent(turn: dsh.Turn, message: Any) -> Any:
        return turn.run(child, None, id="child").result(PATIENCE).error

    with dsh.ActorSystem() as system:
        agent = system.create(parent, id="parent").agent
        assert "parent -> child -> parent" in agent.ask("go").result(PATIENCE)
