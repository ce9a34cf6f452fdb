"""What a command writes: bounded in memory, whole in a private file, read piece by piece.

The first bytes and the last ones are kept in memory. Once there is more than that, everything
goes to a file as well, up to a limit of its own; what is beyond both is counted, never dropped
in silence.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Captured", "Chunk", "Output"]

_PIECE = 1 << 20
"""The most that one read gives, in bytes."""


class Captured(NamedTuple):
    """What is kept in memory of an output.

    Attributes:
        head: the first bytes.
        tail: the last bytes, of those that are not in the head.
        omitted: how many bytes lie between them.
        path: the file that has all of it, or its first part if the file is full too; None if
            head and tail are all there was.
    """

    head: bytes
    tail: bytes
    omitted: int
    path: str | None

    @property
    def total(self) -> int:
        """How many bytes were written."""
        return len(self.head) + self.omitted + len(self.tail)

    def text(self, errors: str = "replace") -> str:
        """All of it as text; a line in the middle says what is missing, and where it is."""
        head = self.head.decode(errors=errors)
        if not self.omitted:
            return (self.head + self.tail).decode(errors=errors)
        where = f", all of it is in {self.path}" if self.path is not None else ""
        gap = f"\n... {self.omitted} bytes are not shown{where} ...\n"
        return head + gap + self.tail.decode(errors=errors)


class Chunk(NamedTuple):
    """One piece of an output.

    Attributes:
        data: the bytes.
        next: where the next piece begins.
        lost: how many bytes before this piece cannot be read any more.
    """

    data: bytes
    next: int
    lost: int = 0


class Output:
    """One stream of a command. Not thread-safe: its executor guards it.

    Parameters:
        keep: how many bytes are kept in memory of the beginning, and as many of the end.
        limit: how many bytes the file takes.
        spill: makes the file, and returns its descriptor and path; called once, when needed.
    """

    def __init__(self, keep: int, limit: int, spill: Callable[[], tuple[int, str]]) -> None:
        self._keep, self._limit, self._spill = keep, limit, spill
        self.total = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._file: int | None = None
        self._in_file = 0
        self.path: str | None = None
        self.problem: str | None = None
        """Why the file does not have all that it should."""

    def write(self, data: bytes) -> None:
        """Take what has been read from the command."""
        if self._file is None and self.problem is None and self.total + len(data) > 2 * self._keep:
            self._open_file()
        self._to_file(data)
        self.total += len(data)
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail and self._tail_size - len(self._tail[0]) >= self._keep:
                self._tail_size -= len(self._tail.popleft())

    def _open_file(self) -> None:
        try:
            self._file, self.path = self._spill()
        except OSError as error:
            self.problem = f"the rest of the output is not kept: {error.strerror or error}"
            return
        self._to_file(bytes(self._head))
        for piece in self._tail:
            self._to_file(piece)

    def _to_file(self, data: bytes) -> None:
        if self._file is None or self.problem is not None:
            return
        data = data[: self._limit - self._in_file]
        try:
            while data:
                written = os.write(self._file, data)
                self._in_file += written
                data = data[written:]
        except OSError as error:
            self.problem = f"the rest of the output is not kept: {error.strerror or error}"

    def captured(self) -> Captured:
        """What is kept in memory so far."""
        tail = b"".join(self._tail)[-self._keep :] if self._keep else b""
        return Captured(
            bytes(self._head), tail, self.total - len(self._head) - len(tail), self.path
        )

    def read(self, start: int, most: int = _PIECE) -> Chunk:
        """Return what was written from some byte on, as far as there is something.

        Parameters:
            start: the byte to begin with; 0 for the first, then ``next`` of the piece before.
            most: how many bytes at most.
        """
        start = max(0, min(start, self.total))
        if start < self._in_file and self._file is not None:
            data = os.pread(self._file, min(most, self._in_file - start), start)
            return Chunk(data, start + len(data))
        if start < len(self._head):
            data = bytes(self._head[start : start + most])
            return Chunk(data, start + len(data))
        tail = b"".join(self._tail)
        begin = self.total - len(tail)
        lost = max(0, begin - start)
        data = tail[max(0, start - begin) :][:most]
        return Chunk(data, max(start, begin) + len(data), lost)

    def discard(self) -> None:
        """Close and remove the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._in_file = 0
        if self.path is not None:
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                return
