"""Deadlines: called in their order, not called once cancelled, and cheap to cancel."""

from __future__ import annotations

import threading

from dsh_actors.actors.timers import TIDY_UP, Timers

PATIENCE = 10.0


def test_timers_are_called_in_the_order_of_their_times() -> None:
    timers = Timers("test-timers")
    called: list[str] = []
    done = threading.Event()
    timers.after(0.02, done.set)
    timers.after(0.01, called.append, "second")
    timers.after(0.0, called.append, "first")
    cancelled = timers.after(0.005, called.append, "never")
    cancelled.cancel()
    cancelled.cancel()
    assert done.wait(PATIENCE)
    assert called == ["first", "second"]
    assert timers.close(PATIENCE)


def test_nothing_is_called_after_the_end() -> None:
    timers = Timers("test-timers")
    called: list[str] = []
    timers.after(0.0, lambda: None)
    timers.after(3600, called.append, "late")
    assert timers.close(PATIENCE)
    timers.after(0.0, called.append, "after the end")
    assert called == []


def test_cancelled_timers_do_not_pile_up_until_their_time_comes() -> None:
    timers = Timers("test-timers")
    kept = timers.after(3600, lambda: None)
    for _ in range(20 * TIDY_UP):
        timers.after(3600, lambda: None).cancel()
    assert len(timers._heap) <= 3 * TIDY_UP
    assert any(entry[2] is kept for entry in timers._heap)
    assert timers.close(PATIENCE)
