"""What has been heard of a running system: the counts that its tree no longer shows."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ledger"]

Event = "Mapping[str, Any]"


class Ledger:
    """Collects the events of a system.

    `hear` is called on threads of the library, which must not wait, so it only puts events
    aside. `digest` is for one reader.

    Attributes:
        ended: how many agents ended, by outcome, for each parent's id (empty for roots).
        reasons: why agents failed or were lost, by id.
        restarts: how often an agent was restarted.
    """

    def __init__(self) -> None:
        self._heard: deque[Mapping[str, Any]] = deque()
        self._parents: dict[str, str] = {}
        self.ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.reasons: dict[str, str] = {}
        self.restarts = 0

    def hear(self, event: Mapping[str, Any]) -> None:
        """Put an event aside."""
        self._heard.append(event)

    def digest(self) -> list[Mapping[str, Any]]:
        """Count the events that came since the last call, and return them."""
        fresh: list[Mapping[str, Any]] = []
        while self._heard:
            event = self._heard.popleft()
            fresh.append(event)
            self._count(event)
        return fresh

    def totals(self) -> Counter[str]:
        """Return how many agents ended, by outcome."""
        return sum(self.ended.values(), Counter())

    def _count(self, event: Mapping[str, Any]) -> None:
        kind, agent = event["type"], str(event.get("agent") or "")
        if kind == "agent/started":
            self._parents[agent] = str(event.get("parent") or "")
        elif kind == "agent/ended":
            parent = self._parents.pop(agent, None) or str(event.get("parent") or "")
            outcome = str(event.get("outcome") or "completed")
            self.ended[parent][outcome] += 1
            reason = reason_of(event)
            if reason and outcome != "completed":
                self.reasons[agent] = reason
        elif kind == "agent/restarted":
            self.restarts += 1


def reason_of(event: Mapping[str, Any]) -> str:
    """Return why the agent of an event ended, as far as the event says."""
    error = event.get("error") or event.get("reason") or ""
    if isinstance(error, dict):
        return f"{error.get('type', 'error')}: {error.get('message', '')}".rstrip(": ")
    return str(error)
