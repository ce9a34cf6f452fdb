"""Widths and colours of plain text, without a library."""

from __future__ import annotations

import os
from typing import IO

__all__ = ["Style", "cell_width", "clip", "clip_path", "pad", "wants_colour"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Style:
    """Paints words, or does not.

    Parameters:
        colour: whether the reader understands colours.
    """

    __slots__ = ("colour",)

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, *names: str) -> str:
        """Return `text` in these styles: bold, dim, red, green, yellow or cyan."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"


def wants_colour(stream: IO[str]) -> bool:
    """Return whether to colour what goes to `stream`, after NO_COLOR, FORCE_COLOR and TERM."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.environ.get("TERM", "") not in ("", "dumb") and stream.isatty()


def cell_width(text: str) -> int:
    """Return how many columns `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(c) in ("Mn", "Me", "Cf") else 2 if east_asian_width(c) in "WF" else 1
        for c in text
    )


def clip(text: str, width: int) -> str:
    """Return `text`, cut to `width` columns with an ellipsis if it is wider."""
    if cell_width(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += cell_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…" if width > 0 else ""


def clip_path(text: str, width: int) -> str:
    """Return `text`, cut to `width` columns; of a path the end is kept, which tells more."""
    if "/" not in text or " " in text:
        return clip(text, width)
    if cell_width(text) <= width:
        return text
    return clip(text[::-1], width)[::-1] if text.isascii() else clip(text, width)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` filled up with spaces to `width` columns, on its left if `right`."""
    fill = " " * (width - cell_width(text))
    return fill + text if right else text + fill
