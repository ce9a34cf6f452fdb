"""What a resume tells: what came back, and what did not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh_actors.actors.future import Future


@dataclass(frozen=True, slots=True)
class ResumeReport:
    """What came back with a resume, and what did not.

    Attributes:
        restored: the prompts that are in inboxes again, by message id, each with the future of
            its answer.
        agents: the ids of the agents that live again, parents first.
        sleeping: those of children that have settled and go on when they are asked.
        lost: those of agents that could not come back, each with the reason.
    """

    restored: Mapping[int, Future[Any]] = field(default_factory=dict)
    agents: tuple[str, ...] = ()
    sleeping: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
