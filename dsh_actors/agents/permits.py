"""How many plain turns run at once in one process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Permits:
    """A counted permit for each running plain turn, guarded by the lock of the host.

    A turn that waits for another agent gives its permit back while it waits, so that no limit
    and no depth of waiting can deadlock; when it goes on it takes one again, ahead of every
    turn that has not begun. Async turns need none: they share one thread.

    Parameters:
        limit: how many may run at once.
    """

    __slots__ = ("_resuming", "_waiting", "free", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free = limit
        self._resuming: deque[Callable[[], object]] = deque()
        self._waiting: deque[Callable[[], object]] = deque()

    def resize(self, limit: int) -> None:
        """Change how many may run at once, for the turns that begin from now on."""
        self.free += limit - self.limit
        self.limit = limit

    def take(self) -> bool:
        """Take a permit for a new turn, if one is free and no turn waits to go on."""
        if self.free > 0 and not self._resuming:
            self.free -= 1
            return True
        return False

    def take_over_limit(self) -> None:
        """Take one in any case: hooks are not held up by the limit, but they count."""
        self.free -= 1

    @property
    def wanted(self) -> bool:
        """Whether somebody stands in line. A hint, readable without the lock."""
        return bool(self._waiting)

    def offer(self) -> Callable[[], object] | None:
        """The next in line, if a permit is free: its predecessor had no use for it."""
        return self._waiting.popleft() if self.free > 0 and self._waiting else None

    @property
    def contended(self) -> bool:
        """Whether somebody stands in line, or more run than may."""
        return bool(self._waiting or self._resuming) or self.free < 0

    def wait(self, ring: Callable[[], object]) -> None:
        """Ring once, when a permit may be free for a new turn."""
        self._waiting.append(ring)

    def resume(self, go_on: Callable[[], object]) -> bool:
        """Take a permit for a turn that goes on: at once (True), or ``go_on`` is called with it."""
        if self.free > 0:
            self.free -= 1
            return True
        self._resuming.append(go_on)
        return False

    def leave(self, go_on: Callable[[], object]) -> bool:
        """Let a turn that waits to go on do so over the limit; False if it waits no more."""
        if go_on not in self._resuming:
            return False
        self._resuming.remove(go_on)
        self.free -= 1
        return True

    def give(self) -> Callable[[], object] | None:
        """Give a permit back. What is returned is to be called after the lock is released."""
        if self._resuming:
            return self._resuming.popleft()  # it keeps the permit: free stays as it is
        self.free += 1
        return self._waiting.popleft() if self._waiting else None
