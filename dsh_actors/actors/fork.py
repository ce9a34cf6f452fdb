"""What a forked child must forget: one hook on ``os.fork`` for the whole package.

A child of ``fork`` has copies of all actors and dispatchers, but none of their threads, so
whatever waits for them waits forever. The child drops them, and says so when they are used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["generation", "in_child"]

generation = 0
"""How many forks lie between this process and the first one that loaded this module."""

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
    global generation
    generation += 1
    for hook in _hooks:
        hook()


os.register_at_fork(after_in_child=_after_fork)
