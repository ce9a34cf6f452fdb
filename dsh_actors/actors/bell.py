"""What wakes one blocked thread.

Waking a thread with a lock costs two switches too many: the woken thread needs the interpreter
lock, which the waker holds until it blocks or its time slice ends. A system call releases that
lock *before* it acts, so a thread that is woken by a write to a descriptor can go on at once,
and the waker finds its next message when it goes on in turn: a question and its answer take
half the time. But a thread that collects many answers is better woken late, with many there.

So a thread that waits for a future made after its last wait uses a descriptor, and one that
waits for an older future uses a lock. The descriptors are few, are kept between waits, as
opening and closing one takes as long as a whole question, and are closed with the last running
dispatcher.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import weakref
from _thread import allocate_lock
from collections import deque
from typing import TypeAlias

from dsh_actors.actors import fork
from dsh_actors.actors.fork import next_serial

__all__ = [
    "Bell",
    "DescriptorBell",
    "LockBell",
    "best_bell",
    "close_descriptors",
    "open_descriptors",
]

_TOKEN = (1).to_bytes(8, sys.byteorder)
# So that a crowd of waiting threads does not use up the descriptors of the process.
_MAX_DESCRIPTORS = 32
_HAS_EVENTFD = hasattr(os, "eventfd")


class _LastWait(threading.local):
    serial = 0  # when this thread ended its last wait


_last_wait = _LastWait()


class LockBell:
    """A bell for one wait that costs no descriptor."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread, or have its next wait end at once. Only once."""
        self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the ring, ``timeout`` seconds at most; False if it did not come."""
        if timeout is None:
            rung = self._lock.acquire()
        else:
            rung = self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
        _last_wait.serial = next_serial()
        return rung

    def close(self) -> None:
        """Give up what the bell holds."""


class DescriptorBell:
    """A bell that wakes without delay, and serves many waits, one at a time."""

    __slots__ = ("__weakref__", "_descriptor")

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0)
        _all.add(self)

    def ring(self) -> None:
        """Wake the thread, or have its next wait end at once. Once per wait."""
        os.write(self._descriptor, _TOKEN)

    def wait(self, timeout: float | None) -> bool:
        """Wait for the ring, ``timeout`` seconds at most; False if it did not come."""
        rung = timeout is None or self._poll(timeout)
        if rung:
            os.read(self._descriptor, 8)
        _last_wait.serial = next_serial()
        return rung

    def _poll(self, timeout: float) -> bool:
        import select

        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        # A C integer holds 24 days of milliseconds; who waits longer looks again then.
        return bool(poll.poll(min(math.ceil(timeout * 1000), 2**31 - 1)))

    def close(self) -> None:
        """Give the bell back. Nobody may ring it any more, and no ring may be left."""
        _idle.append(self)
        if not _users:
            _idle.clear()

    def __del__(self) -> None:
        # Not before the last ringer is through: it holds a reference. So a waiter that leaves
        # while it is being rung may just drop the bell.
        os.close(self._descriptor)


Bell: TypeAlias = LockBell | DescriptorBell

_idle: deque[DescriptorBell] = deque()
_all: weakref.WeakSet[DescriptorBell] = weakref.WeakSet()
_users: set[object] = set()


def best_bell(born: int) -> Bell:
    """Make the bell for a wait of this thread for what was made at serial ``born``."""
    if born < _last_wait.serial or not _users:
        return LockBell()
    try:
        return _idle.pop()
    except IndexError:
        pass
    if not _HAS_EVENTFD or len(_all) >= _MAX_DESCRIPTORS:
        return LockBell()
    try:
        return DescriptorBell()
    except OSError:
        return LockBell()  # the process has no descriptor left


def open_descriptors(user: object) -> None:
    """Allow descriptors from now on until ``user`` and all others have closed them."""
    _users.add(user)


def close_descriptors(user: object) -> None:
    """Close the descriptors that no thread waits with, if nobody else uses them."""
    _users.discard(user)
    if not _users:
        _idle.clear()


@fork.in_child
def _forget() -> None:
    # They are shared with the parent: a ring here would wake a thread there.
    _idle.clear()
    _users.clear()
