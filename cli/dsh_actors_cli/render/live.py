"""The live tree: one frame of a running system, drawn with rich."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dsh_actors.observe.display import display_text
from dsh_actors_cli.duration import show_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table

__all__ = ["Frame", "Node", "Row", "draw_frame", "rows_of"]

# Below these widths the note, and then the process, have no room.
_WIDTH_FOR_NOTE = 100
_WIDTH_FOR_PROCESS = 70
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


class Node(Protocol):
    """What the frame needs to know of an agent in the tree of a system."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def progress(self) -> Mapping[str, Any] | None: ...
    @property
    def queued(self) -> int: ...
    @property
    def started(self) -> float: ...
    @property
    def children(self) -> Sequence[Node]: ...


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree: an agent, or a summary of those that are not shown.

    Attributes:
        guide: the lines that lead to it.
        node: the agent, or None for a summary.
        text: of a summary.
    """

    guide: str
    node: Node | None = None
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
        notice: what the user must know now, e.g. that the run is stopping.
        restarts: how often an agent was restarted.
    """

    title: str
    elapsed: float
    now: float
    roots: Sequence[Node]
    ended: Mapping[str, Counter[str]] = field(default_factory=dict)
    named: Collection[str] = ()
    notice: str = ""
    restarts: int = 0


def draw_frame(frame: Frame, console: Console) -> list[str]:
    """Return the frame as lines that fit the console, styles included."""
    from rich.console import Group

    height = max(2, console.height - 3)
    parts: list[RenderableType] = [_heading(frame)]
    if frame.roots:
        parts.append(_table(frame, rows_of(frame, height), console.width))
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
    frame: Frame, nodes: Sequence[Node], parent: str, guide: str, most: int, limit: int
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


def _choose(nodes: Sequence[Node], most: int, named: Collection[str]) -> list[Node]:
    """Return the children to show, in their own order: parents and named ones, then busy ones."""
    if len(nodes) <= most:
        return list(nodes)

    def rank(place: int) -> tuple[bool, bool, int]:
        node = nodes[place]
        return not node.children, node.id not in named, _BUSY.index(node.status)

    chosen = sorted(range(len(nodes)), key=rank)[:most]
    return [nodes[place] for place in sorted(chosen)]


def _summary(nodes: Sequence[Node], shown: Sequence[Node], ended: Mapping[str, int]) -> str:
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
    if frame.notice:
        heading.append(f"\n{frame.notice}", "bold yellow")
    return heading


def _living(roots: Sequence[Node]) -> Counter[str]:
    counts: Counter[str] = Counter()
    todo = list(roots)
    while todo:
        node = todo.pop()
        counts[node.status] += 1
        todo.extend(node.children)
    return counts


def _table(frame: Frame, rows: Sequence[Row], width: int) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=None)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    if width >= _WIDTH_FOR_PROCESS:
        table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    if width >= _WIDTH_FOR_NOTE:
        table.add_column(no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*_cells(row, frame, width))
    return table


def _cells(row: Row, frame: Frame, width: int) -> list[RenderableType]:
    from rich.text import Text

    node = row.node
    if node is None:
        return [Text.assemble((row.guide, "dim"), (row.text, "dim"))]
    status = Text(node.status, _STATUS.get(node.status, ""))
    if node.queued:
        status.append(f" +{node.queued}", "dim")
    cells: list[RenderableType] = [
        Text.assemble((row.guide, "dim"), display_text(node.id)),
        status,
        Text(show_duration(max(0.0, frame.now - node.started)), "dim"),
    ]
    if width >= _WIDTH_FOR_PROCESS:
        cells.append(Text(f"pid {node.pid}" if node.pid else "", "dim"))
    cells.append(_progress(node.progress))
    if width >= _WIDTH_FOR_NOTE:
        cells.append(Text(display_text((node.progress or {}).get("note") or ""), "dim"))
    return cells


def _progress(progress: Mapping[str, Any] | None) -> RenderableType:
    from rich.text import Text

    if not progress or progress.get("done") is None:
        return Text("")
    done, total = progress["done"], progress.get("total")
    if not total:
        return Text(f"{done}")
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    bar = Table.grid(padding=(0, 1, 0, 0))
    bar.add_row(ProgressBar(total=total, completed=done, width=_BAR), Text(f"{done}/{total}"))
    return bar
