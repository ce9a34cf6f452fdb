"""Reads the records out of an SQLite file page by page, however damaged the file is.

SQLite reaches a record through the pages above it, and gives up where one of these is bad. Here
every page is looked at for itself: a record is lost only if its own bytes are. The write-ahead log
is taken into account as SQLite does, up to the last commit whose checksums are right.

The format is described in https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import os
import struct
from array import array
from sys import byteorder
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = ["Pages", "Record"]

_MAGIC = b"SQLite format 3\0"
_DEFAULT_PAGE = 4096
_INDEX_INTERIOR, _TABLE_INTERIOR, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_INTEGER_SIZES = (0, 1, 2, 3, 4, 6, 8)
_WAL_HEADER, _FRAME_HEADER = 32, 24
_DOUBLE = struct.Struct(">d")
_FOUR = struct.Struct(">I")
_TWO = struct.Struct(">H")


class Record(NamedTuple):
    """One row of a table or entry of an index.

    Parameters:
        rowid: of a row of a table with rowids; None for an entry of an index.
        values: its columns.
    """

    rowid: int | None
    values: list[Any]


class Pages:
    """The pages of a database file, with its write-ahead log folded in.

    Parameters:
        path: the file; its log is beside it.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._log = None
        try:
            head = self._file.read(100)
            self.size = os.fstat(self._file.fileno()).st_size
            if os.path.exists(f"{path}-wal"):
                self._log = open(f"{path}-wal", "rb")  # noqa: SIM115
            self.page_size = _page_size(head)
            self._in_log = self._read_log() if self._log is not None else {}
            self._usable = self.page_size - (head[20] if head.startswith(_MAGIC) else 0)
            first = self.page(1)
            self.application_id = _FOUR.unpack_from(first, 68)[0] if first.startswith(_MAGIC) else 0
            self.count = max(-(-self.size // self.page_size), max(self._in_log, default=0))
            self.missing = max(0, _page_count(first) - self.count)
            """How many pages there were behind the end of the file, as far as that is known."""
            self.unreadable = 0
            """How many pages in use were not read, or not wholly, by ``records``."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._log is not None:
            self._log.close()

    def page(self, number: int) -> bytes:
        """Return a page; what is beyond the end of the file is zeros."""
        offset = self._in_log.get(number)
        if offset is not None and self._log is not None:
            data = os.pread(self._log.fileno(), self.page_size, offset)
        else:
            data = os.pread(self._file.fileno(), self.page_size, (number - 1) * self.page_size)
        return data.ljust(self.page_size, b"\0")

    def records(self) -> Iterator[Record]:
        """Yield every record that can be read, in no useful order."""
        self.unreadable = 0
        free = self._free_pages()
        overflow: set[int] = set()
        suspects: set[int] = set()
        for number in range(1, self.count + 1):
            if number in free:
                continue
            page = self.page(number)
            kind = page[100 if number == 1 else 0]
            if kind in (_INDEX_INTERIOR, _INDEX_LEAF, _TABLE_LEAF):
                bad = yield from self._cells(page, number, kind, overflow)
                self.unreadable += bad
            elif kind != _TABLE_INTERIOR:
                suspects.add(number)
        self.unreadable += len(suspects - overflow)

    def _cells(
        self, page: bytes, number: int, kind: int, overflow: set[int]
    ) -> Generator[Record, None, bool]:
        """Yield the records of a page; return whether some of them could not be read."""
        start = 100 if number == 1 else 0
        pointers = start + (12 if kind == _INDEX_INTERIOR else 8)
        count = _TWO.unpack_from(page, start + 3)[0]
        bad = False
        for place in range(pointers, min(pointers + 2 * count, self.page_size - 1), 2):
            try:
                offset = _TWO.unpack_from(page, place)[0]
                yield self._record(page, offset, kind, overflow)
            except (IndexError, ValueError, struct.error):
                bad = True
        return bad

    def _record(self, page: bytes, offset: int, kind: int, overflow: set[int]) -> Record:
        if kind == _INDEX_INTERIOR:
            offset += 4
        size, offset = _varint(page, offset)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, offset = _varint(page, offset)
            most = self._usable - 35
        else:
            most = (self._usable - 12) * 64 // 255 - 23
        if size <= most:
            payload = page[offset : offset + size]
        else:
            least = (self._usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (self._usable - 4)
            local = local if local <= most else least
            payload = self._with_overflow(page[offset : offset + local + 4], size, overflow)
        if len(payload) != size:
            raise ValueError("the record is cut off")
        return Record(rowid, _values(payload))

    def _with_overflow(self, begin: bytes, size: int, overflow: set[int]) -> bytes:
        number = _FOUR.unpack_from(begin, len(begin) - 4)[0]
        parts = [begin[:-4]]
        left = size - len(parts[0])
        if left > self.count * self.page_size:
            raise ValueError("the record is longer than the file")
        while left > 0:
            if not 1 <= number <= self.count:
                raise ValueError("the rest of the record is missing")
            overflow.add(number)
            page = self.page(number)
            part = page[4 : 4 + min(left, self._usable - 4)]
            parts.append(part)
            left -= len(part)
            number = _FOUR.unpack_from(page)[0]
        return b"".join(parts)

    def _free_pages(self) -> set[int]:
        """Return the pages that are in no use, as far as their list can be read."""
        free: set[int] = set()
        first = self.page(1)
        trunk = _FOUR.unpack_from(first, 32)[0] if first.startswith(_MAGIC) else 0
        while 1 < trunk <= self.count and trunk not in free:
            free.add(trunk)
            page = self.page(trunk)
            trunk, count = struct.unpack_from(">II", page)
            if count > self.page_size // 4 - 2:
                break
            free.update(struct.unpack_from(f">{count}I", page, 8))
        return free

    def _read_log(self) -> dict[int, int]:
        """Return where in the log the newest committed version of each page in it is."""
        assert self._log is not None
        head = self._log.read(_WAL_HEADER)
        if len(head) < _WAL_HEADER:
            return {}
        magic, _, page_size, _, salt_1, salt_2, *sums = struct.unpack(">8I", head)
        if magic & ~1 != 0x377F0682:
            return {}
        big = bool(magic & 1)
        checksum = _checksum(head[:24], (0, 0), big)
        if checksum != tuple(sums):
            return {}
        self.page_size = page_size
        found: dict[int, int] = {}
        pending: dict[int, int] = {}
        offset = _WAL_HEADER
        while True:
            frame = self._log.read(_FRAME_HEADER + page_size)
            if len(frame) < _FRAME_HEADER + page_size:
                return found
            number, commit, frame_1, frame_2, *sums = struct.unpack_from(">6I", frame)
            if (frame_1, frame_2) != (salt_1, salt_2):
                return found
            checksum = _checksum(frame[:8], checksum, big)
            checksum = _checksum(frame[_FRAME_HEADER:], checksum, big)
            if checksum != tuple(sums):
                return found
            pending[number] = offset + _FRAME_HEADER
            if commit:
                found |= pending
                pending = {}
            offset += _FRAME_HEADER + page_size


def _page_size(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    valid = head.startswith(_MAGIC) and 512 <= size <= 65536 and not size & (size - 1)
    return size if valid else _DEFAULT_PAGE


def _page_count(first: bytes) -> int:
    """Return how many pages there should be; 0 if the first one does not say."""
    changes, valid_for = _FOUR.unpack_from(first, 24)[0], _FOUR.unpack_from(first, 92)[0]
    if not first.startswith(_MAGIC) or changes != valid_for:
        return 0
    return int(_FOUR.unpack_from(first, 28)[0])


def _checksum(data: bytes, start: tuple[int, int], big: bool) -> tuple[int, int]:
    words = array("I", data)
    if big != (byteorder == "big"):
        words.byteswap()
    first, second = start
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & 0xFFFFFFFF
        second = (second + words[place + 1] + first) & 0xFFFFFFFF
    return first, second


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for place in range(offset, offset + 8):
        byte = data[place]
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, place + 1
    value = (value << 8) | data[offset + 8]
    return value - (1 << 64) if value >> 63 else value, offset + 9


def _values(payload: bytes) -> list[Any]:
    """Take a record apart.

    Raises:
        ValueError, IndexError: it is none.
    """
    end, place = _varint(payload, 0)
    if not place <= end <= len(payload):
        raise ValueError("not a record")
    values: list[Any] = []
    offset = end
    while place < end:
        kind, place = _varint(payload, place)
        if kind >= 12:
            size = (kind - 12) // 2
            raw = payload[offset : offset + size]
            values.append(raw.decode() if kind & 1 else raw)
        elif kind <= 6:
            size = _INTEGER_SIZES[kind]
            number = int.from_bytes(payload[offset : offset + size], "big", signed=True)
            values.append(number if size else None)
        elif kind == 7:
            size = 8
            values.append(_DOUBLE.unpack_from(payload, offset)[0])
        elif kind in (8, 9):
            size = 0
            values.append(kind - 8)
        else:
            raise ValueError("not a record")
        offset += size
    if offset != len(payload) or not values:
        raise ValueError("not a record")
    return values
