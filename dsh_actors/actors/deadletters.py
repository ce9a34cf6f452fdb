"""Messages that were accepted and then not handled, because their actor stopped before."""

from __future__ import annotations

import logging
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DeadLetter", "dead_letter_count", "record", "set_dead_letter_listener"]

logger = logging.getLogger("dsh_actors")


class DeadLetter(NamedTuple):
    """A message that reached the mailbox of an actor which stopped before it was handled.

    If it was an ask, the asker got ``pykka.ActorDeadError``.
    """

    actor_urn: str
    message: Any
    asked: bool


_lock = allocate_lock()
_count = 0
_listener: Callable[[DeadLetter], None] | None = None


def dead_letter_count() -> int:
    """Tell how many dead letters there were in this process so far."""
    return _count


def set_dead_letter_listener(
    listener: Callable[[DeadLetter], None] | None,
) -> Callable[[DeadLetter], None] | None:
    """Have every dead letter shown to ``listener``, in place of the one before.

    Parameters:
        listener: is called on the thread that met the dead letter, and must not block; an
            exception from it is logged. None stops it.

    Returns:
        the listener that was there before.
    """
    global _listener
    previous, _listener = _listener, listener
    return previous


def record(letter: DeadLetter) -> None:
    """Count a dead letter and show it to the listener."""
    global _count
    with _lock:
        _count += 1
    listener = _listener
    if listener is None:
        logger.debug("Dead letter to %s: %r", letter.actor_urn, letter.message)
        return
    try:
        listener(letter)
    except Exception:
        logger.exception("The dead letter listener failed")
