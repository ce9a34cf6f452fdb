"""What a session's log says about an agent whose process has ended: pure, from any log.

:func:`recover` folds the events of a log, or of the part of it that survived, into what the next
life of the agent needs. :func:`closers` are the events that close what a crash has left open; they
are appended, and nothing is ever cut. Both accept every log: what cannot be understood is named
in ``problems`` and otherwise left aside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors import codec
from dsh_actors.errors import MessageError
from dsh_actors.sessions.events import Event
from dsh_actors.sessions.recovered import Call, Prompt, Recovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "ABORTED",
    "FAIL",
    "RETRY",
    "UNKNOWN",
    "Call",
    "Prompt",
    "Recovered",
    "Repair",
    "closers",
    "interrupted_policy",
    "recover",
    "repair",
]

FAIL = "fail"
"""The policy that fails a prompt whose turn a crash has cut off."""

RETRY = "retry"
"""The policy that hands such a prompt to a turn again."""

ABORTED = "aborted before dispatch"
"""The error of a call that was recorded and never made: it may be made again."""

UNKNOWN = "outcome unknown"
"""The error of a call that was made, and of which nobody knows how it ended."""

_ENDED = ("completed", "limit")  # with a result
_PROBLEMS = 100  # how many are kept; more would say nothing more


class Repair(NamedTuple):
    """What to append to a log, and what it says with that."""

    closers: list[tuple[str, dict[str, Any]]]
    recovered: Recovered


def recover(events: Iterable[Event]) -> Recovered:
    """Fold a log, or any part from its beginning.

    Parameters:
        events: in order, damaged ones included.
    """
    fold = _Fold()
    for event in events:
        fold.take(event)
    return fold.result()


def closers(recovered: Recovered, policy: str = FAIL) -> list[tuple[str, dict[str, Any]]]:
    """The events that close what a crash has left open, in the order to append them.

    Parameters:
        recovered: the log so far.
        policy: what becomes of interrupted prompts: ``fail`` or ``retry``; with the latter they
            are in the inbox again.

    Returns:
        Event types with their data. Empty for a log in which nothing is open.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    for call in recovered.open_calls:
        error = UNKNOWN if call.dispatched else ABORTED
        found.append(("tool/result", {"call": call.call, "ok": False, "error": error}))
    failed = list(recovered.unreadable)
    if policy != RETRY:
        failed = sorted({*failed, *(prompt.id for prompt in recovered.interrupted)})
    if recovered.open_turn is not None:
        claimed = sorted({*recovered.unreadable, *(p.id for p in recovered.interrupted)})
        data = {"turn": recovered.open_turn, "reason": "interrupted", "messages": claimed}
        found.append(("turn/end", {**data, "results": []}))
    found += (("prompt/failed", {"id": id, "reason": "interrupted"}) for id in failed)
    return found


def repair(events: Iterable[Event], options: Mapping[str, Any]) -> Repair:
    """The closers of a log, and what the log says once they are appended.

    Parameters:
        events: the log.
        options: those of its session's header; see :func:`interrupted_policy`.
    """
    fold = _Fold()
    for event in events:
        fold.take(event)
    before = fold.result()
    found = closers(before, interrupted_policy(before, options))
    for type, data in found:
        fold.take(Event(-1, 0.0, type, data))
    return Repair(found, fold.result())


def interrupted_policy(recovered: Recovered, options: Mapping[str, Any]) -> str:
    """What is to become of an agent's interrupted prompts: ``fail`` or ``retry``.

    Parameters:
        recovered: its log, which holds what its behaviour has said.
        options: those of its session's header, with what was asked for at its creation.
    """
    asked = options.get("interrupted") or recovered.policy
    return RETRY if asked == RETRY else FAIL


class _Problem(Exception):
    """An event cannot be understood."""


class _Fold:
    """The state between two events."""

    def __init__(self) -> None:
        self.queued: dict[int, Prompt] = {}
        # Claimed by the open turn, and by one that was cut off; None for a body that is lost.
        self.claimed: dict[int, Prompt | None] = {}
        self.cut: dict[int, Prompt | None] = {}
        self.calls: dict[str, Call] = {}
        self.remembered: list[tuple[str, bytes]] = []
        self.problems: list[str] = []
        self.turns = self.begun = self.last_message = 0
        self.open_turn: int | None = None
        self.tokens, self.cost = 0, 0.0
        self.last: bytes | None = None
        self.last_reason: str | None = None
        self.outcome: str | None = None
        self.detail: str | None = None
        self.policy: str | None = None

    def take(self, event: Event) -> None:
        """Fold one event; one that cannot be understood changes nothing."""
        try:
            act = _ACTS.get(event.type)
            if act is not None:
                if not isinstance(event.data, dict):
                    raise _Problem("its data is no mapping")
                act(self, event.data)
            elif event.type.startswith("custom/"):
                body = codec.encode(event.data)
                self.remembered.append((event.type.removeprefix("custom/"), body))
        except (_Problem, MessageError) as error:
            if len(self.problems) < _PROBLEMS:
                self.problems.append(f"event {event.seq} ({event.type}): {error}")

    def result(self) -> Recovered:
        """What was found so far."""
        cut = {**self.cut, **self.claimed}
        calls = self.calls.values()
        return Recovered(
            turns=self.turns,
            open_turn=self.open_turn,
            queued=tuple(self.queued.values()),
            interrupted=tuple(prompt for prompt in cut.values() if prompt is not None),
            unreadable=tuple(id for id, prompt in cut.items() if prompt is None),
            open_calls=tuple(call for call in calls if call.status == "open"),
            calls=tuple(call for call in calls if call.status not in ("open", "aborted")),
            remembered=tuple(self.remembered),
            tokens=self.tokens,
            cost=self.cost,
            begun=self.begun,
            last=self.last,
            last_reason=self.last_reason,
            last_message_id=self.last_message,
            outcome=self.outcome,
            detail=self.detail,
            policy=self.policy,
            problems=tuple(self.problems),
        )

    # -- prompts -----------------------------------------------------------------------------------

    def accepted(self, data: dict[str, Any]) -> None:
        id, body = _number(data, "id"), data.get("body")
        self.last_message = max(self.last_message, id)
        if not isinstance(body, bytes):
            raise _Problem("it has no body")
        if id in self.claimed or id in self.queued:
            return  # a next life has taken it over
        self.cut.pop(id, None)
        self.queued[id] = Prompt(id, str(data.get("kind", "follow-up")), body)

    def gone(self, data: dict[str, Any]) -> None:
        self.done(_number(data, "id"))

    def done(self, id: int) -> None:
        """Nothing is left to do for a prompt; of its calls only unknown outcomes matter."""
        self.last_message = max(self.last_message, id)
        self.queued.pop(id, None)
        self.claimed.pop(id, None)
        self.cut.pop(id, None)
        if self.calls:
            for call in [*self.calls.values()]:
                if call.message == id and call.status not in ("open", "unknown"):
                    del self.calls[call.call]

    # -- turns -------------------------------------------------------------------------------------

    def turn_started(self, data: dict[str, Any]) -> None:
        turn, messages = _number(data, "turn"), _numbers(data, "messages")
        for id in [*self.claimed]:  # the end of the turn before is missing, and yet it has ended
            self.done(id)
        self.turns, self.open_turn = max(self.turns, turn), turn
        self.begun += 1
        self.claim(messages)

    def steered(self, data: dict[str, Any]) -> None:
        _number(data, "turn")
        messages = _numbers(data, "messages")
        if self.open_turn is not None:
            self.claim(messages)

    def claim(self, messages: list[int]) -> None:
        for id in messages:
            self.last_message = max(self.last_message, id)
            self.claimed[id] = self.queued.pop(id, None) or self.cut.pop(id, None)

    def turn_ended(self, data: dict[str, Any]) -> None:
        turn, messages = _number(data, "turn"), _numbers(data, "messages")
        reason = str(data.get("reason", ""))
        self.turns, self.open_turn = max(self.turns, turn), None
        self.claim([id for id in messages if id not in self.claimed])
        claimed, self.claimed = self.claimed, {}
        if reason == "interrupted":
            self.cut.update(claimed)
        else:
            for id in claimed:
                self.done(id)
        if reason == "completed":  # with what was reported to it before
            for call in [*self.calls.values()]:
                waits = call.message in self.cut or call.message in self.queued
                if call.status == "unknown" and not waits:
                    del self.calls[call.call]
        self.last = _last_result(data) if reason in _ENDED else None
        self.last_reason = reason

    # -- calls -------------------------------------------------------------------------------------

    def called(self, data: dict[str, Any]) -> None:
        call, message = _text(data, "call"), _number(data, "message")
        self.last_message = max(self.last_message, message)
        self.calls[call] = Call(
            call, message, _text(data, "name"), _text(data, "key"), data.get("args"),
            data.get("idempotent") is True,
        )  # fmt: skip

    def dispatched(self, data: dict[str, Any]) -> None:
        call = self.known(data)
        if call.status == "open":
            self.calls[call.call] = replace(call, dispatched=True)

    def resulted(self, data: dict[str, Any]) -> None:
        call = self.known(data)
        if call.status != "open":
            raise _Problem(f"call {call.call!r} has a result already")
        error, result = data.get("error"), data.get("result")
        if data.get("ok") is True and isinstance(result, bytes):
            call = replace(call, status="ok", result=result)
        elif error == ABORTED:
            call = replace(call, status="aborted")
        elif isinstance(error, dict):
            call = replace(call, status="error", error=error)
        else:
            call = replace(call, status="unknown")
        for other in [*self.calls.values()]:  # the newest one of a key counts
            if (other.message, other.key) == (call.message, call.key) and other.status != "open":
                del self.calls[other.call]
        if call.status == "unknown" or (call.message in self.claimed or call.message in self.cut):
            self.calls[call.call] = call
        else:
            del self.calls[call.call]

    def known(self, data: dict[str, Any]) -> Call:
        name = _text(data, "call")
        call = self.calls.get(name)
        if call is None:
            raise _Problem(f"there is no call {name!r}")
        return call

    # -- the agent ---------------------------------------------------------------------------------

    def agent_ended(self, data: dict[str, Any]) -> None:
        detail = data.get("detail")
        self.outcome = str(data.get("outcome", "completed"))
        self.detail = None if detail is None else str(detail)

    def agent_resumed(self, data: dict[str, Any]) -> None:
        self.outcome = self.detail = None
        if data.get("turns") is not None:
            self.turns = max(self.turns, _number(data, "turns"))

    def options(self, data: dict[str, Any]) -> None:
        policy = data.get("interrupted")
        if policy in (FAIL, RETRY):
            self.policy = policy

    def spent(self, data: dict[str, Any]) -> None:
        tokens, cost = _number(data, "tokens"), data.get("cost", 0.0)
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e300:
            raise _Problem("its cost is no amount")
        self.tokens += tokens
        self.cost += cost

    def damaged(self, data: dict[str, Any]) -> None:
        raise _Problem(str(data.get("problem", "it is damaged")))


_ACTS: dict[str, Callable[[_Fold, dict[str, Any]], None]] = {
    "prompt/accepted": _Fold.accepted,
    "prompt/discarded": _Fold.gone,
    "prompt/failed": _Fold.gone,
    "turn/start": _Fold.turn_started,
    "turn/steered": _Fold.steered,
    "turn/end": _Fold.turn_ended,
    "tool/call": _Fold.called,
    "tool/dispatch": _Fold.dispatched,
    "tool/result": _Fold.resulted,
    "budget/spent": _Fold.spent,
    "agent/ended": _Fold.agent_ended,
    "agent/resumed": _Fold.agent_resumed,
    "agent/options": _Fold.options,
    "damaged": _Fold.damaged,
}


def _number(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise _Problem(f"its {name} is no number")
    return value


def _numbers(data: dict[str, Any], name: str) -> list[int]:
    values = data.get(name)
    if not isinstance(values, list):
        raise _Problem(f"its {name} is no list")
    for value in values:
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise _Problem(f"its {name} are no numbers")
    return values


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise _Problem(f"its {name} is no text")
    return value


def _last_result(data: dict[str, Any]) -> bytes | None:
    results = data.get("results")
    last = results[-1] if isinstance(results, list) and results else None
    body = last.get("result") if isinstance(last, dict) else None
    return body if isinstance(body, bytes) else None
