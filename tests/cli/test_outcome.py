from __future__ import annotations

from typing import Any

import pytest

from dsh_actors.errors import AgentFailed, AgentGone, AgentLost, TurnAborted
from dsh_actors_cli.outcome import Answer, Outcome, judge, result_object
from dsh_actors_cli.render.receipt import end_lines
from dsh_actors_cli.render.style import Style
from dsh_actors_cli.signals import StopCause

CLEAN: dict[str, Any] = {
    "agents": [{"id": "a", "outcome": "completed", "pid": 7}],
    "processes": [{"pid": 7, "kind": "worker", "ended": "exited", "signal": None}],
    "survivors": [],
}
INTERRUPT = StopCause("signal", 130, "stopped by SIGINT")
PLAIN = Style(False)


def with_agents(*outcomes: tuple[str, str]) -> dict[str, Any]:
    agents = [{"id": name, "outcome": outcome, "pid": None} for name, outcome in outcomes]
    return {**CLEAN, "agents": agents}


def told(outcome: Outcome) -> str:
    return "\n".join(end_lines(outcome, PLAIN, look=""))


def test_one_root_gives_its_value() -> None:
    verdict = judge([Answer("a", 42)], None, CLEAN, {})
    assert (verdict.subtype, verdict.code, verdict.result, verdict.error) == (
        "completed",
        0,
        42,
        None,
    )


def test_several_roots_give_an_object_by_id() -> None:
    verdict = judge([Answer("a", 1), Answer("b", None)], None, CLEAN, {})
    assert verdict.result == {"a": 1, "b": None}


@pytest.mark.behaviour(177)
def test_a_failed_behaviour_is_named_with_its_own_type() -> None:
    trace = 'Traceback:\n  File "/x/agents.py", line 12, in f\n    boom\nValueError: bad'
    error = AgentFailed("ValueError", "bad", trace)
    verdict = judge([Answer("a", error=error)], None, CLEAN, {})
    assert (verdict.subtype, verdict.code) == ("failed", 1)
    assert verdict.error == {"type": "ValueError", "message": "bad"}
    outcome = Outcome(verdict, CLEAN, "s-1", "sys", 1.0)
    lines = end_lines(outcome, PLAIN, look="show\x1b s-1")
    assert lines[0] == "dsh-actors: error: ValueError: bad (/x/agents.py:12)"
    assert lines[-1] == "session s-1: show\\x1b s-1"


def test_of_several_roots_the_failed_one_is_named() -> None:
    verdict = judge([Answer("a", 1), Answer("b", error=AgentLost("gone"))], None, CLEAN, {})
    assert verdict.error == {"type": "AgentLost", "message": "b: gone"}
    assert verdict.result == {"a": 1, "b": None}


def test_an_aborted_turn_is_a_cancel() -> None:
    verdict = judge([Answer("a", error=TurnAborted("user"))], None, CLEAN, {})
    assert (verdict.subtype, verdict.code) == ("cancelled", 1)


def test_a_lost_agent_fails_the_run_but_its_result_is_kept() -> None:
    receipt = with_agents(("a", "completed"), ("a/1", "lost"))
    verdict = judge([Answer("a", 42)], None, receipt, {"a/1": "worker 7 ended by SIGKILL"})
    assert (verdict.subtype, verdict.code, verdict.result) == ("failed", 1, 42)
    assert verdict.error == {
        "type": "AgentLost",
        "message": "lost a/1: worker 7 ended by SIGKILL",
    }


def test_a_child_whose_failure_was_handled_does_not_fail_the_run() -> None:
    receipt = with_agents(("a", "completed"), ("a/1", "failed"))
    assert judge([Answer("a", 42)], None, receipt, {}).code == 0


def test_a_survivor_is_never_a_success() -> None:
    receipt = {**CLEAN, "survivors": [{"id": "a/2", "pid": 5, "stack": "x.py:1"}]}
    verdict = judge([Answer("a", 42)], None, receipt, {})
    assert (verdict.code, verdict.error) == (
        1,
        {"type": "Survivors", "message": "still running: a/2"},
    )


def test_an_end_that_is_not_confirmed_is_never_a_success() -> None:
    verdict = judge([Answer("a", 42)], None, CLEAN, {}, confirmed=False)
    assert (verdict.subtype, verdict.code, verdict.result) == ("failed", 1, 42)


def test_a_root_that_was_gone_before_it_was_asked_is_told_by_why_it_had_gone() -> None:
    answers = [Answer("a", error=AgentGone("agent 'a' has ended"))]
    failed = judge(answers, None, with_agents(("a", "failed")), {"a": "RuntimeError: no way"})
    assert failed.error == {"type": "RuntimeError", "message": "no way"}
    lost = judge(answers, None, with_agents(("a", "lost")), {"a": "worker 7 was killed"})
    assert lost.error == {"type": "AgentLost", "message": "worker 7 was killed"}


@pytest.mark.parametrize(
    ("cause", "subtype", "code"),
    [
        (INTERRUPT, "cancelled", 130),
        (StopCause("signal", 143, "stopped by SIGTERM"), "cancelled", 143),
        (StopCause("hangup", 129, "the terminal was closed"), "cancelled", 129),
        (StopCause("timeout", 124, "not done after 5 s"), "timeout", 124),
    ],
)
def test_a_cause_decides_over_what_came_of_it(cause: StopCause, subtype: str, code: int) -> None:
    answers = [Answer("a", error=TurnAborted("disposed"))]
    verdict = judge(answers, cause, CLEAN, {})
    assert (verdict.subtype, verdict.code) == (subtype, code)
    assert verdict.error is not None
    assert verdict.error["message"] == cause.text


def test_the_result_object_has_just_the_documented_keys() -> None:
    receipt = with_agents(("a", "completed"), ("b", "lost"), ("c", "completed"))
    outcome = Outcome(judge([Answer("a", 1)], None, receipt, {}), receipt, "s-1", "sys", 1.2345)
    assert result_object(outcome) == {
        "type": "result",
        "subtype": "failed",
        "is_error": True,
        "result": 1,
        "error": {"type": "AgentLost", "message": "lost b"},
        "session_id": "s-1",
        "system_id": "sys",
        "duration_ms": 1234,
        "agents": {"completed": 2, "aborted": 0, "failed": 0, "lost": 1},
        "receipt": receipt,
    }


def test_a_good_end_takes_one_line() -> None:
    outcome = Outcome(judge([Answer("a", 1)], None, CLEAN, {}), CLEAN, "", "sys", 2.04)
    assert (
        told(outcome) == "done in 2.0 s; agents: 1 completed; 1 worker ended; nothing left running"
    )


def test_the_receipt_of_a_stop_names_all_that_ended_and_all_that_did_not() -> None:
    receipt = {
        "agents": [
            {"id": "census", "outcome": "aborted", "pid": None},
            *({"id": f"c-{n}", "outcome": "completed", "pid": 1} for n in range(100)),
            *({"id": f"l\x1b-{n}", "outcome": "lost", "pid": 71} for n in range(30)),
        ],
        "processes": [
            {"pid": 71, "kind": "worker", "ended": "killed", "signal": 9},
            {"pid": 72, "kind": "worker", "ended": "exited", "signal": None},
        ],
        "survivors": [{"id": "stuck", "pid": 70, "stack": "File x\n  spin()\n"}],
    }
    text = told(Outcome(judge([], INTERRUPT, receipt, {}), receipt, "s-1", "sys", 65))
    assert text.split("\n")[:4] == [
        "dsh-actors: error: Stopped: stopped by SIGINT",
        "cancelled after 1 min 05 s",
        "  agents     100 completed, 1 aborted, 30 lost",
        "    census    aborted",
    ]
    assert "l\\x1b-3   lost  pid 71" in text
    assert "    ... and 11 more" in text
    assert "  processes  2 processes ended" in text
    assert "    worker 71  killed by SIGKILL" in text
    assert "    worker 72  exited\n" in text
    assert "  survivors  1\n    stuck  pid 70\n      File x\n      spin()" in text
