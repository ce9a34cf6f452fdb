"""The running actors of this process: ours, and how Pykka sees them.

Pykka keeps its references in a list, so that every stop searches it: stopping n actors costs
n squared. :func:`register` puts a keyed container with the same methods in its place, and the
references that are there already move over.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast, overload

from pykka import ActorRegistry

from dsh_actors.actors import fork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykka import ActorRef

    from dsh_actors.actors.pooled import PooledActor

__all__ = ["live_actors", "live_count", "make_pykka_registry_constant_time"]

# By number. Also what keeps a running actor alive: a reference of Pykka's is weak.
running: dict[int, PooledActor] = {}


def live_actors() -> list[PooledActor]:
    """List the pooled actors that have started and not ended, in the order of their start."""
    return list(running.values())


def live_count() -> int:
    """Tell how many pooled actors have started and not ended."""
    return len(running)


class _KeyedRefs:
    """As much of a list as Pykka's registry uses, with constant-time ``in`` and ``remove``."""

    __slots__ = ("_refs",)

    def __init__(self, refs: list[ActorRef[Any]]) -> None:
        self._refs = dict.fromkeys(refs)

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[ActorRef[Any]]:
        return iter(self._refs)

    def __contains__(self, ref: object) -> bool:
        return ref in self._refs

    @overload
    def __getitem__(self, index: slice) -> list[ActorRef[Any]]: ...
    @overload
    def __getitem__(self, index: int) -> ActorRef[Any]: ...
    def __getitem__(self, index: slice | int) -> list[ActorRef[Any]] | ActorRef[Any]:
        return list(self._refs)[index]

    def append(self, ref: ActorRef[Any]) -> None:
        self._refs[ref] = None

    def remove(self, ref: ActorRef[Any]) -> None:
        try:
            del self._refs[ref]
        except KeyError:
            msg = f"{ref!r} is not registered"
            raise ValueError(msg) from None

    def clear(self) -> None:
        self._refs.clear()


def make_pykka_registry_constant_time() -> None:
    """Replace the list of Pykka's registry, once; what is registered stays registered."""
    if type(ActorRegistry._actor_refs) is list:
        with ActorRegistry._actor_refs_lock:
            refs = ActorRegistry._actor_refs
            if type(refs) is list:
                ActorRegistry._actor_refs = cast("list[ActorRef[Any]]", _KeyedRefs(refs))


@fork.in_child
def _forget() -> None:
    from dsh_actors.actors.pooled import PooledActor

    actors = list(running.values())
    running.clear()
    for actor in actors:
        actor.actor_inbox.poison()
    # The thread that held the lock of Pykka's registry may not exist here.
    ActorRegistry._actor_refs_lock = threading.RLock()
    for ref in ActorRegistry._actor_refs[:]:
        if issubclass(ref.actor_class, PooledActor):
            ActorRegistry._actor_refs.remove(ref)
