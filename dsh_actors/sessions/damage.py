"""How damage is noticed and told: a checksum for each record, and a stand-in for each lost event.

SQLite has no checksums of its own in the database file. A page that was cut off or overwritten in
the middle can still look like a page, with other bytes in an event than were written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from dsh_actors.codec import decode_leniently, encode
from dsh_actors.errors import MessageError
from dsh_actors.sessions.events import DAMAGED, Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dsh_actors.sessions.ops import StoredEvent

__all__ = ["decoded", "event_checksum", "row_checksum", "seed_of", "stand_in", "without_gaps"]

_MOST_SEEDS = 1000


class _Seeds(dict[str, int]):
    """Where the checksum of an event begins, by its type; the few types are remembered."""

    def __missing__(self, type: str) -> int:
        if len(self) >= _MOST_SEEDS:
            self.clear()
        self[type] = seed = crc32(type.encode())
        return seed


seed_of = _Seeds().__getitem__
"""Return where the checksum of an event of a type begins."""


def event_checksum(seq: int, type: str, data: bytes) -> int:
    """Return a checksum over number, type and data of an event."""
    return crc32(data, seed_of(type) ^ (seq & 0xFFFFFFFF))


def row_checksum(values: Sequence[object]) -> int:
    """Return a checksum over the values of a row."""
    return crc32(encode(list(values)))


def stand_in(seq: int, time: float, problem: str) -> StoredEvent:
    """Return what stands for an event that was lost."""
    return seq, time, DAMAGED, encode({"problem": problem})


def without_gaps(
    events: Iterable[StoredEvent], count: int, start: float, damage: list[str]
) -> list[StoredEvent]:
    """Fill the gaps in a log with stand-ins, and name them in ``damage``.

    Parameters:
        events: what is there, in order.
        count: how many there should be at least.
        start: the time of what is missing before the first of them.
        damage: gets the findings.
    """
    whole: list[StoredEvent] = []

    def fill(end: int) -> None:
        first = len(whole)
        if first < end:
            which = f"event {first} is" if first + 1 == end else f"events {first} to {end - 1} are"
            damage.append(f"{which} missing")
            time = whole[-1][1] if whole else start
            whole.extend(stand_in(seq, time, "it is missing") for seq in range(first, end))

    for event in events:
        fill(event[0])
        whole.append(event)
    fill(count)
    return whole


def decoded(event: StoredEvent, damage: list[str]) -> Event:
    """Return an event with its data decoded; a stand-in, and a finding, if that is impossible."""
    seq, time, type, data = event
    try:
        return Event(seq, time, type, decode_leniently(data))
    except MessageError as error:
        damage.append(f"event {seq} cannot be decoded ({error.problem})")
        return Event(seq, time, DAMAGED, {"problem": f"it cannot be decoded ({error.problem})"})
