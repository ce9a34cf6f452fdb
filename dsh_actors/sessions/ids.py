"""Session ids: they sort by time, can be typed, and do not collide."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["new_session_id"]

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # base 32 without i, l, o and u
_SUFFIX_BITS = 40
_MASK = (1 << _SUFFIX_BITS) - 1


class _Minter:
    """Counts up from a random number that is drawn anew each second.

    Within a process two ids can therefore never be equal; two processes that mint 100,000 ids
    each in the same second meet with a probability of 2e-7, and the store refuses the second.
    """

    __slots__ = ("_lock", "_next", "_second", "_stamp")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._second = -1
        self._stamp = ""
        self._next = 0

    def mint(self) -> str:
        with self._lock:
            second = int(time.time())
            if second != self._second:
                self._second = second
                self._stamp = time.strftime("s-%Y%m%d-%H%M%S-", time.gmtime(second))
                self._next = int.from_bytes(os.urandom(_SUFFIX_BITS // 8), "big")
            number = self._next
            self._next = (number + 1) & _MASK
            stamp = self._stamp
        suffix = ""
        for _ in range(_SUFFIX_BITS // 5):
            suffix = _DIGITS[number & 31] + suffix
            number >>= 5
        return stamp + suffix


_minter = _Minter()


def _start_anew() -> None:
    global _minter
    _minter = _Minter()  # a forked child that went on counting would repeat its parent's ids


os.register_at_fork(after_in_child=_start_anew)


def new_session_id() -> str:
    """Mint an id such as ``s-20261130-211342-4f7k2a9c`` (UTC, then 40 random bits in base 32)."""
    return _minter.mint()
