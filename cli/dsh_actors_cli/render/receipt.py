"""The receipt of a run, for people: who ended how, which processes, and who is left."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from dsh_actors.observe.display import display_text
from dsh_actors_cli.duration import show_duration
from dsh_actors_cli.render.style import Style, cell_width, pad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh_actors_cli.outcome import Outcome

__all__ = ["counted", "end_lines", "full_receipt", "plural", "receipt_lines", "short_receipt"]

_OUTCOMES = {"completed": "green", "failed": "red", "aborted": "yellow", "lost": "red"}
_MAX_NAMED = 20
_MAX_FRAMES = 6


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 worker``, ``2 processes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def counted(counts: Mapping[str, int], style: Style) -> str:
    """Return ``3 completed, 1 lost``, or ``none``."""
    parts = [
        style(f"{counts[name]} {name}", colour)
        for name, colour in _OUTCOMES.items()
        if counts.get(name)
    ]
    return ", ".join(parts) or "none"


def short_receipt(outcome: Outcome, style: Style) -> str:
    """Return the one line for a run that ended well."""
    counts = Counter(agent["outcome"] for agent in outcome.receipt["agents"])
    processes = outcome.receipt["processes"]
    workers = sum(process["kind"] == "worker" for process in processes)
    ended = f"; {plural(workers, 'worker')} ended" if workers else ""
    return (
        f"{style('done', 'green')} in {show_duration(outcome.duration)}; "
        f"agents: {counted(counts, style)}{ended}; nothing left running"
    )


def full_receipt(outcome: Outcome, style: Style) -> list[str]:
    """Return the lines for a run that was stopped or failed."""
    ended = f"{style(outcome.verdict.subtype, 'bold')} after {show_duration(outcome.duration)}"
    return [ended, *receipt_lines(outcome.receipt, style)]


def receipt_lines(receipt: Mapping[str, Any], style: Style) -> list[str]:
    """Return the lines of a receipt: agents, processes and survivors, indented."""
    agents, processes = receipt["agents"], receipt["processes"]
    survivors = receipt["survivors"]
    counts = Counter(agent["outcome"] for agent in agents)
    lines = [
        f"  agents     {counted(counts, style)}",
        *_named([_agent(a, style) for a in agents if a["outcome"] != "completed"], style),
        f"  processes  {plural(len(processes), 'process') + ' ended' if processes else 'none'}",
        *_named([_process(p, style) for p in processes], style),
    ]
    if not survivors:
        return [*lines, f"  survivors  {style('none', 'green')}"]
    lines.append(f"  survivors  {style(str(len(survivors)), 'red', 'bold')}")
    for survivor in survivors[:_MAX_NAMED]:
        lines.append(f"    {display_text(survivor['id'])}  pid {survivor['pid']}")
        lines.extend(f"      {style(frame, 'dim')}" for frame in _stack(survivor["stack"]))
    return lines


def end_lines(outcome: Outcome, style: Style, *, look: str) -> list[str]:
    """Return what is printed at the very end: the error, the receipt, and the session.

    Parameters:
        outcome: of the run.
        style: how to paint.
        look: the command that shows the session; empty if there is none to show.
    """
    verdict = outcome.verdict
    lines: list[str] = []
    if verdict.error is not None:
        error = f"{verdict.error['type']}: {verdict.error['message']}"
        place = _place(verdict.traceback)
        lines.append(
            f"dsh-actors: {style('error', 'red')}: {display_text(error.rstrip(': '))}{place}"
        )
    if verdict.subtype == "completed":
        lines.append(short_receipt(outcome, style))
    else:
        lines.extend(full_receipt(outcome, style))
    if look:
        lines.append(f"session {outcome.session_id}: {display_text(look)}")
    return lines


def _place(traceback: str) -> str:
    """Return where an exception was raised, as `` (file:line)``."""
    frames = re.findall(r'^  File "(.+)", line (\d+)', traceback, re.MULTILINE)
    return f" ({display_text(frames[-1][0])}:{frames[-1][1]})" if frames else ""


def _agent(agent: Mapping[str, Any], style: Style) -> tuple[str, str]:
    outcome = style(agent["outcome"], _OUTCOMES[agent["outcome"]])
    where = f"  pid {agent['pid']}" if agent["pid"] else ""
    return display_text(agent["id"]), outcome + where


def _process(process: Mapping[str, Any], style: Style) -> tuple[str, str]:
    by = f" by {_signal_name(process['signal'])}" if process["signal"] else ""
    how = f"{process['ended']}{by}"
    return (
        f"{display_text(process['kind'])} {process['pid']}",
        how if process["ended"] == "exited" else style(how, "yellow"),
    )


def _named(rows: Sequence[tuple[str, str]], style: Style) -> list[str]:
    shown = rows[:_MAX_NAMED]
    width = max((cell_width(name) for name, _ in shown), default=0)
    lines = [f"    {pad(name, width)}  {text}" for name, text in shown]
    if len(rows) > len(shown):
        lines.append(style(f"    ... and {len(rows) - len(shown)} more", "dim"))
    return lines


def _signal_name(number: int | str) -> str:
    if isinstance(number, str):
        return number
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _stack(stack: str | Sequence[str] | None) -> list[str]:
    text = stack if isinstance(stack, str) else "\n".join(stack or ())
    lines = [display_text(line.strip()) for line in text.splitlines() if line.strip()]
    return lines[-_MAX_FRAMES:]
