"""A result as text for people: scalars as a list of pairs, lists of records as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.observe.display import display_text
from dsh_actors_cli.output import to_json
from dsh_actors_cli.render.style import Style, cell_width, clip, clip_path, pad

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

__all__ = ["render_result", "table"]

# More rows than this say less than the number of those that are left out.
_MAX_ROWS = 20
_GAP = "  "


def render_result(value: Any, *, width: int | None = None, style: Style | None = None) -> str:
    """Return `value` as text.

    Parameters:
        value: plain data.
        width: columns to fit tables into; None if the text is not for a terminal. For a
            terminal, control characters in strings are shown as text.
        style: how to paint headings.

    Returns:
        Lines without a line feed at the end; empty for None.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value if width is None else display_text(value, multiline=True)
    return "\n".join(_block(value, width, style or Style(False)))


def _block(value: Any, width: int | None, style: Style) -> list[str]:
    if isinstance(value, dict):
        return _record(value, width, style)
    if isinstance(value, list) and _is_table(value):
        return table(value, width=width, style=style)
    if isinstance(value, list) and value:
        return _items(value, width, style)
    return display_text(_scalar(value), multiline=True).split("\n")


def _record(record: Mapping[Any, Any], width: int | None, style: Style) -> list[str]:
    """Return the short values as pairs, and below them a titled block for each long one."""
    short = {key: value for key, value in record.items() if _is_short(value)}
    lines = _pairs(short, width, style)
    for key, value in record.items():
        if key in short:
            continue
        if lines:
            lines.append("")
        count = f" ({len(value)})" if isinstance(value, list) else ""
        lines.append(style(_label(key), "bold") + count)
        inner = _block(value, None if width is None else width - 2, style)
        lines.extend(f"  {line}" if line else "" for line in inner)
    return lines


def _pairs(record: Mapping[Any, Any], width: int | None, style: Style) -> list[str]:
    if not record:
        return []
    left = max(cell_width(_label(key)) for key in record)
    shown = {key: display_text(_scalar(value)) for key, value in record.items()}
    numbers = [cell_width(shown[key]) for key, value in record.items() if _is_number(value)]
    right = max(numbers, default=0)
    return [
        _cut(
            style(pad(_label(key), left), "cyan")
            + _GAP
            + (pad(shown[key], right, right=True) if _is_number(value) else shown[key]),
            width,
            style,
        )
        for key, value in record.items()
    ]


def _items(values: Sequence[Any], width: int | None, style: Style) -> list[str]:
    lines: list[str] = []
    for value in values[:_MAX_ROWS]:
        first, *rest = _block(value, None if width is None else width - 2, style) or ["-"]
        lines.append(f"- {first}")
        lines.extend(f"  {line}" for line in rest)
    return lines + _left_out(len(values), style)


def table(
    rows: Sequence[Mapping[Any, Any]],
    *,
    width: int | None = None,
    style: Style | None = None,
    most: int = _MAX_ROWS,
    whole: Container[str] = (),
) -> list[str]:
    """Return flat records as the lines of a table, one column for each key.

    Parameters:
        rows: the records; not empty.
        width: columns of the terminal: the widest columns are cut to fit; None cuts nothing.
        style: how to paint the head.
        most: how many rows are shown; the rest is counted.
        whole: the columns that are never cut, since their texts are to be copied.
    """
    style = style or Style(False)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[display_text(_scalar(row.get(key))) for key in keys] for row in rows[:most]]
    heads = [_label(key) for key in keys]
    widths = [
        max(cell_width(text) for text in (head, *column))
        for head, column in zip(heads, zip(*cells, strict=True), strict=True)
    ]
    if width is not None:
        kept = [column for column, key in enumerate(keys) if key in whole]
        _shrink(widths, width - len(_GAP) * (len(widths) - 1), kept)
    right = [all(_is_number(row.get(key)) or row.get(key) is None for row in rows) for key in keys]

    def line(texts: Iterable[str]) -> str:
        fitted = zip(texts, widths, right, strict=True)
        return _GAP.join(pad(clip_path(t, w), w, right=r) for t, w, r in fitted).rstrip()

    head = style(line(heads), "bold")
    return [head, *(line(row) for row in cells), *_left_out(len(rows), style, most)]


def _shrink(widths: list[int], room: int, kept: Sequence[int]) -> None:
    """Take from the widest columns until all fit, but leave each something to show."""
    others = [column for column in range(len(widths)) if column not in kept]
    while others and sum(widths) > room:
        widest = max(others, key=widths.__getitem__)
        if widths[widest] <= 8:
            return
        widths[widest] -= 1


def _left_out(count: int, style: Style, most: int = _MAX_ROWS) -> list[str]:
    if count <= most:
        return []
    return [style(f"... and {count - most} more; --output-format json has them all", "dim")]


def _cut(line: str, width: int | None, style: Style) -> str:
    # A painted line holds escape sequences, which must not be counted or cut.
    return line if width is None or style.colour else clip(line, width)


def _label(key: Any) -> str:
    return display_text(str(key).replace("_", " "))


def _scalar(value: Any) -> str:
    if value is None:
        return "-"
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and not value:
        return "none"
    return to_json(value) if isinstance(value, list | dict | bytes) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return "\n" not in value
    return not isinstance(value, dict | list) or not value


def _is_table(values: Sequence[Any]) -> bool:
    return bool(values) and all(
        isinstance(row, dict) and row and all(_is_short(cell) for cell in row.values())
        for row in values
    )
