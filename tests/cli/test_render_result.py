from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dsh_actors_cli.output import to_json
from dsh_actors_cli.render.result import render_result, table
from dsh_actors_cli.render.style import Style, cell_width, clip, clip_path, pad


def test_a_string_is_printed_as_it_is() -> None:
    assert render_result("two\nlines \x1b[1m") == "two\nlines \x1b[1m"


def test_a_string_for_a_terminal_cannot_act_on_it() -> None:
    assert render_result("two\nlines \x1b]0;x\x07", width=80) == "two\nlines \\x1b]0;x\\x07"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "yes"), (3, "3"), (0.1234567891, "0.123457"), ([], "none"), ({}, "")],
)
def test_scalars(value: Any, text: str) -> None:
    assert render_result(value) == text


def test_a_record_is_a_list_of_pairs_with_numbers_in_line() -> None:
    lines = render_result({"files": 7, "bare_excepts": 1200, "root": "src"}).split("\n")
    assert lines == ["files            7", "bare excepts  1200", "root          src"]


def test_a_list_of_records_is_a_table() -> None:
    rows = [{"path": "a.py", "line": 1}, {"path": "long/b.py", "line": 100, "note": None}]
    assert render_result({"failed": 0, "top": rows, "failures": []}).split("\n") == [
        "failed    0",
        "failures  none",
        "",
        "top (2)",
        "  path       line  note",
        "  a.py          1     -",
        "  long/b.py   100     -",
    ]


def test_what_is_too_deep_for_a_table_is_indented() -> None:
    text = render_result({"a": {"b": {"c": [1, "x"]}}, "text": "1\n2"})
    assert text.split("\n") == [
        "a",
        "  b",
        "    c (2)",
        "      - 1",
        "      - x",
        "",
        "text",
        "  1",
        "  2",
    ]


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    lines = table([{"n": n} for n in range(50)])
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "... and 30 more; --output-format json has them all"
    assert len(table([{"n": n} for n in range(50)], most=50)) == 51


def test_a_table_fits_the_terminal_and_keeps_the_end_of_a_path() -> None:
    row = {"path": f"src/{'very/' * 30}deep.py", "function": "f" * 60, "line": 7}
    lines = table([row], width=60)
    assert max(cell_width(line) for line in lines) <= 60
    assert "very/deep.py" in lines[1]
    assert lines[1].endswith("7")


def test_cells_are_escaped_and_painted_only_if_asked() -> None:
    assert table([{"x": "\x1b[2J"}]) == ["x", "\\x1b[2J"]
    assert table([{"x": 1}], style=Style(True))[0] == "\x1b[1mx\x1b[0m"


def test_widths_count_columns_and_not_characters() -> None:
    assert cell_width("日本") == 4
    assert cell_width("é") == 1
    assert pad("日本", 6) == "日本  "
    assert clip("日本語", 5) == "日本…"
    assert clip("abc", 3) == "abc"
    assert clip_path("a/b/c/d.py", 7) == "…c/d.py"


def test_json_carries_what_json_lacks_as_text() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    value = {"b": b"\x00\xff", "t": moment, "n": float("nan"), "i": [float("inf")], "ü": "\x9b"}
    assert to_json(value) == (
        '{"b": "AP8=", "t": "2026-01-02T00:00:00+00:00", "n": "nan", "i": ["inf"], "ü": "\x9b"}'
    )
    assert to_json("\x9bü", ascii_only=True) == '"\\u009b\\u00fc"'


def test_what_is_to_be_copied_is_never_cut() -> None:
    row = {"id": "s-20260101-120000-abcdefgh", "path": "p" * 60}
    lines = table([row], width=40, whole=("id",))
    assert lines[1].startswith(row["id"] + "  ")
    assert max(cell_width(line) for line in lines) <= 40
