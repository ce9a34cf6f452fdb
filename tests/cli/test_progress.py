from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.system import TreeNode
from dsh_actors_cli.duration import parse_duration, show_duration
from dsh_actors_cli.render import plain
from dsh_actors_cli.render.ledger import Ledger
from dsh_actors_cli.render.live import Frame, draw_frame, make_console, rows_of
from dsh_actors_cli.render.style import Style, cell_width

if TYPE_CHECKING:
    from collections.abc import Iterable


def agent(
    id: str,
    status: str = "running",
    *,
    pid: int = 0,
    progress: dict[str, Any] | None = None,
    queued: int = 0,
    children: Iterable[TreeNode] = (),
) -> TreeNode:
    isolation = "pool" if pid else "inline"
    return TreeNode(id, status, isolation, pid, progress, queued, 100.0, list(children))


def started(name: str, parent: str | None = None) -> dict[str, Any]:
    return {"type": "agent/started", "agent": name, "parent": parent}


def ended(
    name: str, outcome: str = "completed", detail: str | None = None, restarting: bool = False
) -> dict[str, Any]:
    return {
        "type": "agent/ended",
        "agent": name,
        "outcome": outcome,
        "detail": detail,
        "restarting": restarting,
    }


def turn_failed(name: str, error: str) -> dict[str, Any]:
    return {"type": "turn/end", "agent": name, "turn": 1, "reason": "error", "error": error}


def progress(name: str, **values: Any) -> dict[str, Any]:
    return {"type": "progress", "agent": name, **values}


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(plain, "monotonic", clock)
    return clock


@pytest.fixture
def lines(clock: Clock) -> plain.PlainLines:
    return plain.PlainLines(["root"], Style(False), started=49.5)


def test_the_ledger_counts_ends_for_each_parent() -> None:
    ledger = Ledger()
    for event in (
        started("root"),
        started("c1", "root"),
        started("c2", "root"),
        ended("c1"),
        ended("c2", "lost", "worker 7 ended", restarting=True),
        started("c2", "root"),
        {"type": "agent/restarted", "agent": "c2", "reason": "worker 7 ended"},
        ended("c2", "lost", "worker 8 ended"),
        turn_failed("root", "ValueError: x"),
        ended("root", "failed"),
    ):
        ledger.hear(event)
    assert len(ledger.digest()) == 10
    assert ledger.digest() == []
    assert ledger.ended["root"] == {"completed": 1, "lost": 1}
    assert ledger.ended[""] == {"failed": 1}
    assert ledger.reasons == {"c2": "worker 8 ended", "root": "ValueError: x"}
    assert ledger.restarts == 1


def test_only_agents_of_the_file_get_a_line_for_their_start_and_end(
    lines: plain.PlainLines,
) -> None:
    events = [started("root"), started("c1", "root"), ended("c1"), ended("root")]
    assert lines.lines(events) == ["    0.5s  root: started", "    0.5s  root: completed"]


def test_progress_is_told_once_a_second_and_at_its_end(
    lines: plain.PlainLines, clock: Clock
) -> None:
    assert lines.lines([progress("root", done=1, total=10)]) == ["    0.5s  root: 1/10 (10%)"]
    assert lines.lines([progress("root", done=2), progress("root", done=3)]) == []
    clock.now += 1
    assert lines.lines([]) == ["    1.5s  root: 3/10 (30%)"]
    assert lines.lines([progress("root", done=10, note="last\x1b")]) == [
        "    1.5s  root: 10/10 (100%) last\\x1b"
    ]
    assert lines.lines([progress("root", done=4)], last=True) == [
        "    1.5s  root: 4/10 (40%) last\\x1b"
    ]


def test_troubles_are_named_up_to_a_number(lines: plain.PlainLines) -> None:
    events = [turn_failed(f"c{n}", "ValueError: x") for n in range(12)]
    told = lines.lines([*events, *(ended(f"c{n}", "failed") for n in range(12))])
    assert told[0] == "    0.5s  c0: failed: ValueError: x"
    assert told[-1] == "    0.5s  ... and 2 more did not complete"
    assert len(told) == 11


def test_restarts_and_ends_of_workers_get_a_line(lines: plain.PlainLines) -> None:
    events = [
        {"type": "worker/ended", "pid": 7, "how": "worker 7 was killed", "expected": False},
        {"type": "worker/ended", "pid": 8, "how": "worker 8 exited", "expected": True},
        ended("root", "lost", "worker 7 was killed", restarting=True),
        started("root"),
        {"type": "agent/restarted", "agent": "root", "reason": "worker 7 was killed"},
    ]
    assert lines.lines(events) == [
        "    0.5s  worker 7 was killed",
        "    0.5s  root: restarted: worker 7 was killed",
    ]


def frame_of(roots: list[TreeNode], **values: Any) -> Frame:
    return Frame("census", 12.0, 103.5, roots, **values)


def draw(frame: Frame, width: int = 100, height: int = 24) -> list[str]:
    return draw_frame(frame, make_console(width, height, colour=False))


def unstyled(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()


def test_the_frame_shows_the_tree_with_progress() -> None:
    root = agent("census", "waiting", progress={"done": 5, "total": 10, "note": "parsing"})
    root.children[:] = [agent("c-1", pid=71), agent("c-2", pid=72, queued=3)]
    ended = {"census": Counter(completed=118, failed=2)}
    text = [unstyled(line) for line in draw(frame_of([root], ended=ended))]
    assert text[0] == "census  12 s  2 running, 1 waiting, 118 completed, 2 failed"
    assert text[1].split()[:4] == ["census", "waiting", "3.5", "s"]
    assert text[1].endswith("parsing")
    assert "5/10" in text[1]
    assert text[2].startswith("├─ c-1")
    assert "pid 71" in text[2]
    assert "running +2" in text[3]
    assert text[4] == "└─ 118 completed, 2 failed"


def test_many_children_are_summarised_and_the_busy_ones_shown() -> None:
    root = agent("root", "waiting")
    root.children[:] = [agent(f"c{n}", "running" if n % 100 == 0 else "idle") for n in range(1000)]
    rows = rows_of(frame_of([root]), 21)
    shown = [row.node.id for row in rows if row.node]
    assert shown[:1] == ["root"]
    assert {f"c{n * 100}" for n in range(10)} <= set(shown)
    assert rows[-1].text == "988 more idle"
    assert len(rows) == 14


def test_rows_never_exceed_the_height() -> None:
    roots = [agent(f"r{n}", children=[agent(f"r{n}c{m}") for m in range(5)]) for n in range(9)]
    for height in (2, 5, 12, 40):
        assert len(rows_of(frame_of(roots), height)) <= height
    chain = agent("n0")
    node = chain
    for n in range(1, 200):
        node.children[:] = [agent(f"n{n}")]
        node = node.children[0]
    assert len(rows_of(frame_of([chain]), 10)) == 10


def test_agents_of_the_file_are_shown_before_others() -> None:
    roots = [agent(f"x{n}") for n in range(50)] + [agent("named", "idle")]
    rows = rows_of(frame_of(roots, named=["named"]), 20)
    assert "named" in [row.node.id for row in rows if row.node]


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("height", [3, 10, 24])
def test_the_frame_fits_any_terminal(width: int, height: int) -> None:
    root = agent("日本" * 60, progress={"done": 5, "total": 10, "note": "n" * 300})
    root.children[:] = [agent(f"c{n}" * 30, pid=12345) for n in range(40)]
    drawn = draw(frame_of([root], notice="stopping " * 20), width, height)
    assert len(drawn) <= max(1, height - 1)
    assert max(cell_width(unstyled(line)) for line in drawn) <= width


def test_untrusted_names_and_notes_cannot_act_on_the_terminal() -> None:
    root = agent("evil\x1b[2J[red]", progress={"done": 1, "total": 2, "note": "\x1b]0;t\x07"})
    text = "\n".join(draw(frame_of([root]), 140))
    assert "\x1b[2J" not in text
    assert "\x1b]0" not in text
    assert "evil\\x1b[2J[red]" in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("500ms", 0.5), ("2m", 120), ("1h30m", 5400), ("1.5", 1.5), (" 1 d ", 86400)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1s", "5x", "s", "1h-2m", "inf", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 500ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59, "59 s"), (185, "3 min 05 s"), (7261, "2 h 01 min")]
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text
