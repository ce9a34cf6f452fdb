"""Progress as plain lines, for logs, pipes and dumb terminals."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from dsh_actors.observe.display import display_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dsh_actors_cli.render.style import Style

__all__ = ["PlainLines"]

# Seconds between two progress lines of one agent.
_EVERY = 1.0
# How many ends that are not "completed" are named in one go; the rest is counted.
_MAX_NAMED = 10


class PlainLines:
    """Turns events into lines, few enough to be read.

    Parameters:
        named: the agents whose start and end are worth a line: those of the tree file.
        style: how to paint.
        started: the moment that the run began, on the monotonic clock.
        sessions: those that agents are bound to, by id.
    """

    def __init__(
        self,
        named: Iterable[str],
        style: Style,
        started: float,
        sessions: Mapping[str, str] | None = None,
    ) -> None:
        self._named = frozenset(named)
        self._style = style
        self._started = started
        self._sessions = sessions or {}
        self._errors: dict[str, str] = {}
        self._restarting: set[str] = set()
        self._known: dict[str, Mapping[str, Any]] = {}
        self._told: dict[str, float] = {}
        self._waiting: dict[str, Mapping[str, Any]] = {}

    def lines(self, events: Iterable[Mapping[str, Any]], *, last: bool = False) -> list[str]:
        """Return the lines for the events of the last moments.

        Parameters:
            events: in the order in which they came.
            last: whether this is the last call, so that nothing may be kept for later.
        """
        told: list[str] = []
        troubles: list[str] = []
        for event in events:
            kind, agent = event["type"], event.get("agent")
            if kind == "progress":
                self._note_progress(event)
            elif kind == "agent/started" and agent in self._named:
                if agent not in self._restarting:
                    session = self._sessions.get(event["agent"])
                    where = f" in session {session}" if session else ""
                    told.append(f"{display_text(agent)}: started{where}")
            elif kind == "turn/end" and event["error"]:
                self._errors[event["agent"]] = event["error"]
            elif kind == "agent/ended":
                self._end(event, told, troubles)
            elif kind == "agent/restarted":
                self._restarting.discard(event["agent"])
                told.append(f"{display_text(agent)}: restarted: {display_text(event['reason'])}")
            elif kind == "worker/ended" and not event["expected"]:
                told.append(self._style(display_text(event["how"]), "red"))
        told.extend(self._progress(last))
        told.extend(troubles[:_MAX_NAMED])
        if len(troubles) > _MAX_NAMED:
            told.append(f"... and {len(troubles) - _MAX_NAMED} more did not complete")
        stamp = self._style(f"{monotonic() - self._started:7.1f}s", "dim")
        return [f"{stamp}  {line}" for line in told]

    def _note_progress(self, event: Mapping[str, Any]) -> None:
        agent = event["agent"]
        fresh = {key: value for key, value in event.items() if value is not None}
        self._waiting[agent] = self._known[agent] = {**self._known.get(agent, {}), **fresh}

    def _end(self, event: Mapping[str, Any], told: list[str], troubles: list[str]) -> None:
        agent, outcome = event["agent"], event["outcome"]
        self._told.pop(agent, None)
        self._known.pop(agent, None)
        waiting = self._waiting.pop(agent, None)
        error = self._errors.pop(agent, None)
        if event["restarting"]:
            self._restarting.add(agent)
            return  # it is told when the new one is there
        if agent in self._named and waiting is not None:
            told.append(_progress_line(agent, waiting))
        reason = "" if outcome == "completed" else event["detail"] or error
        line = f"{display_text(agent)}: {outcome}" + (f": {display_text(reason)}" if reason else "")
        if outcome in ("failed", "lost"):
            troubles.append(self._style(line, "red"))
        elif agent in self._named:
            told.append(line)

    def _progress(self, last: bool) -> list[str]:
        now = monotonic()
        due = [
            agent
            for agent, event in self._waiting.items()
            if last or _is_full(event) or now - self._told.get(agent, -_EVERY) >= _EVERY
        ]
        for agent in due:
            self._told[agent] = now
        return [_progress_line(agent, self._waiting.pop(agent)) for agent in due]


def _is_full(event: Mapping[str, Any]) -> bool:
    return bool(event.get("total")) and event.get("done") == event.get("total")


def _progress_line(agent: str, event: Mapping[str, Any]) -> str:
    done, total, note = event.get("done"), event.get("total"), event.get("note")
    parts = [f"{display_text(agent)}:"]
    if done is not None:
        parts.append(f"{done}/{total} ({done / total:.0%})" if total else f"{done}")
    if note:
        parts.append(display_text(note))
    return " ".join(parts)
