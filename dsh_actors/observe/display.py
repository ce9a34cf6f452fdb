"""Untrusted text, made safe to show on a terminal.

What agents say, file names, messages of exceptions: all of it may hold escape sequences that
would recolour, retitle or rewrite the terminal, or characters that reverse the reading order.
Everything that this project prints for people goes through `display_text`.
"""

from __future__ import annotations

import re

__all__ = ["display_text"]

# C0 and C1 controls, DEL, the line and paragraph separators, marks that change the direction
# of text, lone surrogates (which no encoder takes), and the invisible tag characters.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ufeff\ud800-\udfff\U000e0000-\U000e007f"
)
_line = re.compile(f"[{_UNSAFE}]")
_block = re.compile(f"(?![\n\t])[{_UNSAFE}]")
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _shown(match: re.Match[str]) -> str:
    character = match.group()
    named = _NAMED.get(character)
    if named is not None:
        return named
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def display_text(text: object, *, multiline: bool = False) -> str:
    """Return `text` with every character that could act on a terminal shown as an escape.

    Parameters:
        text: what to show; anything that is not a string is shown by `str`.
        multiline: leave line feeds and tabs as they are; otherwise the result is one line.
    """
    shown = text if isinstance(text, str) else str(text)
    return (_block if multiline else _line).sub(_shown, shown)
