"""When a failed write is tried again, without waiting for it."""

from __future__ import annotations

import pytest

from dsh_actors.errors import StoreError
from dsh_actors.sessions.ops import StoreBusyError
from dsh_actors.sessions.retry import BUSY_PATIENCE, MAX_RETRY, MIN_RETRY, Attempts

IDLE = {"urgent": False, "closing": False, "more": False}


def test_an_idle_store_commits_at_once() -> None:
    assert Attempts(0).wait(100.0, **IDLE) <= 0
    assert Attempts(3.0).wait(100.0, **IDLE) <= 0


def test_an_interval_counts_from_the_last_commit() -> None:
    attempts = Attempts(3.0)
    attempts.succeed(100.0)
    assert attempts.wait(101.0, **IDLE) == pytest.approx(2.0)
    assert attempts.wait(101.0, **(IDLE | {"urgent": True})) <= 0
    assert attempts.wait(101.0, **(IDLE | {"closing": True})) <= 0


def test_a_failure_is_reported_once_and_tried_ever_more_rarely() -> None:
    attempts = Attempts(0)
    waits = []
    for number in range(1, 12):
        attempts.number = number
        assert attempts.fail(StoreError("full"), 100.0) is (number == 1)
        assert attempts.failed == number
        waits.append(attempts.wait(100.0, **IDLE))
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(MAX_RETRY)
    assert attempts.wait(100.0, **(IDLE | {"more": True})) == pytest.approx(MIN_RETRY)
    assert attempts.wait(100.0, **(IDLE | {"urgent": True})) <= 0
    attempts.succeed(101.0)
    assert attempts.failure is None
    assert attempts.fail(StoreError("full again"), 102.0)


def test_a_locked_store_is_slow_before_it_is_failed() -> None:
    attempts = Attempts(0)
    attempts.number = 1
    assert not attempts.fail(StoreBusyError("held"), 100.0)
    assert attempts.failed == 0
    assert attempts.wait(100.0, **(IDLE | {"closing": True})) == pytest.approx(MIN_RETRY)
    attempts.number = 2
    assert attempts.fail(StoreBusyError("held"), 100.0 + BUSY_PATIENCE + 1)
    assert attempts.failed == 2
    assert not attempts.fail(StoreBusyError("held"), 100.0 + BUSY_PATIENCE + 2)
