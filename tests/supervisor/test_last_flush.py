"""The end of an agent's session: all that its end appends is seen, and it is flushed once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore
from dsh_actors.sessions.recovery import repair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.sessions import Event


class Store(MemoryStore):
    """Says when an event of one type is appended and committed, and can hold the commit up."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[str] = []
        self.held: str | None = None
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.failures = 0
        self.refuses: str | None = None

    def append(self, session_id: str, type: str, data: bytes, *, on_commit: Any = None) -> int:
        self.appended.append(type)
        if type == self.refuses:
            raise dsh.StoreError("the disk is full")
        return super().append(session_id, type, data, on_commit=on_commit)

    def _commit(self, group: Any) -> None:
        types = [op[3] for op in group if isinstance(op, tuple)]
        if self.held in types and not self.go_on.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE)
        if self.failures and "agent/ended" in types:
            self.failures -= 1
            self.reached.set()
            raise dsh.StoreError("the disk is full")
        super()._commit(group)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        yield made
        made.go_on.set()


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


@pytest.mark.behaviour(98)
def test_the_session_of_an_agent_is_published_until_its_loop_has_stopped_and_flushed(
    store: Store,
) -> None:
    """What the abort path appends, and code that takes its time, is seen by who listens."""
    gate, seen = Gate(), []
    remove = store.observe(lambda session, event: seen.append((session, event.type, event.data)))

    def stubborn(turn: dsh.Turn, message: Any) -> None:
        gate.hold()
        turn.remember("after the cancel", 1)
        turn.check()

    with dsh.ActorSystem(store=store, stop_grace=PATIENCE) as system:
        handle = system.create(stubborn, id="a")
        session, key = handle.agent.session_id, handle.agent._target.generation
        running = handle.agent.send("runs")
        gate.reached()
        waiting = handle.agent.send("waits")
        store.held = "agent/ended"
        stopped = handle.dispose()
        assert key in system._core.sessions  # the loop has not stopped
        gate.open()
        assert store.reached.wait(PATIENCE)
        assert not stopped.done()  # it has stopped, and not flushed
        assert key in system._core.sessions
        assert system.agent("a").session_id == session
        store.go_on.set()
        stopped.result(PATIENCE)
        assert key not in system._core.sessions
        assert store.flush(PATIENCE)
    remove()
    discarded = [data["id"] for _, type, data in seen if type == "prompt/discarded"]
    assert discarded == [waiting]
    (end,) = [data for _, type, data in seen if type == "turn/end"]
    assert (end["reason"], end["cause"], end["messages"]) == ("aborted", "disposed", [running])
    assert session is not None
    assert [type for _, type, _ in seen] == types(store.load(session)[1])
    assert [type for _, type, _ in seen][3:] == [
        "prompt/discarded", "custom/after the cancel", "turn/end", "agent/ended",
    ]  # fmt: skip


@pytest.mark.behaviour(98)
def test_the_end_of_an_agent_in_a_worker_is_seen_to_its_last_event(store: Store) -> None:
    from tests.worker_behaviours import wait

    watch, seen = Watch(), []
    store.observe(lambda session, event: seen.append(event.type))
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as system:
        handle = system.create(wait, id="a", isolation="pool")
        handle.agent.send("runs")
        watch.see("progress", "a")
        handle.agent.send("waits")
        handle.dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        session = handle.agent.session_id
    assert session is not None
    assert seen == types(store.load(session)[1])
    assert sorted(seen[3:5]) == ["prompt/discarded", "turn/end"]
    assert seen[5:] == ["agent/ended"]


def test_a_survivor_has_an_open_turn_that_the_next_load_closes(store: Store) -> None:
    """Code in this process that ignores its signal cannot be ended; its session stays as it is."""
    gate = Gate()

    def stubborn(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    system = dsh.ActorSystem(store=store)
    agent = system.create(stubborn, id="a").agent
    cut_off = agent.send("runs")
    gate.reached()
    receipt = system.shutdown(0.05).result(PATIENCE)
    assert [survivor.id for survivor in receipt.survivors] == ["a"]
    assert store.flush(PATIENCE)
    assert agent.session_id is not None
    _, events, *_ = store.load(agent.session_id)
    (info,) = store.list()
    assert info.status == "active"
    gate.open()
    assert types(events) == ["prompt/accepted", "turn/start"]
    closing, found = repair(events, {})
    assert closing == [
        ("turn/end", {"turn": 1, "reason": "interrupted", "messages": [cut_off], "results": []}),
        ("prompt/failed", {"id": cut_off, "reason": "interrupted"}),
    ]
    assert found.is_live


@pytest.mark.behaviour(100)
def test_the_last_flush_is_tried_once_and_the_store_keeps_what_it_could_not_write(
    store: Store,
) -> None:
    """The storage fails once: the runtime appends nothing again, the store writes it itself."""
    with dsh.ActorSystem(store=store) as system:
        handle = system.create(lambda turn, message: message, id="a")
        handle.agent.ask(1).result(PATIENCE)
        store.failures = 1
        handle.dispose().result(PATIENCE)
        session = handle.agent.session_id
    assert store.reached.is_set()
    assert store.appended.count("agent/ended") == 1
    assert store.flush(PATIENCE)
    assert session is not None
    assert types(store.load(session)[1]).count("agent/ended") == 1


@pytest.mark.behaviour(100)
def test_the_last_flush_has_a_deadline_and_its_batch_is_written_by_the_store(store: Store) -> None:
    """The storage hangs: the agent ends without it, and the end of the store writes it."""
    with dsh.ActorSystem(store=store) as system:
        system._core.settings = replace(system._core.settings, flush_deadline=0.05)
        handle = system.create(lambda turn, message: message, id="a")
        handle.agent.ask(1).result(PATIENCE)
        store.held = "agent/ended"
        receipt = handle.dispose().result(PATIENCE)
        session = handle.agent.session_id
    assert [agent.outcome for agent in receipt.agents] == ["completed"]
    assert store.appended.count("agent/ended") == 1
    assert session is not None
    assert "agent/ended" not in types(store.load(session)[1])
    store.go_on.set()
    assert store.close(PATIENCE)
    assert types(store.load(session)[1])[-1] == "agent/ended"


def test_a_last_event_that_is_refused_is_not_tried_again(store: Store) -> None:
    with dsh.ActorSystem(store=store) as system:
        handle = system.create(lambda turn, message: message, id="a")
        handle.agent.ask(1).result(PATIENCE)
        store.refuses = "agent/ended"
        assert handle.dispose().result(PATIENCE).agents[0].outcome == "completed"
    assert store.appended.count("agent/ended") == 1
