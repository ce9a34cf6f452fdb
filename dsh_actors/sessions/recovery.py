"""What a session's log says about an agent whose process has ended: pure, from any log.

:func:`recover` folds the events of a log, or of the part of it that survived, into what the next
life of the agent needs. :func:`closers` are the events that close what a crash has left open; they
are appended, and nothing is ever cut. Both accept every log: what cannot be understood is named
in ``problems`` and otherwise left aside.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors import codec
from dsh_actors.errors import MessageError
from dsh_actors.sessions.events import Event

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


class Prompt(NamedTuple):
    """An accepted message.

    Attributes:
        id: its number.
        kind: ``follow-up``, ``steer`` or ``inject``; with `` notice`` behind it if it is the
            notice of a child's settlement.
        body: the encoded message.
    """

    id: int
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, as far as the log tells.

    Parameters:
        call: its id, unique in the session.
        message: the message that the turn was working on.
        name, key, args, idempotent: as the turn gave them; ``args`` is plain data.
        dispatched: whether the call may have been made.
        status: ``open``, ``ok``, ``error``, ``aborted`` (never made) or ``unknown``.
        result: the encoded result of one that is ``ok``.
        error: of one that failed, its ``type``, ``message`` and ``traceback``.
    """

    call: str
    message: int
    name: str
    key: str
    args: Any = None
    idempotent: bool = False
    dispatched: bool = False
    status: str = "open"
    result: bytes | None = None
    error: Any = None

    def to_plain(self) -> list[Any]:
        """As it travels to the next life."""
        return [
            self.message, self.name, self.key, self.args, self.idempotent, self.status,
            self.result, self.error,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where an agent stood when its log ended.

    Parameters:
        turns: the number of its last turn.
        open_turn: the number of the turn that has begun and not ended, or None.
        queued: accepted, and neither claimed by a turn nor discarded, in order.
        interrupted: claimed by a turn that was cut off, and not yet failed, in order.
        unreadable: the ids of those among them whose bodies the log has lost.
        open_calls: calls without a result, in order.
        calls: what a next life has to know of earlier calls: the ended ones of interrupted
            prompts, and all with an unknown outcome that no later turn has completed after.
        remembered: the agent's own events, as type and encoded data, in order.
        tokens, cost: what its turns have spent.
        begun: how many turns have begun.
        last: the encoded result of the last turn, if it came to one.
        last_reason: how the last turn ended, or None if none has.
        last_message_id: the highest number of a message in the log, or 0.
        outcome, detail: how the agent ended; None while it lives, or if that was cut off.
        policy: what is to become of interrupted prompts, if the agent's behaviour has said.
        problems: what in the log could not be understood.
    """

    turns: int = 0
    open_turn: int | None = None
    queued: tuple[Prompt, ...] = ()
    interrupted: tuple[Prompt, ...] = ()
    unreadable: tuple[int, ...] = ()
    open_calls: tuple[Call, ...] = ()
    calls: tuple[Call, ...] = ()
    remembered: tuple[tuple[str, bytes], ...] = ()
    tokens: int = 0
    cost: float = 0.0
    begun: int = 0
    last: bytes | None = None
    last_reason: str | None = None
    last_message_id: int = 0
    outcome: str | None = None
    detail: str | None = None
    policy: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether the log does not say that the agent has ended."""
        return self.outcome is None

    @property
    def inbox(self) -> tuple[Prompt, ...]:
        """What a next life finds in its inbox once the closers are in the log."""
        return self.interrupted + self.queued

    def carried(self) -> list[list[Any]]:
        """The calls as they travel to the next life: see ``Life.calls``."""
        return [call.to_plain() for call in self.calls]


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


@dataclass(slots=True)
class _Fold:
    """The state between two events."""

    state: Recovered = field(default_factory=Recovered)
    queued: dict[int, Prompt] = field(default_factory=dict)
    # Claimed by the open turn, and by one that was cut off; None for a body that is lost.
    claimed: dict[int, Prompt | None] = field(default_factory=dict)
    cut: dict[int, Prompt | None] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    remembered: list[tuple[str, bytes]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    turns: int = 0
    begun: int = 0
    open_turn: int | None = None
    last_message: int = 0
    tokens: int = 0
    cost: float = 0.0

    def take(self, event: Event) -> None:
        """Fold one event; one that cannot be understood changes nothing."""
        try:
            if event.type.startswith("custom/"):
                body = codec.encode(event.data)
                self.remembered.append((event.type.removeprefix("custom/"), body))
                return
            act = _ACTS.get(event.type)
            if act is not None:
                if not isinstance(event.data, dict):
                    raise _Problem("its data is no mapping")
                act(self, event.data)
        except (_Problem, MessageError) as error:
            if len(self.problems) < _PROBLEMS:
                self.problems.append(f"event {event.seq} ({event.type}): {error}")

    def result(self) -> Recovered:
        """What was found so far."""
        cut = {**self.cut, **self.claimed}
        calls = self.calls.values()
        return replace(
            self.state,
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
            last_message_id=self.last_message,
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
        for table in (self.queued, self.claimed, self.cut):
            table.pop(id, None)
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
        last = _last_result(data) if reason in _ENDED else None
        self.state = replace(self.state, last=last, last_reason=reason)

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
        self.state = replace(
            self.state,
            outcome=str(data.get("outcome", "completed")),
            detail=None if detail is None else str(detail),
        )

    def agent_resumed(self, data: dict[str, Any]) -> None:
        self.state = replace(self.state, outcome=None, detail=None)
        if data.get("turns") is not None:
            self.turns = max(self.turns, _number(data, "turns"))

    def options(self, data: dict[str, Any]) -> None:
        policy = data.get("interrupted")
        if policy in (FAIL, RETRY):
            self.state = replace(self.state, policy=policy)

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
    return [_number({name: value}, name) for value in values]


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
