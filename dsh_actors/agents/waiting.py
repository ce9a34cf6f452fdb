"""Waiting inside a turn: interrupted by its cancel signal, without holding its permit."""

from __future__ import annotations

from _thread import allocate_lock
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from dsh_actors.errors import UsageError

if TYPE_CHECKING:
    from dsh_actors.actors.future import Future
    from dsh_actors.agents.turn import Turn

T = TypeVar("T")

current_turn: ContextVar[Turn | None] = ContextVar("dsh_actors_turn", default=None)
"""The turn on whose behalf this code runs: the initiator."""


def wait_in_turn(future: Future[T], timeout: float | None) -> T:
    """Wait for a future, from a turn or from anywhere else.

    Parameters:
        future: what to wait for.
        timeout: at most so many seconds; None waits for as long as it takes.

    Raises:
        TimeoutError: the time is over.
        Cancelled: the waiting turn was cancelled.
        UsageError: called in an async turn, where it would block every other one.
    """
    turn = current_turn.get()
    if turn is None:
        return future.result(timeout)
    if turn._is_async:
        if future.done():
            return future.result(0)
        raise UsageError(
            "result() in an async behaviour would block every other async turn; await it instead"
        )
    turn.check()
    if not future.done():
        park(turn, future, timeout)
        turn.check()
        if not future.done():
            raise TimeoutError(f"not done within {timeout} s")
    return future.result(0)


def park(turn: Turn, future: Future[T] | None, timeout: float | None) -> None:
    """Wait, as a plain turn, until the future is done, the signal is set or the time is over."""
    gate = allocate_lock()
    gate.acquire()

    def wake(_: object = None) -> None:
        try:
            gate.release()
        except RuntimeError:  # the other one was first
            return

    if future is not None:
        future.add_done_callback(wake)
    turn.signal.add_callback(wake)
    host = turn._actor.host
    host.give_permit()
    try:
        gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
    finally:
        turn.signal.remove_callback(wake)
        host.resume_permit()
