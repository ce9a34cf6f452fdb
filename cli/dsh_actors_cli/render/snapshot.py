"""A tree of agents as plain lines, one for each agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.observe.display import display_text
from dsh_actors_cli.duration import show_duration
from dsh_actors_cli.render.style import Style, cell_width, clip, pad

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["snapshot_lines"]

_STATUS = {"running": "green", "waiting": "cyan", "stopping": "yellow", "lost": "red"}


def snapshot_lines(
    agents: Sequence[Mapping[str, Any]], now: float, style: Style, width: int | None
) -> list[str]:
    """Return the lines of a tree.

    Parameters:
        agents: the roots, as plain data.
        now: the moment, in Unix seconds.
        style: how to paint.
        width: columns to cut the lines to; None cuts nothing.
    """
    rows = list(_rows(agents))
    labels = [guide + display_text(node["id"]) for guide, node in rows]
    wide = max(map(cell_width, labels), default=0)
    statuses = [_status(node) for _, node in rows]
    broad = max(map(len, statuses), default=0)
    lines = []
    for label, status, (_, node) in zip(labels, statuses, rows, strict=True):
        facts = _facts(node, now)
        if width is not None:
            facts = clip(facts, max(0, width - wide - broad - 4))
        colour = _STATUS.get(node["status"], "dim")
        painted = style(pad(status, broad), colour)
        lines.append(f"{pad(label, wide)}  {painted}  {style(facts, 'dim')}".rstrip())
    return lines


def _rows(agents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each agent with the lines that lead to it. Trees may be deep: no recursion."""
    todo = [(node, "", "") for node in reversed(agents)]
    while todo:
        node, guide, below = todo.pop()
        yield guide, node
        children = node["children"]
        for place in range(len(children) - 1, -1, -1):
            is_last = place == len(children) - 1
            branch, deeper = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            todo.append((children[place], below + branch, below + deeper))


def _status(node: Mapping[str, Any]) -> str:
    # The message that is worked on counts as queued, but it does not wait.
    waiting = node["queued"] - (node["status"] in ("running", "stopping"))
    return f"{node['status']} +{waiting}" if waiting > 0 else str(node["status"])


def _facts(node: Mapping[str, Any], now: float) -> str:
    facts = [show_duration(max(0.0, now - node["started"]))] if node["started"] else []
    if node["isolation"] != "inline":
        facts.append(f"pid {node['pid']}")
    progress = node["progress"] or {}
    done, total = progress.get("done"), progress.get("total")
    if done is not None:
        facts.append(f"{done}/{total}" if total else f"{done}")
    if progress.get("note"):
        facts.append(display_text(progress["note"]))
    return "  ".join(facts)
