"""The terminal during a run: a frame at the bottom, and what is printed scrolls above it.

Workers and libraries print to descriptor 2 whenever they like, which would tear the frame and
could carry escape sequences. So for the time of the run, descriptor 2 is a pipe; whole lines
from it are shown above the frame, with control characters as text.
"""

from __future__ import annotations

import os
import queue
import threading
from time import monotonic
from typing import TYPE_CHECKING

from dsh_actors.observe.display import display_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Screen"]

# Lines kept while the terminal is slow. When it is full, those who print have to wait.
_MAX_LINES = 1000
# How long the last lines of ending processes are waited for, in seconds.
_PATIENCE = 0.5


class Screen:
    """Takes descriptor 2, until `close` gives it back. One thread draws."""

    def __init__(self) -> None:
        self._terminal = os.dup(2)
        self._height = 0
        self._is_left = False
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(writing)
        self._printed: queue.Queue[str | None] = queue.Queue(_MAX_LINES)
        self._reader = threading.Thread(
            target=self._read, args=(reading,), name="dsh-stderr", daemon=True
        )
        self._reader.start()

    def size(self) -> os.terminal_size:
        """Return the columns and lines of the terminal."""
        size = os.get_terminal_size(self._terminal)
        # Some terminals, such as those of test harnesses, say 0.
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def draw(self, frame: Sequence[str]) -> None:
        """Show `frame` in place of the last one, and what was printed since then above it.

        Parameters:
            frame: lines that are no wider than the terminal; they may hold styles.

        Raises:
            OSError: the terminal is gone.
        """
        self._show([*self._take(), *frame], len(frame))

    def leave(self, line: str) -> None:
        """Write a last line below the frame, in a hurry: nothing is shown from here on.

        Raises:
            OSError: the terminal is gone.
        """
        self._is_left = True
        os.write(self._terminal, f"\r\x1b[J{line}\n".encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Take the frame away, show what is left to show, and give descriptor 2 back.

        Raises:
            OSError: the terminal is gone. Descriptor 2 is given back all the same.
        """
        os.dup2(self._terminal, 2)
        # Descriptor 1 was a copy of the pipe, if the run has claimed stdout.
        os.dup2(self._terminal, 1)
        lines: list[str] = []
        deadline = monotonic() + _PATIENCE
        try:
            while True:
                try:
                    line = self._printed.get(timeout=max(0.0, deadline - monotonic()))
                except queue.Empty:
                    break  # a process that outlives the run still holds the pipe
                if line is None:
                    break
                lines.append(line)
            self._show(lines, 0)
        finally:
            os.close(self._terminal)

    def _take(self) -> list[str]:
        lines: list[str] = []
        while len(lines) < _MAX_LINES:
            try:
                line = self._printed.get_nowait()
            except queue.Empty:
                break
            if line is not None:
                lines.append(line)
        return lines

    def _show(self, lines: Sequence[str], height: int) -> None:
        """Write over the last frame: no line is cleared before its new text is there."""
        # To the left as well: a key that was echoed has moved the cursor.
        up = f"\r\x1b[{self._height}A" if self._height else ""
        text = "".join(f"\r{line}\x1b[K\n" for line in lines)
        if self._is_left or not (up or text):
            return
        left = memoryview(f"{up}{text}\x1b[J".encode("utf-8", "backslashreplace"))
        self._height = height
        while left:
            left = left[os.write(self._terminal, left) :]

    def _read(self, descriptor: int) -> None:
        rest = b""
        while chunk := os.read(descriptor, 65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._printed.put(_shown(line))
        if rest:
            self._printed.put(_shown(rest))
        self._printed.put(None)
        os.close(descriptor)


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip("\r")
    return display_text(text.expandtabs(4))
