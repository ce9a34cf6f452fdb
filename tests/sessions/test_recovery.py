"""Recovery from a log, or from whatever part of it has survived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh_actors import codec
from dsh_actors.sessions.events import Event
from dsh_actors.sessions.recovery import (
    ABORTED,
    FAIL,
    RETRY,
    UNKNOWN,
    Prompt,
    Recovered,
    closers,
    interrupted_policy,
    recover,
    repair,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

BODY = codec.encode({"do": "it"})
ANSWER = codec.encode("done")
POLICIES = [FAIL, RETRY]


def log(*events: tuple[str, Any]) -> list[Event]:
    return [Event(seq, float(seq), type, data) for seq, (type, data) in enumerate(events)]


def accepted(id: int, kind: str = "follow-up") -> tuple[str, Any]:
    return "prompt/accepted", {"id": id, "kind": kind, "body": BODY}


def start(turn: int, *messages: int) -> tuple[str, Any]:
    return "turn/start", {"turn": turn, "messages": [*messages]}


def end(turn: int, *messages: int, reason: str = "completed") -> tuple[str, Any]:
    results = [{"id": id, "result": ANSWER} for id in messages] if reason == "completed" else []
    return "turn/end", {
        "turn": turn, "reason": reason, "messages": [*messages], "results": results,
    }  # fmt: skip


def called(call: str, message: int, key: str, *, idempotent: bool = False) -> tuple[str, Any]:
    return "tool/call", {
        "call": call, "message": message, "name": "pay", "key": key, "args": {"sum": 3},
        "idempotent": idempotent,
    }  # fmt: skip


def dispatched(call: str) -> tuple[str, Any]:
    return "tool/dispatch", {"call": call}


def result(call: str) -> tuple[str, Any]:
    return "tool/result", {"call": call, "ok": True, "result": ANSWER}


def ids(prompts: Iterable[Prompt]) -> list[int]:
    return [prompt.id for prompt in prompts]


# -- what is found -----------------------------------------------------------------------------


def test_what_was_accepted_and_not_begun_is_queued_in_order() -> None:
    found = recover(log(accepted(3), accepted(5), start(1, 3), end(1, 3), accepted(4, "inject")))
    assert found.queued == (Prompt(5, "follow-up", BODY), Prompt(4, "inject", BODY))
    assert (found.turns, found.begun, found.open_turn) == (1, 1, None)
    assert found.last == ANSWER
    assert found.last_message_id == 5
    assert closers(found) == []


def test_what_was_discarded_is_not_queued() -> None:
    discarded = ("prompt/discarded", {"id": 1, "cause": "user"})
    assert ids(recover(log(accepted(1), accepted(2), discarded)).queued) == [2]


@pytest.mark.behaviour(106)
def test_a_turn_that_was_cut_off_is_closed_as_interrupted() -> None:
    events = log(accepted(1), accepted(2), start(1, 1))
    found = recover(events)
    assert (found.open_turn, ids(found.interrupted), ids(found.queued)) == (1, [1], [2])
    data = {"turn": 1, "reason": "interrupted", "messages": [1], "results": []}
    failed = ("prompt/failed", {"id": 1, "reason": "interrupted"})
    assert closers(found, FAIL) == [("turn/end", data), failed]
    assert closers(found, RETRY) == [("turn/end", data)]


def test_a_retried_prompt_stands_in_front_of_the_queued_ones() -> None:
    events = log(accepted(1), accepted(2), start(1, 1))
    assert ids(repair(events, {"interrupted": RETRY}).recovered.inbox) == [1, 2]
    assert ids(repair(events, {"interrupted": FAIL}).recovered.inbox) == [2]
    assert ids(repair(events, {}).recovered.inbox) == [2]


def test_steering_input_that_a_turn_took_on_is_not_queued_any_more() -> None:
    steered = ("turn/steered", {"turn": 1, "messages": [2]})
    events = log(accepted(1), start(1, 1), accepted(2, "steer"), steered)
    found = recover(events)
    assert (ids(found.interrupted), found.queued) == ([1, 2], ())
    assert recover([*events, *log(end(1, 1, 2))]).inbox == ()


def test_an_end_that_names_more_than_its_start_ends_all_of_them() -> None:
    found = recover(log(accepted(1), start(1, 1), accepted(2, "steer"), end(1, 1, 2)))
    assert found.inbox == ()


def test_a_message_that_a_next_life_takes_over_is_there_once() -> None:
    found = recover(
        log(
            accepted(1), accepted(2), start(1, 1), end(1, 1, reason="interrupted"),
            ("agent/ended", {"outcome": "lost"}), ("agent/resumed", {"turns": 1}), accepted(2),
        )
    )  # fmt: skip
    assert ids(found.queued) == [2]
    assert ids(found.interrupted) == [1]


def test_an_agent_that_ended_and_was_resumed_goes_on() -> None:
    ended = ("agent/ended", {"outcome": "aborted", "detail": "stopped"})
    found = recover(log(accepted(1), start(1, 1), end(1, 1), ended))
    assert (found.outcome, found.detail, found.is_live) == ("aborted", "stopped", False)
    found = recover(log(ended, ("agent/resumed", {"turns": 7}), accepted(9)))
    assert (found.is_live, found.turns, ids(found.queued)) == (True, 7, [9])


def test_a_survivor_whose_turn_never_ended_is_closed_at_the_next_load() -> None:
    """Code that ignored its signal: the others of its tree have ended, and it has not."""
    events = log(accepted(1), start(1, 1), ("child/settled", {"child": "c"}))
    closing, found = repair(events, {})
    assert [type for type, _ in closing] == ["turn/end", "prompt/failed"]
    assert found.open_turn is None
    assert found.is_live


def test_a_notice_in_the_inbox_stays_a_notice() -> None:
    found = recover(log(accepted(1, "steer notice"), accepted(2, "follow-up notice")))
    assert [prompt.kind for prompt in found.queued] == ["steer notice", "follow-up notice"]


def test_what_the_agent_remembered_and_spent_is_found_across_its_lives() -> None:
    found = recover(
        log(
            ("custom/seen", {"n": 1}), ("budget/spent", {"tokens": 10, "cost": 0.5}), start(1),
            ("agent/ended", {"outcome": "completed"}), ("agent/resumed", {"turns": 1}),
            ("custom/a/b", None), ("budget/spent", {"tokens": 5, "cost": 1}), start(2),
        )
    )  # fmt: skip
    assert found.remembered == (("seen", codec.encode({"n": 1})), ("a/b", codec.encode(None)))
    assert (found.tokens, found.cost, found.begun, found.turns) == (15, 1.5, 2, 2)


# -- calls -------------------------------------------------------------------------------------


def test_open_calls_are_closed_by_how_far_they_came() -> None:
    events = log(accepted(1), start(1, 1), called("1.1", 1, "a"), called("1.2", 1, "b"),
                 dispatched("1.2"))  # fmt: skip
    closing, found = repair(events, {"interrupted": RETRY})
    assert closing[:2] == [
        ("tool/result", {"call": "1.1", "ok": False, "error": ABORTED}),
        ("tool/result", {"call": "1.2", "ok": False, "error": UNKNOWN}),
    ]
    assert closing[2][0] == "turn/end"
    (unknown,) = found.calls  # the other one may simply be made
    assert (unknown.call, unknown.status, unknown.args) == ("1.2", "unknown", {"sum": 3})
    assert found.carried() == [[1, "pay", "b", {"sum": 3}, False, "unknown", None, None]]


def test_the_result_of_a_call_is_kept_as_long_as_its_prompt_may_be_retried() -> None:
    events = log(accepted(1), start(1, 1), called("1.1", 1, "a"), dispatched("1.1"), result("1.1"))
    (call,) = repair(events, {"interrupted": RETRY}).recovered.calls
    assert (call.message, call.key, call.result) == (1, "a", ANSWER)
    assert repair(events, {"interrupted": FAIL}).recovered.calls == ()
    assert recover([*events, *log(end(1, 1))]).calls == ()


def test_an_unknown_outcome_is_told_until_a_turn_has_completed_after_it() -> None:
    events = log(accepted(1), start(1, 1), called("1.1", 1, "a"), dispatched("1.1"))
    events += log(*closers(recover(events)))
    assert [call.status for call in recover(events).calls] == ["unknown"]
    events += log(accepted(2), start(2, 2), end(2, 2, reason="error"))
    assert [call.status for call in recover(events).calls] == ["unknown"]
    events += log(accepted(3), start(3, 3), end(3, 3))
    assert recover(events).calls == ()


def test_the_unknown_outcome_of_a_prompt_that_still_waits_is_kept() -> None:
    events = log(accepted(1), start(1, 1), called("1.1", 1, "a"), dispatched("1.1"))
    events += log(*closers(recover(events), RETRY), accepted(2), start(2, 2), end(2, 2))
    assert [call.status for call in recover(events).calls] == ["unknown"]
    events += log(accepted(1), accepted(3), start(3, 3), end(3, 3))  # taken over by a next life
    assert [call.status for call in recover(events).calls] == ["unknown"]
    assert recover([*events, *log(start(4, 1), end(4, 1))]).calls == ()


def test_of_a_call_that_was_made_again_the_newest_outcome_counts() -> None:
    failed = ("tool/result", {"call": "1.1", "ok": False, "error": {"type": "OSError"}})
    events = log(accepted(1), start(1, 1), called("1.1", 1, "a"), dispatched("1.1"), failed,
                 called("1.2", 1, "a"), dispatched("1.2"), result("1.2"))  # fmt: skip
    assert [(call.call, call.status) for call in recover(events).calls] == [("1.2", "ok")]


# -- whatever the log is -----------------------------------------------------------------------


def test_what_asked_for_the_policy_first() -> None:
    says = recover(log(("agent/options", {"interrupted": RETRY})))
    assert interrupted_policy(says, {}) == RETRY
    assert interrupted_policy(says, {"interrupted": FAIL}) == FAIL
    assert interrupted_policy(Recovered(), {"interrupted": None}) == FAIL


def test_a_prompt_whose_body_is_lost_cannot_be_retried() -> None:
    damaged = ("damaged", {"problem": "it cannot be decoded"})
    found = recover(log(damaged, start(1, 1)))
    assert (found.interrupted, found.unreadable) == ((), (1,))
    assert found.problems == ("event 0 (damaged): it cannot be decoded",)
    assert [type for type, _ in closers(found, RETRY)] == ["turn/end", "prompt/failed"]


def test_a_turn_whose_end_is_damaged_had_one() -> None:
    damaged = ("damaged", {"problem": "zeros"})
    found = recover(log(accepted(1), accepted(2), start(1, 1), damaged, start(2, 2)))
    assert (found.open_turn, ids(found.interrupted)) == (2, [2])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip
TYPES = st.sampled_from(
    [
        "prompt/accepted", "prompt/discarded", "prompt/failed", "turn/start", "turn/steered",
        "turn/end", "tool/call", "tool/dispatch", "tool/result", "budget/spent", "agent/ended",
        "agent/resumed", "agent/options", "child/settled", "notice/discarded", "custom/x",
        "damaged", "unheard/of",
    ]
)  # fmt: skip
SMALL = st.integers(0, 4)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "id": SMALL | PLAIN,
        "turn": SMALL | PLAIN,
        "messages": st.lists(SMALL, max_size=3) | PLAIN,
        "call": st.sampled_from(["1.1", "1.2"]) | PLAIN,
        "message": SMALL | PLAIN,
        "name": st.text(max_size=2) | PLAIN,
        "key": st.text(max_size=2) | PLAIN,
        "body": st.binary(max_size=2) | PLAIN,
        "reason": st.sampled_from(["completed", "interrupted", "error", "limit"]) | PLAIN,
        "results": PLAIN,
        "tokens": SMALL | PLAIN,
        "cost": PLAIN,
        "ok": st.booleans() | PLAIN,
        "result": st.binary(max_size=2) | PLAIN,
        "error": st.sampled_from([ABORTED, UNKNOWN]) | PLAIN,
        "interrupted": st.sampled_from(POLICIES) | PLAIN,
        "turns": SMALL | PLAIN,
    },
)
ANYTHING = st.lists(st.tuples(TYPES, FIELDS | PLAIN), max_size=25)


def assert_repairs(events: list[Event], policy: str) -> None:
    """Log and closers are balanced, and there is nothing left to close."""
    before = [repr(event) for event in events]
    found = closers(recover(events), policy)
    assert [repr(event) for event in events] == before
    closed = recover([*events, *log(*found)])
    assert closed.open_turn is None
    assert closed.open_calls == ()
    assert closed.unreadable == ()
    if policy == FAIL:
        assert closed.interrupted == ()
    assert closers(closed, policy) == []
    inbox = ids(closed.inbox)
    assert len(inbox) == len(set(inbox))


@pytest.mark.behaviour(106)
@settings(max_examples=200, deadline=None)
@given(ANYTHING, st.sampled_from(POLICIES))
def test_any_log_recovers(events: list[tuple[str, Any]], policy: str) -> None:
    assert_repairs(log(*events), policy)


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """A log as the journal writes it, with crashes in it that were repaired."""
    events: list[tuple[str, Any]] = []
    queue: list[int] = []
    message = turn = call = 0
    for step in draw(st.lists(st.sampled_from("asdtkcr"), max_size=30)):
        if step in "as":
            message += 1
            queue.append(message)
            events.append(accepted(message, "steer" if step == "s" else "follow-up"))
        elif step == "d":
            events += [("prompt/discarded", {"id": id, "cause": "user"}) for id in queue]
            queue = []
        elif queue:
            turn += 1
            claimed, queue = queue, []
            events.append(start(turn, *claimed))
            if step in "kc":
                call += 1
                events.append(called(str(call), claimed[0], str(call)))
                if step == "k":
                    events += [dispatched(str(call)), result(str(call))]
                elif draw(st.booleans()):
                    events.append(dispatched(str(call)))
            if step in "tk":
                events.append(end(turn, *claimed))
            else:
                policy = draw(st.sampled_from(POLICIES))
                events += closers(recover(log(*events)), policy)
                events.append(("agent/resumed", {"turns": turn}))
                queue = claimed if policy == RETRY else []
    return events


@pytest.mark.behaviour(106)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives(), st.sampled_from(POLICIES))
def test_every_prefix_of_a_log_recovers(events: list[tuple[str, Any]], policy: str) -> None:
    whole = log(*events)
    assert recover(whole).problems == ()
    for length in range(len(whole) + 1):
        assert_repairs(whole[:length], policy)


@settings(max_examples=60, deadline=None)
@given(lives())
def test_nothing_accepted_is_lost_or_there_twice(events: list[tuple[str, Any]]) -> None:
    """At each moment a prompt is in the inbox, or its end is in the log: never both, nor none."""
    whole = log(*events)
    for length in range(len(whole) + 1):
        closing, found = repair(whole[:length], {"interrupted": RETRY})
        came: set[int] = set()
        over: set[int] = set()
        for type, data in [*events[:length], *closing]:
            if type == "prompt/accepted":
                came.add(data["id"])
            elif type in ("prompt/discarded", "prompt/failed"):
                over.add(data["id"])
            elif type == "turn/end" and data["reason"] != "interrupted":
                over.update(data["messages"])
        assert set(ids(found.inbox)) == came - over
