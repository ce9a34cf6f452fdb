"""What a run came to: its result object and its exit code. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dsh_actors.errors import AgentFailed, AgentGone, TurnAborted
from dsh_actors_cli import exits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh_actors_cli.signals import StopCause

__all__ = ["Answer", "Outcome", "Verdict", "judge", "result_object"]

Subtype = Literal["completed", "failed", "cancelled", "timeout"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one root answered to its prompt.

    Attributes:
        id: the root.
        value: its result, if it gave one.
        error: why it gave none.
        done: whether it gave a result or an error before the run was stopped.
    """

    id: str
    value: Any = None
    error: BaseException | None = None
    done: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the run ended.

    Attributes:
        subtype: as in the result object.
        code: the exit code.
        result: the value of the root, or, of several, an object by id.
        error: ``{"type", "message"}``, or None.
        traceback: of the failed behaviour, as text; empty if there is none.
    """

    subtype: Subtype
    code: int
    result: Any
    error: dict[str, str] | None
    traceback: str = ""


def judge(
    answers: Sequence[Answer],
    cause: StopCause | None,
    receipt: Mapping[str, Any],
    reasons: Mapping[str, str],
    *,
    confirmed: bool = True,
) -> Verdict:
    """Return the verdict on a run.

    Parameters:
        answers: one for each root that was asked, in the order of the file.
        cause: why the run was stopped before it was done, if it was.
        receipt: of the stop of the system.
        reasons: why agents were lost, by id, as far as it is known.
        confirmed: whether the system has confirmed its end; otherwise nobody knows what is left.
    """
    result = _result(answers)
    if cause is not None:
        timeout = cause.kind == "timeout"
        error = {"type": "Timeout" if timeout else "Stopped", "message": cause.text}
        return Verdict("timeout" if timeout else "cancelled", cause.code, result, error)
    for answer in answers:
        if answer.error is not None:
            aborted = isinstance(answer.error, TurnAborted)
            return Verdict(
                "cancelled" if aborted else "failed",
                exits.FAILED,
                result,
                _described(answer, receipt, reasons, alone=len(answers) == 1),
                getattr(answer.error, "traceback_text", ""),
            )
    trouble = _unclean_end(receipt, reasons)
    if trouble is None and not confirmed:
        trouble = {"type": "StopUnconfirmed", "message": "the end of the system is not confirmed"}
    if trouble is not None:
        return Verdict("failed", exits.FAILED, result, trouble)
    return Verdict("completed", exits.DONE, result, None)


def _result(answers: Sequence[Answer]) -> Any:
    if len(answers) == 1:
        return answers[0].value
    if not any(answer.done and answer.error is None for answer in answers):
        return None  # they were stopped, or have failed, before one of them gave anything
    return {answer.id: answer.value for answer in answers}


def _described(
    answer: Answer, receipt: Mapping[str, Any], reasons: Mapping[str, str], *, alone: bool
) -> dict[str, str]:
    """Return the error of a root; of one that was gone before it was asked, why it had gone."""
    error, reason = answer.error, reasons.get(answer.id)
    if isinstance(error, AgentFailed):
        kind, message = error.type_name, error.message
    elif isinstance(error, AgentGone) and reason:
        ends = {agent["id"]: agent["outcome"] for agent in receipt["agents"]}
        kind, message = "AgentLost", reason
        if ends.get(answer.id) == "failed":
            kind, _, message = reason.partition(": ")
    else:
        kind, message = type(error).__name__, str(error)
    return {"type": kind, "message": message if alone else f"{answer.id}: {message}"}


def _unclean_end(receipt: Mapping[str, Any], reasons: Mapping[str, str]) -> dict[str, str] | None:
    """Return the error of a run that gave its result but did not end cleanly."""
    lost = [agent["id"] for agent in receipt["agents"] if agent["outcome"] == "lost"]
    if lost:
        named = [f"{a}: {reasons[a]}" if reasons.get(a) else a for a in lost]
        return {"type": "AgentLost", "message": f"lost {_listing(named)}"}
    left = [survivor["id"] for survivor in receipt["survivors"]]
    if left:
        return {"type": "Survivors", "message": f"still running: {_listing(left)}"}
    return None


def _listing(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that is told about a run.

    Attributes:
        verdict: how it ended.
        receipt: of the stop of the system.
        session_id: the session of the root that was asked first.
        system_id: the system.
        duration: seconds from the start of the command to the end of the stop.
    """

    verdict: Verdict
    receipt: Mapping[str, Any]
    session_id: str
    system_id: str
    duration: float


def result_object(outcome: Outcome) -> dict[str, Any]:
    """Return the object that the output formats ``json`` and ``stream-json`` print."""
    verdict, receipt = outcome.verdict, outcome.receipt
    counts = dict.fromkeys(("completed", "aborted", "failed", "lost"), 0)
    for agent in receipt["agents"]:
        counts[agent["outcome"]] += 1
    return {
        "type": "result",
        "subtype": verdict.subtype,
        "is_error": verdict.code != exits.DONE,
        "result": verdict.result,
        "error": verdict.error,
        "session_id": outcome.session_id,
        "system_id": outcome.system_id,
        "duration_ms": round(outcome.duration * 1000),
        "agents": counts,
        "receipt": {key: receipt[key] for key in ("agents", "processes", "survivors")},
    }
