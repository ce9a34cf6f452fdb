"""Actors without threads of their own: Pykka's contract on a few dispatcher threads.

``PooledActor`` is the actor, ``Mailbox`` what its messages wait in, ``Dispatcher`` the threads
that run it, ``Future`` the answer to an ask. A process with very many actors does well to relax
the collector of cyclic garbage, which otherwise takes up to half of the time at 100,000 actors:
``gc.set_threshold(50_000, 20, 100)``.
"""

from __future__ import annotations

from dsh_actors.actors.deadletters import DeadLetter, dead_letter_count, set_dead_letter_listener
from dsh_actors.actors.dispatcher import Dispatcher, default_dispatcher
from dsh_actors.actors.future import Future
from dsh_actors.actors.mailbox import Mailbox, StopFlag
from dsh_actors.actors.pooled import PooledActor, set_failure_listener
from dsh_actors.actors.ref import PooledRef
from dsh_actors.actors.registry import live_actors, live_count

__all__ = [
    "DeadLetter",
    "Dispatcher",
    "Future",
    "Mailbox",
    "PooledActor",
    "PooledRef",
    "StopFlag",
    "dead_letter_count",
    "default_dispatcher",
    "live_actors",
    "live_count",
    "set_dead_letter_listener",
    "set_failure_listener",
]
