"""Resume: the agents of a crashed system come back with what they had accepted and not done."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore, SqliteStore
from tests.supervisor import resuming
from tests.supervisor.resuming import HERE, crashed, gates, log, turns, types
from tests.watching import PATIENCE, Gate, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool", "own"])


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as made:
        yield made
    gates.clear()
    resuming.systems.clear()


def ask(agent: dsh.Agent, message: Any) -> Any:
    return agent.ask(message).result(PATIENCE)


def resume(system: dsh.ActorSystem, session: str) -> dsh.ResumeReport:
    report = system.resume(session).resumed
    assert report is not None
    return report


def hold_at(name: str) -> Gate:
    gates[name] = Gate()
    return gates[name]


def crash_in_turn(store: MemoryStore, behaviour: str, held: Any, later: list[Any],
                  **options: Any) -> tuple[MemoryStore, str, list[int]]:  # fmt: skip
    """A system that dies while its only agent works on a message, and others wait.

    Returns:
        What the crash has left, the session, and the ids of all messages.
    """
    name = held if isinstance(held, str) else held[-1]
    gate = hold_at(name)
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(f"{HERE}:{behaviour}", id="a", **options).agent
        ids = [agent.send(held)]
        gate.reached()
        ids += [agent.send(each) for each in later]
        left = crashed(store)
        assert agent.session_id is not None
        gate.open()
    return left, agent.session_id, ids


# -- one agent -------------------------------------------------------------------------------------


@pytest.mark.behaviour(102)
@EVERYWHERE
def test_earlier_turns_are_in_the_context_and_numbering_goes_on(
    isolation: str, tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store, dsh.ActorSystem(store=store, workers=1) as system:
        agent = system.create(f"{HERE}:Adder", id="a", isolation=isolation).agent
        assert ask(agent, 5) == 5
        session = agent.session_id
        assert session is not None
    for number in (2, 3):
        with SqliteStore(path) as store:
            before = log(store, session)
            with dsh.ActorSystem(store=store, workers=1) as system:
                handle = system.resume(session)
                assert handle.agent.id == "a"
                assert handle.agent.session_id == session
                assert ask(handle.agent, 1) == 5 + number - 1
                assert system.tree()[0].isolation == isolation
            after = log(store, session)
            assert after[: len(before)] == before
            assert [event.seq for event in after] == list(range(len(after)))
            assert turns(store, session) == list(range(1, number + 1))


@pytest.mark.behaviour(103, 167)
def test_an_unknown_id_fails_loudly_and_creates_nothing(store: MemoryStore) -> None:
    watch = Watch()
    with dsh.ActorSystem(store=store, on_event=watch) as system:
        with pytest.raises(dsh.SessionNotFound, match="nope"):
            system.resume("nope")
        assert system.tree() == []
        failed = watch.see("agent/start-failed")
        assert failed["session"] == "nope"
        assert "nope" in failed["error"]
    assert store.list() == []


def test_without_a_store_there_is_nothing_to_resume() -> None:
    with dsh.ActorSystem() as system, pytest.raises(dsh.UsageError, match="has no store"):
        system.resume("s-1")


@pytest.mark.behaviour(106)
def test_an_interrupted_turn_is_closed_by_what_is_appended(store: MemoryStore) -> None:
    left, session, ids = crash_in_turn(store, "boss", ["hold", "gate"], [["budget"], ["policy"]])
    before, watch = log(left, session), Watch()
    with left, dsh.ActorSystem(store=left, on_event=watch) as system:
        handle = system.resume(session)
        report = handle.resumed
        assert report is not None
        told = watch.see("agent/resumed", "a")
        assert (told["session"], told["queued"]) == (session, 2)
        assert list(report.restored) == ids[1:]
        assert [reply.result(PATIENCE) for reply in report.restored.values()] == [{}, {}]
        handle.agent.when_idle().result(PATIENCE)
        after = log(left, session)
        assert after[: len(before)] == before
        closed, failed, resumed = after[len(before) : len(before) + 3]
        assert (closed.type, closed.data["turn"]) == ("turn/end", 1)
        assert (closed.data["reason"], closed.data["messages"]) == ("interrupted", ids[:1])
        assert (failed.type, failed.data["id"]) == ("prompt/failed", ids[0])
        assert resumed.type == "agent/resumed"
        # The same messages: accepted once, handled once, in their order.
        accepted = [event.data["id"] for event in after if event.type == "prompt/accepted"]
        assert accepted == ids
        handled = [event.data["messages"] for event in after if event.type == "turn/start"]
        assert handled == [[id] for id in ids]
        assert turns(left, session) == [1, 2, 3]


def test_an_interrupted_message_is_tried_again_first_if_it_is_to_be(store: MemoryStore) -> None:
    left, session, ids = crash_in_turn(store, "tries", "gate", ["later"])
    gates.clear()
    with left, dsh.ActorSystem(store=left) as system:
        report = resume(system, session)
        assert list(report.restored) == ids
        answers = [reply.result(PATIENCE) for reply in report.restored.values()]
        assert answers == ["gate", "later"]
        events = log(left, session)
        starts = [event.data["messages"] for event in events if event.type == "turn/start"]
        assert starts == [[ids[0]], [ids[0]], [ids[1]]]
        assert "prompt/failed" not in types(left, session)


def test_a_retry_that_a_second_crash_prevents_is_not_forgotten(store: MemoryStore) -> None:
    left, session, ids = crash_in_turn(store, "tries", "gate", [])
    gate = hold_at("gate")
    with left, dsh.ActorSystem(store=left) as system:
        system.resume(session)
        gate.reached()
        again = crashed(left)
        gate.open()
    gates.clear()
    with again, dsh.ActorSystem(store=again) as system:
        report = resume(system, session)
        assert list(report.restored) == ids
        assert report.restored[ids[0]].result(PATIENCE) == "gate"
        assert turns(again, session) == [1, 2, 3]


def test_quiet_and_steering_messages_keep_their_kinds(store: MemoryStore) -> None:
    gate = hold_at("gate")
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(f"{HERE}:tries", id="a").agent
        agent.send("gate")
        gate.reached()
        ids = [agent.inject("quiet"), agent.send("next"), agent.steer("step")]
        left, session = crashed(store), agent.session_id
        gate.open()
    assert session is not None
    gates.clear()
    with left, dsh.ActorSystem(store=left) as system:
        report = resume(system, session)
        for reply in report.restored.values():
            reply.result(PATIENCE)
        events = log(left, session)
        last = [event.data["messages"] for event in events if event.type == "turn/end"][-1]
        assert set(ids) < set(report.restored)
        # All steering input at once, then one prompt at a time: the retried one is the first.
        assert last == [ids[1]]


def test_new_ids_of_messages_and_agents_are_none_of_the_old(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(f"{HERE}:echo").agent
        old = [agent.send(number) for number in range(5)][-1]
        agent.when_idle().result(PATIENCE)
        left, session = crashed(store), agent.session_id
    assert session is not None
    with left, dsh.ActorSystem(store=left) as system:
        agent = system.resume(session).agent
        assert agent.send("new") > old
        another = system.create(f"{HERE}:echo").agent
        assert another.id != agent.id
        assert another.id.rpartition("-")[0] == agent.id.rpartition("-")[0]


def test_what_had_ended_in_order_comes_back_idle(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        handle = system.create(f"{HERE}:Adder", id="a")
        assert ask(handle.agent, 2) == 2
        session = handle.agent.session_id
        assert session is not None
        handle.dispose().result(PATIENCE)
        assert [info.status for info in store.list()] == ["completed"]
        handle = system.resume(session)  # in the same system as well
        handle.agent.when_idle().result(PATIENCE)
        assert handle.agent.status == "idle"
        assert handle.resumed == dsh.ResumeReport(agents=("a",))
        assert store.flush(PATIENCE)
        assert [info.status for info in store.list()] == ["active"]
        assert ask(handle.agent, 3) == 5
    assert turns(store, session) == [1, 2]


# -- who may resume --------------------------------------------------------------------------------


def test_a_live_session_is_refused_in_the_same_system(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(f"{HERE}:echo", id="a").agent
        session = agent.session_id
        assert session is not None
        store.flush(PATIENCE)
        with pytest.raises(dsh.StoreError, match="live in this system"):
            system.resume(session)
        assert ask(agent, "still") == "still"
    assert "agent/resumed" not in types(store, session)


def test_a_session_that_another_store_holds_is_refused_by_the_holders_name(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path, holder="first") as store, dsh.ActorSystem(store=store) as system:
        agent = system.create(f"{HERE}:echo", id="a").agent
        assert ask(agent, 1) == 1
        session = agent.session_id
        assert session is not None
        store.flush(PATIENCE)
        with SqliteStore(path) as second, dsh.ActorSystem(store=second) as other:
            with pytest.raises(dsh.SessionHeld, match="first"):
                other.resume(session)
            assert other.tree() == []
        assert ask(agent, 2) == 2
        assert turns(store, session) == [1, 2]


def test_a_resume_that_fails_leaves_the_log_to_be_resumed(store: MemoryStore) -> None:
    left, session, ids = crash_in_turn(store, "tries", "gate", ["later"])
    gates.clear()

    def veto(event: dsh.LifeEvent) -> None:
        raise RuntimeError("no")

    with left:
        with dsh.ActorSystem(store=left) as system:
            system.on("agent/created", veto)
            with pytest.raises(RuntimeError, match="no"):
                system.resume(session)
            assert system.tree() == []
        with dsh.ActorSystem(store=left) as system:
            report = resume(system, session)
            assert list(report.restored) == ids
            assert [r.result(PATIENCE) for r in report.restored.values()] == ["gate", "later"]


def test_a_behaviour_that_nobody_finds_again_changes_nothing(store: MemoryStore) -> None:
    def local(turn: dsh.Turn, message: Any) -> Any:
        return message

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(local, id="a").agent
        ask(agent, 1)
        left, session = crashed(store), agent.session_id
    assert session is not None
    before = log(left, session)
    with left, dsh.ActorSystem(store=left) as system:
        with pytest.raises(dsh.BehaviourError, match="inside a function"):
            system.resume(session)
        assert log(left, session) == before
        assert left.holder_of(session) is None


# -- after the loss of a worker --------------------------------------------------------------------


@pytest.mark.behaviour(106)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_a_restart_goes_on_with_its_session(
    isolation: str, stored: bool, store: MemoryStore
) -> None:
    watch = Watch()
    with dsh.ActorSystem(store=store if stored else None, workers=1, on_event=watch) as system:
        agent = system.create(
            f"{HERE}:Adder", id="a", isolation=isolation, restart="permanent"
        ).agent
        assert ask(agent, 5) == 5
        before = log(store, agent.session_id) if stored else []
        assert isinstance(agent.ask("die").exception(PATIENCE), dsh.AgentLost)
        watch.see("agent/restarted", "a")
        assert ask(agent, 1) == 6
        assert [event["turn"] for event in watch.of("turn/start", "a")] == [1, 2, 3]
        assert agent.session_id == system.agent("a").session_id
    if stored:
        events = log(store, agent.session_id)
        assert events[: len(before)] == before
        assert turns(store, agent.session_id) == [1, 2, 3]
        added = [event.type for event in events[len(before) :]]
        assert added[:5] == [
            "prompt/accepted", "turn/start", "turn/end", "prompt/failed", "agent/resumed",
        ]  # fmt: skip
        assert events[len(before) + 2].data["reason"] == "interrupted"
        assert len(store.list()) == 1


@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_a_restart_policy_holds_when_the_tree_is_resumed_again_and_again(
    isolation: str, store: MemoryStore
) -> None:
    with dsh.ActorSystem(store=store, workers=1) as system:
        agent = system.create(
            f"{HERE}:Adder", id="a", isolation=isolation, restart="transient"
        ).agent
        total = ask(agent, 1)
        left, session = crashed(store), agent.session_id
    assert session is not None
    for _ in range(2):
        watch = Watch()
        with left, dsh.ActorSystem(store=left, workers=1, on_event=watch) as system:
            agent = system.resume(session).agent
            os.kill(system.tree()[0].pid, signal.SIGKILL)
            watch.see("agent/restarted", "a")
            assert ask(agent, 1) == total + 1
            total += 1
            left = crashed(left)
    assert turns(left, session) == [1, 2, 3]
    left.close()


def test_calls_that_were_made_are_not_made_again(store: MemoryStore) -> None:
    resuming.made.clear()
    left, session, ids = crash_in_turn(store, "calls", "gate", [])
    assert resuming.made == ["one", "two"]
    gates.clear()
    with left, dsh.ActorSystem(store=left) as system:
        report = resume(system, session)
        assert report.restored[ids[0]].result(PATIENCE) == ["first", "unknown"]
        assert resuming.made == ["one", "two"]
