"""A terminal that is asked for keys: in its own screen, and given back as it was."""

from __future__ import annotations

import os
import select
import signal
import termios
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Keyboard"]

_KEYS = {
    b"\r": "enter",
    b"\n": "enter",
    b"\x03": "interrupt",
    b"\x04": "interrupt",
    b"\x08": "backspace",
    b"\x7f": "backspace",
    b"\x15": "clear",
    b"\x0e": "down",
    b"\x10": "up",
    b"\x1b": "escape",
}
_SEQUENCES = {
    b"A": "up", b"B": "down", b"H": "home", b"F": "end",
    b"1~": "home", b"4~": "end", b"5~": "page up", b"6~": "page down",
}  # fmt: skip
_OPEN, _CLOSE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"
# Seconds that the rest of a key's sequence may take; an Esc alone has no rest.
_REST = 0.05
# How often it is looked whether the terminal has another size, in seconds.
_LOOK_EVERY = 0.25


class Keyboard:
    """The terminal of stdin, drawn on by stderr; use `opened`."""

    def __init__(self) -> None:
        self._unread = b""

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Keyboard]:
        """Take the terminal, and give it back whatever happens: on an error, and on SIGTERM."""
        before = termios.tcgetattr(0)
        raw = termios.tcgetattr(0)
        raw[0] &= ~(termios.IXON | termios.ICRNL)
        raw[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            for number in signals:
                signal.signal(number, _leave)
            termios.tcsetattr(0, termios.TCSADRAIN, raw)
            os.write(2, _OPEN)
            yield cls()
        finally:
            with suppress(OSError, termios.error):  # one that is gone needs nothing back
                os.write(2, _CLOSE)
                termios.tcsetattr(0, termios.TCSADRAIN, before)
            for number, handler in signals.items():
                signal.signal(number, handler)

    def size(self) -> os.terminal_size:
        """Return the columns and lines of the terminal."""
        size = os.get_terminal_size(2)
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def draw(self, lines: list[str]) -> None:
        """Show lines from the top of the screen on."""
        text = "".join(f"\r{line}\x1b[K\n" for line in lines[:-1]) + f"\r{lines[-1]}\x1b[K"
        left = memoryview(f"\x1b[H{text}\x1b[J".encode("utf-8", "backslashreplace"))
        while left:
            left = left[os.write(2, left) :]

    def key(self, on_resize: Callable[[], None]) -> str:
        """Return the next key: its name, or the character that it types.

        Parameters:
            on_resize: called when the terminal has got another size meanwhile.
        """
        size = self.size()
        while not self._unread:
            if select.select([0], [], [], _LOOK_EVERY)[0]:
                self._unread = os.read(0, 1024)
                if not self._unread:
                    return "interrupt"  # the terminal is gone
            elif self.size() != size:
                size = self.size()
                on_resize()
        return self._take()

    def _take(self) -> str:
        first, self._unread = self._unread[:1], self._unread[1:]
        if first == b"\x1b" and (self._unread or self._more(_REST)):
            return self._sequence()
        if first in _KEYS:
            return _KEYS[first]
        for _ in range(_following(first)):
            if not (self._unread or self._more(_REST)) or not 0x80 <= self._unread[0] < 0xC0:
                break  # no character at all
            first, self._unread = first + self._unread[:1], self._unread[1:]
        return first.decode("utf-8", "replace")

    def _sequence(self) -> str:
        """Return the key of an escape sequence; an unknown one is none that does anything."""
        if self._unread[:1] not in (b"[", b"O"):
            return "escape"
        self._unread = self._unread[1:]
        body = b""
        while self._unread or self._more(_REST):
            body, self._unread = body + self._unread[:1], self._unread[1:]
            if 0x40 <= body[-1] <= 0x7E:
                break
        return _SEQUENCES.get(body, "unknown")

    def _more(self, timeout: float) -> bool:
        if select.select([0], [], [], timeout)[0]:
            self._unread += os.read(0, 1024)
        return bool(self._unread)


def _following(first: bytes) -> int:
    """Return how many bytes follow in a character of UTF-8 that begins so."""
    return next((n for n, least in ((3, 0xF0), (2, 0xE0), (1, 0xC0)) if first[0] >= least), 0)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
