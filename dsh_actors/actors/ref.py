"""The reference to a pooled actor."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import pykka
from pykka import ActorDeadError
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from dsh_actors.actors.future import Future
from dsh_actors.actors.urn import format_urn
from dsh_actors.actors.worker import current_worker
from dsh_actors.errors import AskCycle, InboxFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.mailbox import Mailbox
    from dsh_actors.actors.pooled import PooledActor
    from dsh_actors.actors.worker import Worker

__all__ = ["PooledRef"]

A = TypeVar("A", bound="PooledActor")


class PooledRef(pykka.ActorRef[A]):
    """A ``pykka.ActorRef`` whose messages cannot get lost in the stop of the actor.

    An ask that comes too late for the actor is answered with ``pykka.ActorDeadError``. It does
    not keep the actor alive.
    """

    __slots__ = ("_actor_weakref", "actor_class", "actor_inbox")

    actor_inbox: Mailbox

    def __init__(self, actor: A) -> None:
        self._actor_weakref = weakref.ref(actor)
        self.actor_class = actor.__class__
        self.actor_inbox = actor.actor_inbox

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The URN of the actor."""
        return format_urn(self.actor_inbox.number)

    @property
    def actor_stopped(self) -> Mailbox:  # type: ignore[override]
        """The flag that tells whether the actor has stopped; has ``is_set`` and ``wait``."""
        return self.actor_inbox

    def is_alive(self) -> bool:
        """Tell whether the actor has not stopped."""
        return not self.actor_inbox.closed

    def tell(self, message: Any) -> None:
        """Send a message without waiting for an answer.

        Raises:
            ActorDeadError: the actor stopped.
            InboxFull: its mailbox is at its limit.
        """
        try:
            self.actor_inbox.put(Envelope(message))
        except ActorDeadError:
            raise self._not_found() from None

    def tell_now(self, message: Any) -> None:
        """Send a message that is handled before all others but those sent this way earlier.

        Raises:
            ActorDeadError: the actor stopped.
        """
        try:
            self.actor_inbox.put_control(Envelope(message))
        except ActorDeadError:
            raise self._not_found() from None

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and get the answer.

        Parameters:
            message: what to send.
            block: whether to wait for the answer here, or to return a :class:`Future` of it.
            timeout: seconds to wait at most.

        Returns:
            the answer, or a future of it.

        Raises:
            pykka.Timeout: there was no answer in time.
            AskCycle: an actor asks itself and would wait forever.
            ActorDeadError: the actor stopped.
            InboxFull: its mailbox is at its limit.
            Exception: what the handler raised.
        """
        future = self._ask(message, self.actor_inbox.put)
        if not block:
            return future
        worker = current_worker()
        if worker is not None and timeout is None and self.is_alive():
            self._check_cycle(worker)
        return future.get(timeout=timeout)

    def _ask(self, message: Any, put: Callable[[Envelope[Any]], None]) -> pykka.Future[Any]:
        future = self.actor_class._create_future()
        try:
            put(Envelope(message, future))
        except ActorDeadError:
            error = self._not_found()
            future.set_exception((ActorDeadError, error, None))
        except InboxFull as error:
            future.set_exception((InboxFull, error, None))
        return future

    def _check_cycle(self, worker: Worker) -> None:
        if worker.actor is self._actor_weakref():
            msg = f"{self} asks itself, and can only answer when it has got the answer"
            raise AskCycle(msg)

    def _not_found(self) -> ActorDeadError:
        return ActorDeadError(f"{self} not found")

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop the actor after the messages that it has now.

        Parameters:
            block: whether to wait for the stop here, or to return a :class:`Future` of it.
            timeout: seconds to wait at most.

        Returns:
            True, or a future of it, when the actor has stopped; False if it was dead already.

        Raises:
            pykka.Timeout: it did not stop in time.
        """
        return self._stop(self.actor_inbox.put, block, timeout)

    def stop_now(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop the actor before any message that waits; parameters and result as in ``stop``."""
        return self._stop(self.actor_inbox.put_control, block, timeout)

    def _stop(
        self, put: Callable[[Envelope[Any]], None], block: bool, timeout: float | None
    ) -> Any:
        stopped: Future[bool] = Future()
        worker = current_worker()
        end: Future[None] = Future()
        end.add_done_callback(lambda end: stopped.try_set_result(True))
        try:
            put(Envelope(_ActorStop(), end))
        except ActorDeadError:
            actor = self._actor_weakref()
            if actor is None or (worker is not None and worker.actor is actor):
                stopped.set_result(False)
            else:  # it may be in its last hook
                actor.when_ended().add_done_callback(lambda _: stopped.try_set_result(False))
        if not block:
            return stopped
        if worker is not None and timeout is None and not stopped.done():
            self._check_cycle(worker)
        return stopped.get(timeout=timeout)
