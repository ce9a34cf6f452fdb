"""What a forked child must forget: one hook on ``os.fork`` for the whole package.

A child of ``fork`` has copies of all actors and dispatchers, but none of their threads, so
whatever waits for them waits forever. The child drops them, and says so when they are used.
"""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["first_serial", "in_child", "next_serial"]

next_serial = count(1).__next__
"""Gives numbers that rise with time, also from a parent to its child."""

first_serial = 0
"""A smaller serial is one that was given before this process was forked."""

_hooks: list[Callable[[], None]] = []


def in_child(hook: Callable[[], None]) -> Callable[[], None]:
    """Call ``hook`` in every forked child, in the thread that forked.

    Parameters:
        hook: must not take a lock: another thread may have held it at the fork.

    Returns:
        the hook, so that this can be used as a decorator.
    """
    _hooks.append(hook)
    return hook


def _after_fork() -> None:
    global first_serial
    first_serial = next_serial()
    for hook in _hooks:
        hook()


os.register_at_fork(after_in_child=_after_fork)
