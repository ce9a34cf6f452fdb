"""What was found in a session's log: see ``recovery.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Call", "Prompt", "Recovered"]


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
