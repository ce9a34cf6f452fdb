"""Calls and checkpoints of agents in workers; and what a SIGKILL leaves of them in the log."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import calling
import pytest
from watching import PATIENCE, Watch

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.sessions import MemoryStore, SqliteStore
from dsh_actors.sessions.recovery import closers, recover

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.sessions import Event


class Store(MemoryStore):
    """Refuses events of one type, or never says that they are committed."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: str | None = None
        self.hangs: str | None = None

    def append(self, session_id: str, type: str, data: bytes, *, on_commit: Any = None) -> int:
        if type == self.refuses:
            raise dsh.StoreError("the disk is full")
        if type == self.hangs:
            on_commit = None
        return super().append(session_id, type, data, on_commit=on_commit)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        yield made


def log(store: Any, agent: dsh.Agent) -> list[Event]:
    assert store.flush(PATIENCE)
    assert agent.session_id is not None
    events: list[Event] = store.load(agent.session_id)[1]
    return events


def of(events: list[Event], *kinds: str) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in events if event.type.startswith(kinds)]


def noted(folder: Path) -> list[str]:
    file = Path(folder, "did")
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("do", [calling.pays, calling.pays_async])
def test_a_call_in_a_worker_is_on_the_record(store: Store, do: Any, tmp_path: Path) -> None:
    Path(tmp_path, "died").touch()
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(do, isolation="pool").agent
        agent.ask(str(tmp_path)).result(PATIENCE)
        events = log(store, agent)
    message = events[0].data["id"]
    first = {
        "call": "1.1", "message": message, "name": "pay", "key": "pay#1", "idempotent": False,
        "args": {"args": [str(tmp_path), "first"], "kwargs": {}},
    }  # fmt: skip
    result = {"call": "1.1", "ok": True, "result": codec.encode(["first"])}
    expected = [("tool/call", first), ("tool/dispatch", {"call": "1.1"}), ("tool/result", result)]
    assert of(events, "tool/")[:3] == expected
    assert [event.type for event in events] == [
        "prompt/accepted", "turn/start", "tool/call", "tool/dispatch", "tool/result", "tool/call",
        "tool/dispatch", "tool/result", "turn/end",
    ]  # fmt: skip


def test_without_a_store_it_is_just_called(tmp_path: Path) -> None:
    do = calling.pays
    Path(tmp_path, "died").touch()
    with dsh.ActorSystem(workers=1) as system:
        answer = system.create(do, isolation="pool").agent.ask(str(tmp_path)).result(PATIENCE)
    assert answer == {"first": ["first"], "second": ["first", "second"]}


@pytest.mark.parametrize("event", ["tool/call", "tool/dispatch"])
def test_a_body_whose_intent_is_refused_does_not_run(
    store: Store, event: str, tmp_path: Path
) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(calling.pays, isolation="pool").agent
        store.refuses = event
        with pytest.raises(dsh.AgentFailed, match=r"StoreError: call 'pay' was not made.*full"):
            agent.ask(str(tmp_path)).result(PATIENCE)
    assert noted(tmp_path) == []


def test_a_body_does_not_run_if_the_store_hangs(store: Store, tmp_path: Path) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(calling.calls_soon, isolation="pool").agent
        store.hangs = "tool/dispatch"
        with pytest.raises(dsh.AgentFailed, match=r"not confirmed its intent within 0\.05 s"):
            agent.ask(str(tmp_path)).result(PATIENCE)
        results = of(log(store, agent), "tool/result")
    assert noted(tmp_path) == []
    assert [data["error"] for _, data in results] == ["aborted before dispatch"]


@pytest.mark.parametrize("do", [calling.checkpoints, calling.checkpoints_async])
def test_a_checkpoint_in_a_worker(store: Store, do: Any, tmp_path: Path) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(do, isolation="pool").agent
        assert agent.ask(str(tmp_path)).result(PATIENCE) == "passed"
        types = [event.type for event in log(store, agent)]
        assert types == [
            "prompt/accepted", "turn/start", "custom/before", "turn/checkpoint", "turn/end",
        ]  # fmt: skip
        store.refuses = "turn/checkpoint"
        with pytest.raises(dsh.AgentFailed, match=r"not durable.*full"):
            agent.ask(str(tmp_path)).result(PATIENCE)
    assert noted(tmp_path) == ["passed"]


# -- after a SIGKILL ---------------------------------------------------------------------------


@pytest.mark.behaviour(106)
def test_the_log_of_a_killed_worker_is_closed_and_never_cut(tmp_path: Path) -> None:
    """All that was committed before is still there, and the closers come behind it."""
    watch = Watch()
    with (
        SqliteStore(tmp_path / "sessions.db") as store,
        dsh.ActorSystem(workers=1, store=store, on_event=watch) as system,
    ):
        agent = system.create(calling.calls_and_waits, id="a", isolation="pool").agent
        done, cut_off = agent.send("done"), agent.send("waits")
        watch.see("progress", "a")
        before = log(store, agent)
        os.kill(system.tree()[0].pid, signal.SIGKILL)
        watch.see("agent/ended", "a")
        after = log(store, agent)
    assert after[: len(before)] == before
    assert [event.type for event in before][-3:] == ["turn/start", "tool/call", "tool/dispatch"]
    assert of(after[len(before) :], "tool/", "turn/", "prompt/", "agent/")[:3] == [
        ("tool/result", {"call": "2.1", "ok": False, "error": "outcome unknown"}),
        ("turn/end", {"turn": 2, "reason": "interrupted", "messages": [cut_off], "results": []}),
        ("prompt/failed", {"id": cut_off, "reason": "interrupted"}),
    ]
    assert after[-1].type == "agent/ended"
    found = recover(after)
    assert done not in [prompt.id for prompt in found.inbox]
    assert closers(found) == []
    # And what the next cold load would have appended is the same.
    assert closers(recover(before)) == [
        (event.type, event.data) for event in after[len(before) : len(before) + 3]
    ]


RETRIED = {"isolation": "pool", "restart": "transient", "interrupted": "retry"}


@pytest.mark.parametrize("do", [calling.pays, calling.pays_async])
def test_a_retried_turn_gets_what_was_recorded(store: Store, do: Any, tmp_path: Path) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(do, **RETRIED).agent
        answer = agent.ask(str(tmp_path)).result(PATIENCE)
        events = log(store, agent)
    assert answer == {"first": ["first"], "second": ["first", "second"]}
    assert noted(tmp_path) == ["first", "second"]  # each was made once
    reasons = [data["reason"] for _, data in of(events, "turn/end")]
    assert reasons == ["interrupted", "completed"]
    assert closers(recover(events)) == []


def test_an_unknown_outcome_is_told_and_not_made_again(store: Store, tmp_path: Path) -> None:
    do = calling.dies_in_a_call
    with dsh.ActorSystem(workers=1, store=store) as system:
        answer = system.create(do, **RETRIED).agent.ask(str(tmp_path)).result(PATIENCE)
    args = {"args": [str(tmp_path)], "kwargs": {}}
    assert answer == ["pay", "pay#1", args, ["pay", "pay#1", args, False]]
    assert noted(tmp_path) == ["paid"]


def test_an_idempotent_call_is_made_again(store: Store, tmp_path: Path) -> None:
    do = calling.dies_in_an_idempotent_call
    with dsh.ActorSystem(workers=1, store=store) as system:
        assert system.create(do, **RETRIED).agent.ask(str(tmp_path)).result(PATIENCE) == "paid"
    assert noted(tmp_path) == ["paid", "paid"]


def test_an_agent_whose_message_was_failed_hears_what_is_unknown_until_it_has_gone_on(
    store: Store, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"isolation": "pool", "restart": "transient"}
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(calling.unknown, **options).agent
        with pytest.raises(dsh.AgentLost):
            agent.ask(str(tmp_path)).result(PATIENCE)
        args = {"args": [str(tmp_path)], "kwargs": {}}
        assert agent.ask(None).result(PATIENCE) == [["pay", "pay#1", args, False]]
        assert recover(log(store, agent)).calls == ()
        os.kill(system.tree()[0].pid, signal.SIGKILL)
        assert eventually(agent) == []


def eventually(agent: dsh.Agent) -> Any:
    """The answer of an agent whose worker was just killed: the ask may still go down with it."""
    while True:
        try:
            return agent.ask(None).result(PATIENCE)
        except dsh.AgentLost:
            continue


def test_steering_input_that_a_turn_took_on_goes_down_with_it(store: Store) -> None:
    """It is not handed to the next life, which would do it a second time."""
    watch = Watch()
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        options: dict[str, Any] = {"isolation": "pool", "restart": "transient"}
        agent = system.create(calling.steered, id="a", **options).agent
        begin = agent.send("begin")
        watch.see("progress", "a", note="begun")
        steer = agent.steer("steer")
        watch.see("progress", "a", note="took it on")
        os.kill(system.tree()[0].pid, signal.SIGKILL)
        watch.see("agent/restarted", "a")
        assert agent.ask("next").result(PATIENCE) == "next"
        events = log(store, agent)
    assert of(events, "turn/steered") == [("turn/steered", {"turn": 1, "messages": [steer]})]
    failed = [data["id"] for _, data in of(events, "prompt/failed")]
    assert failed == [begin, steer]
    claims = [data["messages"] for _, data in of(events, "turn/start", "turn/steered")]
    assert [steer] in claims
    assert sum(steer in claimed for claimed in claims) == 1


# -- what only the worker knows ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["retried", "Retried"])
def test_the_policy_that_a_behaviour_states_is_known_though_only_a_worker_imports_it(
    store: Store, name: str
) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(f"calling:{name}", isolation="pool").agent
        agent.ask(1).result(PATIENCE)
        said = of(log(store, agent), "agent/options")
        overruled = system.create(f"calling:{name}", isolation="pool", interrupted="fail").agent
        overruled.ask(1).result(PATIENCE)
        assert of(log(store, overruled), "agent/options") == []
    assert said == [("agent/options", {"interrupted": "retry"})]


def test_children_are_given_a_policy_from_a_worker(store: Store) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        system.create(calling.parent, isolation="pool").agent.ask(None).result(PATIENCE)
        assert store.flush(PATIENCE)
        policies = {
            info.agent_id: store.load(info.id)[0].options["interrupted"] for info in store.list()
        }
    assert [policies[name] for name in ("run", "spawned")] == ["retry", "retry"]


def test_what_a_turn_in_a_worker_spends_is_on_the_record(store: Store) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        budget = dsh.Budget(tokens=100)
        agent = system.create(calling.spends, isolation="pool", budget=budget).agent
        agent.ask(7).result(PATIENCE)
        agent.ask(5).result(PATIENCE)
        assert recover(log(store, agent)).tokens == 12
