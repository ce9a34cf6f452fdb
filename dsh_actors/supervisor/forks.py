"""In a forked child, a system of the parent is of no use: whatever is tried with it says so.

All that a system does passes its one lock. Another thread may have held that at the fork, and
would never release it here; so it is replaced by one that raises.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from dsh_actors.actors import fork
from dsh_actors.errors import ForkedSystemError

if TYPE_CHECKING:
    from dsh_actors.supervisor.core import Core

_cores: weakref.WeakSet[Core] = weakref.WeakSet()


class ForkedLock:
    """Stands in for the lock of a system of the process that forked this one."""

    def acquire(self, *_: Any) -> NoReturn:
        """Raise ForkedSystemError."""
        raise ForkedSystemError(
            "this actor system belongs to the process that forked this one; make a new "
            "ActorSystem in the child"
        )

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        """Never reached: nobody gets in."""


def watch(core: Core) -> None:
    """Make the system unusable in children that are forked from here on."""
    _cores.add(core)


@fork.in_child
def _lock_out() -> None:
    for core in list(_cores):
        core.lock = ForkedLock()  # type: ignore[assignment]
