"""Which sessions can be resumed: the one query by which the front end finds any."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from dsh_actors.errors import Holder
    from dsh_actors.sessions import SessionInfo
    from dsh_actors.sessions.store import SessionReader

__all__ = ["Choice", "choices"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A session, as one line to choose.

    Attributes:
        id: of the session.
        agent: the root agent that it is of.
        created: Unix seconds.
        status: how the agent ended, or ``active``.
        marks: ``current`` (this process is bound to it), ``live`` (its agent lives in this
            process) and ``persisted`` (it is in the store), as applicable.
        refusal: why it cannot be resumed now; empty if it can.
    """

    id: str
    agent: str
    created: float
    status: str
    marks: tuple[str, ...]
    refusal: str = ""


def choices(
    reader: SessionReader, *, current: Container[str] = (), live: Container[str] = ()
) -> list[Choice]:
    """Return the sessions of roots, newest first. Those of children come back with them.

    Parameters:
        reader: the store.
        current: the sessions that this process is bound to.
        live: those whose agents live in this process.

    Raises:
        StoreError: the store cannot be read.
    """
    holders = reader.holders()
    found = []
    for info in reader.list():
        if info.parent is None:
            marks = [name for name, ids in (("current", current), ("live", live)) if info.id in ids]
            refusal = _refusal(info, holders.get(info.id))
            found.append(
                Choice(
                    info.id,
                    info.agent_id,
                    info.created,
                    info.status,
                    (*marks, "persisted"),
                    refusal,
                )
            )
    return found


def _refusal(info: SessionInfo, holder: Holder | None) -> str:
    if info.damaged and not info.agent_id:
        return "damaged: only its id can be read"
    if holder is not None and (holder.host, holder.pid) != (os.uname().nodename, os.getpid()):
        return f"in use by {holder.name}, process {holder.pid} on {holder.host}"
    return ""
