"""One thread of a dispatcher, and what it runs."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from dsh_actors.actors import fork

if TYPE_CHECKING:
    from dsh_actors.actors.dispatcher import Dispatcher
    from dsh_actors.actors.future import Future

__all__ = ["Runnable", "Worker", "current_worker", "local"]

logger = logging.getLogger("dsh_actors")


class Runnable(Protocol):
    """What a dispatcher runs: a pooled actor."""

    def serve(self) -> bool:
        """Do a batch of work; True if the actor is to be served again."""

    def abandon(self, error: BaseException) -> None:
        """End after an error that ``serve`` let through."""

    def end_now(self) -> Future[None]:
        """Stop as soon as the handler that runs, if any, returns; done when it has stopped."""

    def discard_waiting(self) -> None:
        """Give up all that waits, because no thread will serve it any more."""


class Local(threading.local):
    worker: Worker | None = None


local = Local()


def current_worker() -> Worker | None:
    """Give the dispatcher thread that this code runs on, or None on any other thread."""
    return local.worker


class Worker(threading.Thread):
    """One thread of a dispatcher. Its fields are written by the thread itself only."""

    def __init__(self, dispatcher: Dispatcher, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.dispatcher = dispatcher
        self.actor: Runnable | None = None
        self.blocking = 0  # depth of blocks: possibly short ones
        self.waiting: Future[Any] | None = None  # what it sleeps for, if it does
        self.progress = 0
        self.seen = (0, time.monotonic())  # progress and time; the watchdog's note

    def run(self) -> None:
        """Run actors until the dispatcher lets the thread end."""
        local.worker = self
        dispatcher = self.dispatcher
        while True:
            try:
                dispatcher._work(self)
            except BaseException as error:
                # Actors deal with their own errors: this is one of the library, or one that
                # was thrown into the thread from outside. Only the actor at hand may suffer.
                logger.exception("Dispatcher thread %s met an error and goes on", self.name)
                actor, self.actor = self.actor, None
                self.blocking, self.waiting = 0, None
                if actor is not None:
                    actor.abandon(error)
            else:
                return

    def begin_wait(self, future: Future[Any]) -> None:
        """Say that this thread is about to sleep until ``future`` is done.

        Raises:
            UsageError: no thread would be left to run actors, and no more may be started.
        """
        dispatcher = self.dispatcher
        if len(dispatcher._threads) >= dispatcher.max_threads:
            dispatcher._refuse_last_wait(self, future)
        self.waiting = future
        if not dispatcher._idle and not dispatcher._queue.empty():
            dispatcher._relieve()

    def end_wait(self) -> None:
        """Say that the wait is over."""
        self.waiting = None
        self.progress += 1

    def sleeps(self) -> bool:
        """Tell whether it waits for a future that is not done: one that was woken runs soon."""
        future = self.waiting
        return future is not None and not future.done()


@fork.in_child
def _forget() -> None:
    local.worker = None
