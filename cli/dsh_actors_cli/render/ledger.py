"""What has been heard of a running system: the counts that its tree no longer shows."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Ledger"]


class Ledger:
    """Collects the events of a system.

    `hear` is called on threads of the library, which must not wait, so it only puts events
    aside. `digest` is for one reader.

    Attributes:
        ended: how many agents ended, by outcome, for each parent's id (empty for roots).
        reasons: why agents failed or were lost, by id.
        progress: what living agents last reported, by id: an agent that reports how much is
            done need not say again how much there is.
        restarts: how often an agent was restarted.
    """

    def __init__(self) -> None:
        self._heard: deque[Mapping[str, Any]] = deque()
        self._parents: dict[str, str] = {}
        self._errors: dict[str, str] = {}
        self.ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.reasons: dict[str, str] = {}
        self.progress: dict[str, dict[str, Any]] = {}
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

    def _count(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind == "agent/started":
            self._parents[event["agent"]] = event["parent"] or ""
        elif kind == "progress":
            fresh = {key: value for key, value in event.items() if value is not None}
            self.progress.setdefault(event["agent"], {}).update(fresh)
        elif kind == "turn/end" and event["error"]:
            self._errors[event["agent"]] = event["error"]
        elif kind == "agent/restarted":
            self.restarts += 1
        if kind == "agent/ended":
            self.progress.pop(event["agent"], None)
        if kind == "agent/ended" and not event["restarting"]:
            agent, outcome = event["agent"], event["outcome"]
            self.ended[self._parents.pop(agent, "")][outcome] += 1
            error = self._errors.pop(agent, None)
            reason = event["detail"] or error
            if reason and outcome != "completed":
                self.reasons[agent] = reason
