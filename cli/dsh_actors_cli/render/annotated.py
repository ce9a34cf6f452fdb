"""Plain data as YAML, with a remark at the end of each line.

The YAML is written here, since PyYAML cannot write comments. Its own scalars are used, so that
what is read again is the same value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors.observe.display import display_text
from dsh_actors_cli.render.style import cell_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dsh_actors_cli.render.style import Style

__all__ = ["Line", "Path", "aligned", "yaml_lines"]

Path = tuple[Any, ...]

# Remarks stand in one column, unless a line is longer than this.
_COLUMN = 60
# How long a list of scalars may be to stand on one line.
_FLOW = 60


class Line(NamedTuple):
    """A line of YAML, and the path of the value that ends there; None if none does."""

    text: str
    path: Path | None


def yaml_lines(value: Any) -> Iterator[Line]:
    """Yield the lines of a value in YAML's block style.

    Parameters:
        value: mappings, lists, and what PyYAML knows as scalars.
    """
    flow = _flow(value)
    if flow is not None:
        yield Line(flow, ())
        return
    yield from _block(value, (), "")


def aligned(lines: Iterable[tuple[str, str]], style: Style) -> Iterator[str]:
    """Yield lines with their remarks, which become comments in one column."""
    rows = list(lines)
    widths = [cell_width(text) for text, remark in rows if remark]
    column = max((width for width in widths if width <= _COLUMN), default=0)
    for text, remark in rows:
        if not remark:
            yield text
            continue
        gap = " " * (max(column - cell_width(text), 0) + 2)
        yield f"{text}{gap}{style(f'# {display_text(remark)}', 'dim')}"


def _block(value: Any, path: Path, indent: str) -> Iterator[Line]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", item, (*path, key), indent)
        return
    for index, item in enumerate(value):
        place = (*path, index)
        flow = _flow(item)
        if flow is not None:
            yield Line(f"{indent}- {flow}", place)
            continue
        first, *rest = _block(item, place, indent + "  ")
        yield Line(f"{indent}- {first.text[len(indent) + 2 :]}", first.path)
        yield from rest


def _entry(head: str, value: Any, path: Path, indent: str) -> Iterator[Line]:
    flow = _flow(value)
    if flow is not None:
        yield Line(f"{head} {flow}", path)
        return
    yield Line(head, None)
    yield from _block(value, path, indent + "  ")


def _flow(value: Any) -> str | None:
    """Return a value that stands on one line; None for one that takes several."""
    if isinstance(value, dict):
        return None if value else "{}"
    if not isinstance(value, list | tuple):
        return _scalar(value)
    if any(isinstance(item, dict | list | tuple) for item in value):
        return None
    text = f"[{', '.join(_scalar(item, in_flow=True) for item in value)}]"
    return text if len(text) <= _FLOW or not value else None


def _scalar(value: Any, *, in_flow: bool = False) -> str:
    if isinstance(value, bytes | bytearray):
        import base64

        return f'!!binary "{base64.b64encode(value).decode("ascii")}"'
    text = _dumped([value] if in_flow else value, None)
    text = text[1:-1] if in_flow else text
    if "\n" not in text and display_text(text) == text:
        return text
    # In double quotes everything that is not plain text is escaped.
    return _dumped(value, '"', ascii_only=True)


def _dumped(value: Any, quotes: str | None, *, ascii_only: bool = False) -> str:
    import yaml

    text: str = yaml.safe_dump(
        value,
        default_style=quotes,
        default_flow_style=True,
        width=float("inf"),
        allow_unicode=not ascii_only,
    )
    return text.removesuffix("\n").removesuffix("\n...")
