"""Durations as people write and read them: ``500ms``, ``5s``, ``2m``, ``1h30m``."""

from __future__ import annotations

import re

import click

__all__ = ["parse_duration", "seconds_option", "show_duration"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_part = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Return seconds.

    Parameters:
        text: numbers with a unit (ms, s, m, h, d), the largest unit first; or bare seconds.

    Raises:
        ValueError: it is no duration, or it is 0.
    """
    compact = text.strip().lower().replace(" ", "")
    seconds = 0.0
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        seconds = float(compact)
    elif compact and not _part.sub("", compact):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _part.findall(compact))
    if seconds <= 0:
        raise ValueError(f"not a duration: {text!r}; write it like 500ms, 5s, 2m or 1h30m")
    return seconds


def show_duration(seconds: float) -> str:
    """Return a duration in the unit that suits it: ``0.4 s``, ``12 s``, ``3 min 05 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def seconds_option(
    _ctx: click.Context, _option: click.Parameter, value: str | None
) -> float | None:
    """Turn the text of an option into seconds; for click's ``callback=``."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
