"""Illegal transitions: each is refused where it would be appended, and the log is as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors import codec
from dsh_actors.errors import IllegalTransition, StoreError
from dsh_actors.sessions import MemoryStore
from dsh_actors.sessions.transitions import Transitions
from dsh_actors.supervisor.journal import Journal
from dsh_actors.testing.store_log_contract import make_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh_actors.sessions import SessionStore

BODY = codec.encode({"call": "1.1"})


class Log:
    """A journal for one agent, on a store in memory."""

    def __init__(self, store: SessionStore) -> None:
        store.create(make_header("s-1"))
        self.store = store
        self.refused: list[str] = []
        log = SimpleNamespace(error=lambda text, **what: self.refused.append(what["error"]))
        core: Any = SimpleNamespace(sessions={7: "s-1"}, log=log)
        self.node: Any = SimpleNamespace(generation=7, id="agent", life=None)
        self.journal = Journal(core, store)

    def start(self, turn: int) -> None:
        self.journal.start_turn(self.node, turn, [turn])

    def end(self, turn: int) -> None:
        self.journal.end_turn(self.node, turn, {"turn": turn, "reason": "completed"})

    def call(self, call: str = "1.1") -> None:
        self.journal.called(self.node, call, codec.encode({"call": call}), lambda error: None)

    def dispatch(self) -> None:
        self.journal.dispatched(self.node, "1.1")

    def result(self) -> None:
        self.journal.call_ended(self.node, "1.1", BODY)

    def types(self) -> list[str]:
        assert self.store.flush(10)
        return [event.type for event in self.store.load("s-1")[1]]


@pytest.fixture
def log() -> Iterator[Log]:
    with MemoryStore() as store:
        yield Log(store)


ILLEGAL: dict[str, tuple[list[Callable[[Log], None]], Callable[[Log], None], str]] = {
    "an end without a start": ([], lambda log: log.end(1), "no open turn 1"),
    "an end of another turn": (
        [lambda log: log.start(1)],
        lambda log: log.end(2),
        "no open turn 2",
    ),
    "a second end": (
        [lambda log: log.start(1), lambda log: log.end(1)],
        lambda log: log.end(1),
        "after turn 1 has ended",
    ),
    "a start in a turn": (
        [lambda log: log.start(1)],
        lambda log: log.start(2),
        "while turn 1 is open",
    ),
    "a second start": ([lambda log: log.start(1)], lambda log: log.start(1), "turn 1 is open"),
    "a number that jumps": (
        [lambda log: log.start(1), lambda log: log.end(1)],
        lambda log: log.start(3),
        "turn 3 cannot begin after turn 1",
    ),
    "a number that stands": (
        [lambda log: log.start(4), lambda log: log.end(4)],
        lambda log: log.start(4),
        "turn 4 cannot begin",
    ),
    "a call that is open": ([lambda log: log.call()], lambda log: log.call(), "open already"),
    "a dispatch without a call": ([], lambda log: log.dispatch(), "is not recorded"),
    "a second dispatch": (
        [lambda log: log.call()],  # which dispatches
        lambda log: log.dispatch(),
        "was dispatched already",
    ),
    "a dispatch after the result": (
        [lambda log: log.call(), lambda log: log.result()],
        lambda log: log.dispatch(),
        "has a result",
    ),
    "a result without a call": ([], lambda log: log.result(), "is not recorded"),
    "a second result": (
        [lambda log: log.call(), lambda log: log.result()],
        lambda log: log.result(),
        "has a result",
    ),
}


@pytest.mark.behaviour(97)
@pytest.mark.parametrize("what", ILLEGAL)
def test_an_illegal_transition_raises_and_the_log_is_as_it_was(log: Log, what: str) -> None:
    before, illegal, message = ILLEGAL[what]
    for step in before:
        step(log)
    there = log.types()
    with pytest.raises(IllegalTransition, match=message):
        illegal(log)
    assert log.types() == there


def test_the_legal_ones_are_appended_in_order(log: Log) -> None:
    log.start(3)  # a later life goes on with the number of the one before
    log.call()
    log.call("1.2")
    log.result()
    log.end(3)
    log.start(4)
    log.journal.steered(log.node, 4, [9])
    log.end(4)
    assert log.types() == [
        "turn/start", "tool/call", "tool/dispatch", "tool/call", "tool/dispatch", "tool/result",
        "turn/end", "turn/start", "turn/steered", "turn/end",
    ]  # fmt: skip
    assert log.refused == []


def test_what_the_runtime_does_wrong_is_refused_and_reported_and_stops_nothing(log: Log) -> None:
    log.journal.turn_ended(log.node, 1, "completed", None, None, [1], [])
    log.journal.turn_started(log.node, 1, [1])
    log.journal.turn_started(log.node, 1, [1])
    log.journal.steered(log.node, 2, [1])
    assert log.types() == ["turn/start"]
    assert len(log.refused) == 3


def test_a_refusal_of_the_store_is_no_transition(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(log.store, "append", refuse)
        with pytest.raises(StoreError, match="full"):
            log.start(1)
    log.start(1)
    with monkeypatch.context() as patch:
        patch.setattr(log.store, "append", refuse)
        with pytest.raises(StoreError, match="full"):
            log.end(1)
    log.end(1)
    assert log.types() == ["turn/start", "turn/end"]


def test_nothing_is_kept_of_an_agent_that_has_ended() -> None:
    transitions = Transitions()
    for key in (1, 2):
        transitions.did_start(key, 1)
        transitions.did_call(key, "1.1")
    assert len(transitions) == 2
    transitions.forget(1)
    transitions.forget(3)
    assert len(transitions) == 1
    assert transitions.open_calls(1) == []
    transitions.check_start(1, 1)


def test_open_calls_are_told_with_how_far_they_came() -> None:
    transitions = Transitions()
    transitions.did_call(1, "a")
    transitions.did_call(1, "b")
    transitions.did_dispatch(1, "b")
    assert transitions.open_calls(1) == [("a", False), ("b", True)]
    transitions.did_result(1, "a")
    transitions.did_result(1, "b")
    assert len(transitions) == 0
