"""What a session is made of: an immutable header and an append-only list of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ACTIVE",
    "DAMAGED",
    "FORKED",
    "FORMAT",
    "Event",
    "SessionHeader",
    "SessionInfo",
    "SessionLog",
]

FORMAT = 1
"""The version of the header and of the event types that this release writes."""

ACTIVE = "active"
"""The status of a session whose agent lives. Every other status means that it has ended."""

FORKED = "forked"
"""The status of a session that was copied from another one and has not been resumed yet."""

DAMAGED = "damaged"
"""The type of the event that stands for one that was lost."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a session.

    Parameters:
        seq: its number, contiguous from 0 within the session.
        time: when it was appended, in Unix seconds.
        type: what happened, e.g. ``turn/start`` or ``custom/finding``.
        data: plain data that says more.
    """

    seq: int
    time: float
    type: str
    data: Any


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """What is fixed about a session from its creation on.

    Parameters:
        id: the session's own id, unique in its store.
        agent_id: the agent whose work this is.
        system_id: the actor system that created it.
        root: id of the session at the root of the tree; its own id for a root.
        parent: id of the parent's session, or None for a root.
        depth: levels below the root; it never falls, not even on a resume.
        behaviour: how to find the behaviour again, e.g. ``package.module:name``.
        created: Unix seconds.
        policy: what the agent may do; plain data.
        options: what a resume needs besides the behaviour, e.g. its arguments, isolation and
            restart policy; plain data.
        format: the version of this header.
        forked_from: id of the session whose first events were copied into this one, if any.
        forked_at: how many events were copied.
    """

    id: str
    agent_id: str
    system_id: str
    root: str
    parent: str | None
    depth: int
    behaviour: str
    created: float
    policy: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT
    forked_from: str | None = None
    forked_at: int | None = None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One line of a list of sessions.

    Parameters:
        id, agent_id, system_id, root, parent, depth, behaviour, created: as in the header.
        status: ``active`` while the agent lives, else how it ended, e.g. ``completed``.
        events: how many events the log has.
        ended: Unix seconds when the status stopped being ``active``, or None.
        last_event: Unix seconds of the newest event, or None if there is none.
        damaged: whether something of it was lost. If its header was, only its id is true, the
            other texts are empty and the numbers 0.
    """

    id: str
    agent_id: str
    system_id: str
    root: str
    parent: str | None
    depth: int
    behaviour: str
    created: float
    status: str
    events: int
    ended: float | None
    last_event: float | None
    damaged: bool = False


class SessionLog(NamedTuple):
    """What is stored of one session.

    Parameters:
        header: what is fixed about it.
        events: all of it in order, without a gap. One that is missing or cannot be read is
            represented by one of the type ``damaged``, with ``{"problem": …}`` as its data.
        damage: what was lost, in words, one finding each; empty for a sound session.
    """

    header: SessionHeader
    events: list[Event]
    damage: tuple[str, ...] = ()
