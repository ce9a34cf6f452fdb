"""What a session's log holds: accepted, begun, ended or discarded, whatever happened."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dsh_actors.sessions import Event

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryStore | SqliteStore]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db")
    with made:
        yield made


def log(store: Any, agent: dsh.Agent) -> list[tuple[str, Any]]:
    """The events of an agent's session, as (type, data)."""
    assert store.flush(PATIENCE)
    assert agent.session_id is not None
    return [(event.type, event.data) for event in store.load(agent.session_id)[1]]


def types(events: list[tuple[str, Any]]) -> list[str]:
    return [type for type, _ in events]


def assert_balanced(events: list[Event]) -> None:
    """Every turn is closed exactly once; every accepted message is claimed or discarded, once."""
    opened: int | None = None
    waiting: set[int] = set()
    for event in events:
        data = event.data
        if event.type == "prompt/accepted":
            waiting.add(data["id"])
        elif event.type == "prompt/discarded":
            waiting.remove(data["id"])
        elif event.type == "turn/start":
            assert opened is None
            opened = data["turn"]
            for id in data["messages"]:
                waiting.remove(id)
        elif event.type == "turn/end":
            assert opened == data["turn"]
            opened = None
    assert opened is None
    assert not waiting


@EVERYWHERE
def test_a_turn_is_on_the_record_from_acceptance_to_result(store: Any, isolation: str) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        handle = system.create(behaviours.echo, isolation=isolation)
        id = handle.agent.send({"n": 1})
        handle.agent.when_idle().result(PATIENCE)
        handle.dispose().result(PATIENCE)
        events = log(store, handle.agent)
    accepted, start, end, ended = events
    assert accepted[0] == "prompt/accepted"
    assert accepted[1]["id"] == id
    assert accepted[1]["kind"] == "follow-up"
    assert start == ("turn/start", {"turn": 1, "messages": [id]})
    assert end[0] == "turn/end"
    assert end[1]["reason"] == "completed"
    assert [result["id"] for result in end[1]["results"]] == [id]
    assert ended == ("agent/ended", {"outcome": "completed"})


def test_an_acknowledged_message_is_a_committed_one(tmp_path: Path) -> None:
    """Read by another connection, the moment that send returns, with the turn held."""
    gate = Gate()

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store, dsh.ActorSystem(store=store) as system:
        agent = system.create(hold).agent
        for number in range(5):
            id = agent.send(number)
            with SqliteStore(path) as reader:
                assert agent.session_id is not None
                found = [e.data["id"] for e in reader.load(agent.session_id)[1] if "id" in e.data]
            assert found[-1] == id
        gate.open()


@pytest.mark.behaviour(10)
@EVERYWHERE
@pytest.mark.parametrize("cause", ["user", "disposed", "parent"])
def test_the_cause_of_a_cancel_is_in_the_end_of_the_turn(
    store: Any, cause: str, isolation: str
) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        if cause == "parent":

            def parent(turn: dsh.Turn, message: Any) -> None:
                turn.run(behaviours.wait, None, id="w", isolation=isolation)
                watch.see("progress", "w")

            system.create(parent).agent.ask(None).result(PATIENCE)
            watch.see("agent/ended", "w")
        else:
            handle = system.create(behaviours.wait, id="w", isolation=isolation)
            handle.agent.send(None)
            watch.see("progress", "w")
            if cause == "user":
                handle.agent.cancel()
            handle.dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        (session,) = [info for info in store.list() if info.agent_id == "w"]
        (end,) = [e for e in store.load(session.id)[1] if e.type == "turn/end"]
    assert (end.data["reason"], end.data["cause"]) == ("aborted", cause)


@EVERYWHERE
def test_a_failed_turn_has_its_error_on_the_record(store: Any, isolation: str) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(behaviours.fail, isolation=isolation).agent
        agent.ask("no").exception(PATIENCE)
        (end,) = [data for type, data in log(store, agent) if type == "turn/end"]
    assert end["reason"] == "error"
    assert end["error"]["type"] == "ValueError"
    assert end["error"]["message"] == "no"
    assert "Traceback" in end["error"]["traceback"]


@pytest.mark.behaviour(4, 23)
@EVERYWHERE
def test_a_cancel_discards_both_lists_on_the_record(store: Any, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        agent = system.create(behaviours.wait, id="w", isolation=isolation).agent
        first = agent.send("running")
        watch.see("progress", "w")
        prompts = [agent.send(number) for number in range(3)]
        steering = [agent.steer("now"), agent.inject("quietly")]
        agent.cancel()
        agent.when_idle().result(PATIENCE)
        events = log(store, agent)
    discarded = [data["id"] for type, data in events if type == "prompt/discarded"]
    assert sorted(discarded) == sorted(prompts + steering)
    assert [data["messages"] for type, data in events if type == "turn/start"] == [[first]]


@EVERYWHERE
def test_a_message_that_waits_quietly_is_discarded_at_the_end(store: Any, isolation: str) -> None:
    """A worker's word of it came after its agent had been released, and was ignored."""
    with dsh.ActorSystem(workers=1, store=store) as system:
        handle = system.create(behaviours.echo, isolation=isolation)
        handle.agent.ask("ready").result(PATIENCE)
        id = handle.agent.inject("quietly")
        if isolation == "pool":
            pid = system.tree()[0].pid
            os.kill(pid, signal.SIGSTOP)  # it says nothing now
            stopped = handle.dispose()
            for _ in range(5):
                looked = threading.Event()
                system._supervisor.post(looked.set)
                assert looked.wait(PATIENCE)
                assert store.flush(PATIENCE)
            assert not stopped.done()
            os.kill(pid, signal.SIGCONT)
        handle.dispose().result(PATIENCE)
        events = log(store, handle.agent)
    assert ("prompt/discarded", {"id": id, "cause": "disposed"}) in events
    assert types(events)[-1] == "agent/ended"


@EVERYWHERE
def test_what_an_agent_remembers_is_in_its_session(store: Any, isolation: str) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(behaviours.remembers, isolation=isolation).agent
        agent.ask("this").result(PATIENCE)
        assert ("custom/noted", {"what": "this"}) in log(store, agent)


@pytest.mark.behaviour(18)
@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_a_turn_of_a_killed_process_is_closed(store: Any, isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        handle = system.create(behaviours.wait, id="w", isolation=isolation)
        handle.agent.send("running")
        watch.see("progress", "w")
        handle.agent.send("waits")
        os.kill(system.tree()[0].pid, signal.SIGKILL)
        watch.see("agent/ended", "w")
        assert store.flush(PATIENCE)
        events = store.load(handle.agent.session_id).events
    assert_balanced(events)
    (end,) = [event for event in events if event.type == "turn/end"]
    assert end.data["reason"] == "interrupted"
    assert events[-1].data["outcome"] == "lost"


@pytest.mark.behaviour(18)
def test_a_turn_that_had_to_be_ended_by_force_is_closed(store: Any) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, store=store, stop_grace=0.2, on_event=watch) as system:
        handle = system.create(behaviours.spin, id="s", isolation="pool")
        handle.agent.send("running")
        watch.see("progress", "s")
        handle.agent.send("waits")
        handle.dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        events = store.load(handle.agent.session_id).events
    assert_balanced(events)
    (end,) = [event for event in events if event.type == "turn/end"]
    assert (end.data["reason"], end.data["cause"]) == ("aborted", "disposed")


def test_a_failed_start_discards_what_was_accepted(store: Any) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        handle = system.create(behaviours.BadStart, isolation="pool")
        try:
            handle.agent.send("x")
        except dsh.AgentGone:
            pass
        handle.dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        events = store.load(handle.agent.session_id).events
    assert_balanced(events)
    assert events[-1].data["outcome"] == "failed"


def test_children_are_recorded_below_their_parents(store: Any) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        levels = ["pool", "inline", "pool"]
        handle = system.create(behaviours.nested, id="n")
        handle.agent.send({"levels": levels})
        watch.see("progress", "n...")
        handle.dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        headers = {info.agent_id: store.load(info.id)[0] for info in store.list()}
    assert len(headers) == 4
    top = headers["n"].id
    for name, header in headers.items():
        assert header.depth == name.count(".")
        assert header.root == top
        assert header.parent == (headers[name[:-1]].id if name != "n" else None)


# -- a store that fails --------------------------------------------------------------------------


class Refusing(MemoryStore):
    """Refuses the acceptances that it is told to, at once or at their commit."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: str | None = None

    def append(self, session_id: str, type: str, data: bytes, *, on_commit: Any = None) -> int:
        if type == "prompt/accepted" and self.refuse == "at once":
            raise dsh.StoreError("the disk is full")
        if type == "prompt/accepted" and self.refuse == "later":
            error = dsh.StoreError("the disk is full")
            threading.Thread(target=on_commit, args=(error,)).start()
            return 0
        return super().append(session_id, type, data, on_commit=on_commit)


WHEN = pytest.mark.parametrize("when", ["at once", "later"])


@WHEN
@EVERYWHERE
def test_a_message_that_is_not_stored_is_not_accepted(when: str, isolation: str) -> None:
    """Refused at once, it locked up the whole system."""
    with Refusing() as store, dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(behaviours.echo, isolation=isolation).agent
        store.refuse = when
        with pytest.raises(dsh.StoreError, match="the disk is full"):
            agent.send(1)
        with pytest.raises(dsh.StoreError, match="the disk is full"):
            agent.ask(1).result(PATIENCE)
        assert agent.when_idle().result(PATIENCE) is None
        store.refuse = None
        assert agent.ask("again").result(PATIENCE) == "again"


@WHEN
@EVERYWHERE
def test_a_one_shot_whose_message_is_not_stored_fails(when: str, isolation: str) -> None:
    """It waited for ever for a message that would never come."""

    def parent(turn: dsh.Turn, message: Any) -> Any:
        store.refuse = when
        job = turn.run(behaviours.echo, 1, isolation=isolation)
        return list(job.result(PATIENCE))

    with Refusing() as store, dsh.ActorSystem(workers=1, store=store) as system:
        kind, _, error_type, error, _ = system.create(parent).agent.ask(1).result(PATIENCE)
    assert (kind, error_type) == ("failed", "StoreError")
    assert "the disk is full" in error


def test_a_child_whose_first_message_is_not_stored_is_taken_back() -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        store.refuse = "at once"
        turn.spawn(behaviours.echo, 1, id="child")

    with Refusing() as store, dsh.ActorSystem(store=store, on_event=watch) as system:
        with pytest.raises(dsh.AgentFailed, match="StoreError"):
            system.create(parent).agent.ask(1).result(PATIENCE)
        watch.see("agent/ended", "child")


def test_an_agent_whose_session_is_refused_was_never_there(store: Any) -> None:
    """Its arguments cannot be stored. It stayed in the tree, half made."""
    with dsh.ActorSystem(store=store) as system:
        for _ in range(2):
            with pytest.raises(dsh.MessageError, match="callback"):
                system.create(behaviours.echo, id="x", args={"callback": print})
            assert system.tree() == []
        assert system.create(behaviours.echo, id="x").agent.ask(1).result(PATIENCE) == 1


def test_a_store_that_is_closed_first_holds_up_nothing() -> None:
    store = MemoryStore()
    system = dsh.ActorSystem(store=store)
    handle = system.create(behaviours.echo)
    store.close()
    with pytest.raises(dsh.StoreError, match="closed"):
        handle.agent.send(1)
    with pytest.raises(dsh.StoreError, match="closed"):
        system.create(behaviours.echo)
    assert system.shutdown().result(PATIENCE).complete
