"""Waiting inside a turn: interrupted by its cancel signal, without holding its permit."""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from dsh_actors.actors.future import Future
from dsh_actors.errors import UsageError

if TYPE_CHECKING:
    from dsh_actors.agents.turn import Turn

T = TypeVar("T")

current_turn: ContextVar[Turn | None] = ContextVar("dsh_actors_turn", default=None)
"""The turn on whose behalf this code runs: the initiator."""


class Awaited(Future[T]):
    """A future for users: a turn that waits for it is interrupted by its cancel signal."""

    __slots__ = ()

    def _settle(self, timeout: float | None) -> bool:
        turn = current_turn.get()
        if turn is None or not runs_here(turn):
            return super()._settle(timeout)
        _wait(turn, self, timeout)
        return self.done()


def runs_here(turn: Turn) -> bool:
    """Whether this is the thread of the turn, and not one that it has started."""
    here = get_ident()
    return here == (turn._actor.host.loop.ident if turn._is_async else turn._thread)


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
    if turn is None or not runs_here(turn):
        return future.result(timeout)
    if not turn._is_async:
        turn.check()
    if not future.done():
        _wait(turn, future, timeout)
        if not future.done():
            raise TimeoutError(f"not done within {timeout} s")
    return future.result(0)


def _wait(turn: Turn, future: Future[T], timeout: float | None) -> None:
    if turn._is_async:
        raise UsageError(
            "result() in an async behaviour would block every other async turn; await it instead"
        )
    turn.check()
    park(turn, future, timeout)
    turn.check()


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
        host.resume_permit(turn)
