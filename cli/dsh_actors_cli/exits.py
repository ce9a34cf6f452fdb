"""The exit codes of the command."""

from __future__ import annotations

__all__ = ["DONE", "FAILED", "INTERRUPTED", "TIMEOUT", "USAGE", "for_signal"]

DONE = 0
FAILED = 1
USAGE = 2
TIMEOUT = 124
INTERRUPTED = 130


def for_signal(number: int) -> int:
    """Return the code that a shell gives to a command which this signal ended."""
    return 128 + number
