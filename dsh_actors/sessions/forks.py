"""Tells open stores that they woke up in a forked child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["watch_forks"]


class _Forked(Protocol):
    def _after_fork(self, parent: int) -> None: ...


_open: weakref.WeakSet[_Forked] = weakref.WeakSet()


def watch_forks(store: _Forked) -> None:
    """Have ``store._after_fork(parent)`` called in every child forked from here on."""
    _open.add(store)


def _tell() -> None:
    parent = os.getppid()
    for store in list(_open):
        store._after_fork(parent)


os.register_at_fork(after_in_child=_tell)
