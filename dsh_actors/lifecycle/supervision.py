"""Restart types, intensity and period, after the rules of Erlang's ``supervisor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Outcome

RestartType: TypeAlias = Literal["permanent", "transient", "temporary"]
"""``permanent``: always restarted; ``transient``: after an abnormal end; ``temporary``: never."""

ABNORMAL: frozenset[str] = frozenset(("failed", "lost"))


def wants_restart(restart: RestartType, outcome: Outcome) -> bool:
    """Whether an agent of this restart type that ended so, unasked, is to be started again."""
    return restart == "permanent" or (restart == "transient" and outcome in ABNORMAL)


class Intensity:
    """Counts restarts: at most ``limit`` within ``period`` seconds, as in OTP.

    Parameters:
        limit: how many restarts are allowed within the period.
        period: the length of the sliding window, in seconds.
    """

    __slots__ = ("_times", "limit", "period")

    def __init__(self, limit: int = 3, period: float = 5.0) -> None:
        self.limit = limit
        self.period = period
        self._times: list[float] = []

    def allow(self, now: float) -> bool:
        """Count one restart at the time ``now`` (seconds, monotonic); False: one too many."""
        self._times = [time for time in self._times if now - time <= self.period]
        self._times.append(now)
        return len(self._times) <= self.limit
