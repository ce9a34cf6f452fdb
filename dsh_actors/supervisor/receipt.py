"""What a stop returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Outcome
    from dsh_actors.workers.pool import EndedProcess


class AgentEnd(NamedTuple):
    """One agent that has ended: its id, its outcome, the process that hosted it, and why."""

    id: str
    outcome: Outcome
    pid: int
    detail: str | None = None


class Survivor(NamedTuple):
    """One agent that has not ended within the grace period, with the stack of its code."""

    id: str
    pid: int
    stack: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """Who ended, and how.

    Attributes:
        agents: each agent that ended, in the order in which the stop was signalled.
        processes: each process that was ended, workers and what they had started.
        survivors: each agent that still runs. While there is one, "stopped" is not true.
    """

    agents: tuple[AgentEnd, ...]
    processes: tuple[EndedProcess, ...]
    survivors: tuple[Survivor, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing survived."""
        return not self.survivors

    def to_dict(self) -> dict[str, Any]:
        """The receipt as plain data, as in the result object of the command."""
        return {
            "agents": [{"id": a.id, "outcome": a.outcome, "pid": a.pid} for a in self.agents],
            "processes": [process._asdict() for process in self.processes],
            "survivors": [survivor._asdict() for survivor in self.survivors],
        }
