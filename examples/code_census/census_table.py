"""The table of a census, for people; programs take the result itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from census_count import Census

MAX_FAILURES = 10


def table(census: Census) -> str:
    """Return totals, the most complex functions and the first failures as plain text."""
    totals = {
        "files": census.files,
        "not counted": census.failed_files,
        "lines": census.lines,
        "functions": census.functions,
        "async functions": census.async_functions,
        "classes": census.classes,
        "bare excepts": census.bare_excepts,
    }
    lines = [f"{name:<16}{number:>12,}" for name, number in totals.items()]
    if census.top:
        lines += ["", "complexity  function"]
        lines += [
            f"{function['complexity']:>10}  {printable(function['function'])}  "
            f"{printable(function['path'])}:{function['line']}"
            for function in census.top
        ]
    if census.failures:
        lines += ["", "not counted"]
        lines += [
            f"  {printable(failure['path'])}: {printable(failure['error'])}"
            for failure in census.failures[:MAX_FAILURES]
        ]
        left = len(census.failures) - MAX_FAILURES
        lines += [f"  and {left:,} more"] if left > 0 else []
    return "\n".join(lines)


def printable(text: str) -> str:
    r"""Return text without control characters: a file's name may hold some, as ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
