"""When a write that failed is tried again: a small state machine without a clock of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.sessions.ops import StoreBusyError

if TYPE_CHECKING:
    from dsh_actors.errors import StoreError

__all__ = ["BUSY_PATIENCE", "MAX_RETRY", "MIN_RETRY", "Attempts"]

MIN_RETRY, MAX_RETRY = 0.05, 5.0
"""Seconds between attempts to write a group that failed."""

BUSY_PATIENCE = 5.0
"""Seconds for which a locked store counts as slow and not as failed."""


class Attempts:
    """The attempts of one writer to commit. Times are monotonic seconds.

    Parameters:
        interval: the shortest time between two commits, in seconds.
    """

    __slots__ = (
        "_delay",
        "_failing_since",
        "_interval",
        "_last",
        "_reported",
        "failed",
        "failure",
        "number",
    )

    def __init__(self, interval: float) -> None:
        self.number = 0
        """Of the newest attempt, counted from 1."""
        self.failed = 0
        """Number of the newest attempt that failed and was not just made to wait."""
        self.failure: StoreError | None = None
        """Why the newest attempt failed, or None if it did not."""
        self._interval = interval
        self._last = float("-inf")
        self._failing_since = 0.0
        self._reported = False
        self._delay = MIN_RETRY

    def succeed(self, now: float) -> None:
        """Note that the newest attempt succeeded."""
        self.failure, self._delay, self._last = None, MIN_RETRY, now

    def fail(self, error: StoreError, now: float) -> bool:
        """Note that it failed; return whether that should be reported."""
        if self.failure is None:
            self._failing_since, self._reported = now, False
        self.failure, self._last = error, now
        self._delay = min(MAX_RETRY, self._delay * 2)
        if isinstance(error, StoreBusyError) and now - self._failing_since <= BUSY_PATIENCE:
            return False
        self.failed = self.number
        news, self._reported = not self._reported, True
        return news

    def wait(self, now: float, *, urgent: bool, closing: bool, more: bool) -> float:
        """Return the seconds until the next attempt; 0 or less means now.

        Parameters:
            now: the time.
            urgent: somebody waits for the write.
            closing: the store is being closed.
            more: something has been queued since the last attempt.
        """
        busy = isinstance(self.failure, StoreBusyError)
        if urgent or (closing and not busy):
            return 0.0
        if self.failure is None:
            return self._last + self._interval - now if self._interval else 0.0
        return self._last + (MIN_RETRY if busy or more else self._delay) - now
