"""The live tree: one frame of a running system, drawn with rich."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dsh_actors.observe.display import display_text
from dsh_actors_cli.duration import show_duration
from dsh_actors_cli.render.style import cell_width

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table

    from dsh_actors.system import TreeNode

__all__ = ["Frame", "Row", "draw_frame", "rows_of"]

# The share of the width that names may take.
_LABEL_SHARE = 0.4
_NARROWEST_NOTE = 16
_GAP = 2
_PID = 11
_BAR = 16
# How many children of one parent are shown if there is room.
_MOST_CHILDREN = 12

_BUSY = ("running", "stopping", "preparing", "lost", "waiting", "idle", "settled")
_STATUS = {
    "running": "bold green",
    "waiting": "cyan",
    "preparing": "blue",
    "stopping": "yellow",
    "lost": "bold red",
    "idle": "dim",
    "settled": "dim",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree: an agent, or a summary of those that are not shown.

    Attributes:
        guide: the lines that lead to it.
        node: the agent, or None for a summary.
        text: of a summary.
    """

    guide: str
    node: TreeNode | None = None
    text: str = ""


@dataclass(slots=True)
class Frame:
    """All that one frame shows.

    Attributes:
        title: the name of the tree.
        elapsed: seconds since the run began.
        now: the moment, on the clock of the nodes' `started`.
        roots: the living agents.
        ended: how many children have ended, by outcome, for each parent's id.
        named: the agents of the tree file, which are shown before others.
        progress: what agents last reported, by id; it stands before what the nodes say.
        notice: what the user must know now, e.g. that the run is stopping.
        restarts: how often an agent was restarted.
        session: of the run.
    """

    title: str
    elapsed: float
    now: float
    roots: Sequence[TreeNode]
    ended: Mapping[str, Counter[str]] = field(default_factory=dict)
    named: Collection[str] = ()
    progress: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notice: str = ""
    restarts: int = 0
    session: str = ""


def draw_frame(frame: Frame, console: Console) -> list[str]:
    """Return the frame as lines that fit the console, styles included."""
    from rich.console import Group

    height = max(2, console.height - 3)
    parts: list[RenderableType] = [_heading(frame)]
    if frame.roots:
        parts.extend(_body(frame, rows_of(frame, height), console.width))
    with console.capture() as captured:
        console.print(Group(*parts), overflow="ellipsis", no_wrap=True, crop=True)
    return captured.get().splitlines()[: console.height - 1]


def make_console(width: int, height: int, colour: bool) -> Console:
    """Return a console that draws into memory for a terminal of this size."""
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=True,
        no_color=not colour,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )


def rows_of(frame: Frame, height: int) -> list[Row]:
    """Return the rows of the tree: as many children of each parent as there is room for."""
    for most in range(_MOST_CHILDREN, 0, -1):
        rows = _level(frame, frame.roots, "", "", most, height)
        if len(rows) <= height:
            return rows
    hidden = len(rows) - height + 1
    return [*rows[: height - 1], Row("", text=f"... {hidden} more lines")]


def _level(
    frame: Frame, nodes: Sequence[TreeNode], parent: str, guide: str, most: int, limit: int
) -> list[Row]:
    shown = _choose(nodes, most, frame.named)
    summary = _summary(nodes, shown, frame.ended.get(parent, Counter()))
    rows: list[Row] = []
    for place, node in enumerate(shown):
        is_last = place == len(shown) - 1 and not summary
        branch, deeper = ("", "") if not parent else ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        rows.append(Row(guide + branch, node))
        if len(rows) > limit:
            return rows
        rows.extend(_level(frame, node.children, node.id, guide + deeper, most, limit))
    if summary:
        rows.append(Row(guide + ("└─ " if parent else ""), text=summary))
    return rows


def _choose(nodes: Sequence[TreeNode], most: int, named: Collection[str]) -> list[TreeNode]:
    """Return the children to show, in their own order: parents and named ones, then busy ones."""
    if len(nodes) <= most:
        return list(nodes)

    def rank(place: int) -> tuple[bool, bool, int]:
        node = nodes[place]
        return not node.children, node.id not in named, _BUSY.index(node.status)

    chosen = sorted(range(len(nodes)), key=rank)[:most]
    return [nodes[place] for place in sorted(chosen)]


def _summary(nodes: Sequence[TreeNode], shown: Sequence[TreeNode], ended: Mapping[str, int]) -> str:
    hidden: Counter[str] = Counter()
    if len(shown) < len(nodes):
        hidden.update(node.status for node in nodes)
        hidden.subtract(node.status for node in shown)
    parts = [f"{count} {outcome}" for outcome, count in ended.items() if count]
    parts += [f"{hidden[status]} more {status}" for status in _BUSY if hidden[status]]
    return ", ".join(parts)


def _heading(frame: Frame) -> RenderableType:
    from rich.text import Text

    totals = sum(frame.ended.values(), Counter[str]())
    living = _living(frame.roots)
    parts = [f"{living[status]} {status}" for status in _BUSY if living[status]]
    parts += [f"{count} {outcome}" for outcome, count in totals.items() if count]
    if frame.restarts:
        parts.append(f"{frame.restarts} restarted")
    heading = Text()
    heading.append(display_text(frame.title), "bold")
    heading.append(f"  {show_duration(frame.elapsed)}", "dim")
    if parts:
        heading.append(f"  {', '.join(parts)}")
    if frame.session:
        heading.append(f"  {frame.session}", "dim")
    if frame.notice:
        heading.append(f"\n{frame.notice}", "bold yellow")
    return heading


def _living(roots: Sequence[TreeNode]) -> Counter[str]:
    counts: Counter[str] = Counter()
    todo = list(roots)
    while todo:
        node = todo.pop()
        counts[node.status] += 1
        todo.extend(node.children)
    return counts


def _body(frame: Frame, rows: Sequence[Row], width: int) -> list[RenderableType]:
    """Return the rows: agents in grids of the same columns, summaries as lines between them."""
    from itertools import groupby

    from rich.text import Text

    columns = _columns(frame, rows, width)
    body: list[RenderableType] = []
    for is_agent, group in groupby(rows, key=lambda row: row.node is not None):
        if is_agent:
            body.append(_grid(frame, list(group), columns))
        else:
            body.extend(Text(f"{row.guide}{row.text}", "dim") for row in group)
    return body


def _columns(frame: Frame, rows: Sequence[Row], width: int) -> dict[str, int]:
    """Return the width of each column that there is room for, by its name."""
    labels = [cell_width(r.guide + display_text(r.node.id)) for r in rows if r.node is not None]
    statuses = [len(_status_text(row.node)) for row in rows if row.node is not None]
    counts = [len(_count(_reported(frame, r.node))) for r in rows if r.node is not None]
    remote = [row.node.isolation != "inline" for row in rows if row.node is not None]
    columns = {
        "label": min(max(labels, default=0), max(12, int(width * _LABEL_SHARE))),
        "status": max(statuses, default=0),
    }
    for name, wanted in (
        ("elapsed", 9),
        ("bar", _BAR if any(counts) else 0),
        ("count", max(counts, default=0)),
        ("pid", _PID if any(remote) else 0),
    ):
        if wanted and sum(columns.values()) + _GAP * len(columns) + wanted <= width:
            columns[name] = wanted
    left = width - sum(columns.values()) - _GAP * len(columns)
    if left >= _NARROWEST_NOTE:
        columns["note"] = left
    return columns


def _grid(frame: Frame, rows: Sequence[Row], columns: Mapping[str, int]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for name, width in columns.items():
        right = name in ("elapsed", "count")
        grid.add_column(
            width=width, no_wrap=True, overflow="ellipsis", justify="right" if right else "left"
        )
    for row in rows:
        assert row.node is not None
        cells = _cells(row.guide, row.node, _reported(frame, row.node), frame.now)
        grid.add_row(*(cells[name] for name in columns))
    return grid


def _cells(
    guide: str, node: TreeNode, progress: Mapping[str, Any], now: float
) -> dict[str, RenderableType]:
    from rich.text import Text

    done, total = progress.get("done"), progress.get("total")
    bar = _bar(done, total) if total and done is not None else ""
    return {
        "label": Text.assemble((guide, "dim"), display_text(node.id)),
        "status": Text(_status_text(node), _STATUS.get(node.status, "")),
        "elapsed": Text(show_duration(max(0.0, now - node.started)), "dim"),
        "bar": bar,
        "count": Text(_count(progress)),
        "pid": Text("" if node.isolation == "inline" else f"pid {node.pid}", "dim"),
        "note": Text(display_text(progress.get("note") or ""), "dim"),
    }


def _bar(done: float, total: float) -> RenderableType:
    from rich.progress_bar import ProgressBar

    return ProgressBar(
        total=total,
        completed=done,
        width=_BAR,
        style="bright_black",
        complete_style="green",
        finished_style="bold green",
    )


def _status_text(node: TreeNode | None) -> str:
    if node is None:
        return ""
    # The message that is worked on counts as queued, but it does not wait.
    waiting = node.queued - (node.status in ("running", "stopping"))
    return f"{node.status} +{waiting}" if waiting > 0 else node.status


def _reported(frame: Frame, node: TreeNode) -> Mapping[str, Any]:
    return frame.progress.get(node.id) or node.progress or {}


def _count(progress: Mapping[str, Any]) -> str:
    done, total = progress.get("done"), progress.get("total")
    if done is None:
        return ""
    return f"{done}/{total}" if total else f"{done}"
