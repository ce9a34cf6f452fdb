"""What a line of a log says: how bad it is, and which other lines are the same but for numbers."""

from __future__ import annotations

import re

LEVELS = ("critical", "error", "warning")
"""From the worst to the mildest; everything else is no finding."""

_WORDS = {
    "critical": r"\b(critical|fatal|panic|emerg(ency)?|oom-killer|segfault)\b",
    "error": r"\b(error|err|exception|traceback|failed|failure|refused|denied)\b|\b5\d\d\b",
    "warning": r"\b(warn(ing)?|deprecated|timed? ?out|retry(ing)?|slow)\b",
}
_PATTERNS = [(level, re.compile(_WORDS[level], re.IGNORECASE)) for level in LEVELS]
_STAMP = re.compile(
    r"^\S*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s+|^[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d\s+"
)
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)


def level_of(line: str) -> str | None:
    """How bad a line is, or None if it is not."""
    return next((level for level, pattern in _PATTERNS if pattern.search(line)), None)


def template_of(line: str) -> str:
    """The line without its time and with ``#`` for what varies, so that like lines are equal."""
    return _VARYING.sub("#", _STAMP.sub("", line)).strip()[:200]
