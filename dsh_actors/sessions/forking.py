"""Where a session may be forked: not inside an open turn, and not behind damage."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from dsh_actors.errors import StoreError
from dsh_actors.sessions.events import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fork_point"]


def fork_point(where: str, types: Sequence[str], at: int | None) -> int:
    """Return how many events a fork copies.

    Parameters:
        where: what to call the session in an error.
        types: the types of all its events.
        at: how many the caller asked for; None for all.

    Raises:
        StoreError: a log of that length would end inside an open turn, or hold damaged events.
    """
    wanted = len(types) if at is None else at
    if not 0 <= wanted <= len(types):
        raise StoreError(f"{where}: it has {len(types)} events; give a number from 0 to that")
    legal = _legal_points(types)
    place = bisect_left(legal, wanted)
    if place < len(legal) and legal[place] == wanted:
        return wanted
    near = [f"at {point}" for point in legal[max(0, place - 1) : place + 1]]
    sound = types.index(DAMAGED) if DAMAGED in types else len(types)
    why = f"event {sound} is damaged" if wanted > sound else f"event {wanted} is inside a turn"
    if wanted == len(types) and wanted <= sound:
        why = "its last turn is open"
    raise StoreError(
        f"{where}: it cannot be forked at {wanted}, since {why}; fork it " + " or ".join(near)
    )


def _legal_points(types: Sequence[str]) -> list[int]:
    points = [0]
    is_open = False
    for number, type in enumerate(types, 1):
        if type == DAMAGED:
            break
        if type == "turn/start":
            is_open = True
        elif type == "turn/end":
            is_open = False
        if not is_open:
            points.append(number)
    return points
