"""A Pykka actor without a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pykka
from pykka import ActorDeadError, ActorRegistry
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from dsh_actors.actors import deadletters, registry
from dsh_actors.actors.dispatcher import Dispatcher, default_dispatcher
from dsh_actors.actors.future import Future
from dsh_actors.actors.mailbox import Mailbox, making
from dsh_actors.actors.ref import PooledRef
from dsh_actors.actors.urn import format_urn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TypeAlias

    FailureListener: TypeAlias = Callable[["PooledActor", BaseException], None]

__all__ = ["PooledActor", "set_failure_listener"]

logger = logging.getLogger("pykka")

_BATCH = range(16)
_NEW, _RUNNING, _ENDING, _ENDED = range(4)

_failure_listener: FailureListener | None = None


def set_failure_listener(listener: FailureListener | None) -> FailureListener | None:
    """Have the failure of any pooled actor told to ``listener``, in place of the one before.

    Parameters:
        listener: is called with the actor and the exception, on a dispatcher thread, after the
            actor's ``on_failure``; it must not block. An actor with a ``failure_listener`` of
            its own tells only that one. None stops it.

    Returns:
        the listener that was there before.
    """
    global _failure_listener
    previous, _failure_listener = _failure_listener, listener
    return previous


class PooledActor(pykka.Actor):
    """An actor whose handlers run in batches on the threads of a dispatcher.

    Use it as any Pykka actor: subclass it, implement ``on_receive`` or methods for a proxy, and
    call ``start``. It differs in that:

    * One thread at a time runs it, but not always the same one.
    * ``registered_with_pykka = False`` hides it from ``pykka.ActorRegistry``.
    * Its mailbox has a lane in front (``tell_now``, ``stop_now``), a doorbell
      (``actor_inbox.ring()`` has ``on_doorbell`` called) and an optional limit.
    * Any failure is that of this actor alone. A ``BaseException`` answers the asker first and
      then stops this actor, where other Pykka actors then stop all actors.
    * ``on_stop`` has run, and all that waited is refused, when a stop is answered.

    Parameters:
        dispatcher: whose threads run it; by default the attribute ``dispatcher`` of the class
            or, if that is None, one that all actors without one share.
    """

    __slots__ = ("_actor_ref", "_end", "_phase", "actor_inbox")

    registered_with_pykka: ClassVar[bool] = True
    """Whether ``pykka.ActorRegistry`` knows the actor, so that its ``stop_all`` stops it."""

    inbox_limit: ClassVar[int | None] = None
    """How many user messages may wait; None for as many as fit into memory."""

    default_dispatcher: ClassVar[Dispatcher | None] = None
    """Runs the actors of this class that are not given a dispatcher of their own."""

    failure_listener: FailureListener | None = None
    """Is told of a failure of this actor, instead of what :func:`set_failure_listener` set."""

    actor_inbox: Mailbox
    _actor_ref: PooledRef[Any] | None  # type: ignore[assignment]
    _phase: int
    _end: Future[None] | None

    def __init__(self, *_args: Any, dispatcher: Dispatcher | None = None, **_kwargs: Any) -> None:
        # Pykka's own __init__ makes a random URN and an Event, over half of the actor's cost.
        self.actor_inbox = inbox = self._create_actor_inbox()
        inbox.dispatcher = dispatcher
        if self.inbox_limit is not None:
            inbox.limit = self.inbox_limit
        self._actor_ref = None
        self._end = None
        self._phase = _NEW

    @staticmethod
    def _create_actor_inbox() -> Mailbox:
        return Mailbox()

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    @property
    def dispatcher(self) -> Dispatcher | None:
        """Whose threads run the actor, from its start on."""
        return self.actor_inbox.dispatcher

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The URN of the actor, unique and in the form of a version 4 UUID."""
        return format_urn(self.actor_inbox.number)

    @property
    def actor_stopped(self) -> Mailbox:  # type: ignore[override]
        """The flag that tells whether the actor has stopped."""
        return self.actor_inbox

    @property
    def actor_ref(self) -> PooledRef[Self]:
        """The actor's reference, made when it is first asked for."""
        ref = self._actor_ref
        if ref is None:
            ref = self._actor_ref = PooledRef(self)
        return cast("PooledRef[Self]", ref)

    # Start

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> PooledRef[Self]:
        """Make an actor and start it.

        Parameters:
            args: are passed to the constructor, as are ``kwargs``.

        Returns:
            a reference to it.

        Raises:
            SystemClosed: the dispatcher is shut down.
            ForkedSystemError: it belongs to the process that forked this one.
        """
        actor = cls(*args, **kwargs)
        actor.launch()
        return actor.actor_ref

    def launch(self) -> None:
        """Start this actor, without making a reference to it; the rest of ``start``."""
        assert hasattr(self, "actor_inbox"), (
            f"{type(self).__name__}.__init__ does not call super().__init__()"
        )
        inbox = self.actor_inbox
        dispatcher = inbox.dispatcher
        if dispatcher is None:
            dispatcher = inbox.dispatcher = self.default_dispatcher or default_dispatcher()
        # Registered first: a shutdown either sees the actor, or is seen here.
        registry.running[inbox.number] = self
        if dispatcher.closed or dispatcher.forked:
            del registry.running[inbox.number]
            inbox.closed = True
            dispatcher.check_open()
        if self.registered_with_pykka:
            registry.make_pykka_registry_constant_time()
            ActorRegistry.register(self.actor_ref)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(f"Starting {self}")
        self._start_actor_loop()

    def _start_actor_loop(self) -> None:
        inbox = self.actor_inbox
        assert inbox.dispatcher is not None
        visit = type(self).on_start is not pykka.Actor.on_start
        if not visit:
            self._phase = _RUNNING
        inbox.attach(self, inbox.dispatcher, visit=visit)

    # Stop

    def stop(self) -> None:
        """Stop after the messages that wait now.

        Raises:
            ActorDeadError: it has stopped already.
        """
        self.actor_inbox.put(Envelope(_ActorStop()))

    def stop_now(self) -> None:
        """Stop before any message that waits.

        Raises:
            ActorDeadError: it has stopped already.
        """
        self.actor_inbox.put_control(Envelope(_ActorStop()))

    def end_now(self) -> Future[None]:
        """Stop before any message that waits, if the actor has not stopped yet.

        Returns:
            the future of :meth:`when_ended`.
        """
        end = self.when_ended()
        with contextlib.suppress(ActorDeadError):
            self.stop_now()
        return end

    def when_ended(self) -> Future[None]:
        """Give the future that is done when the actor has ended.

        That is after its last hook has run and all that waited is refused; ``actor_stopped`` is
        set before that. All callers share one future.
        """
        fresh: Future[None] = Future()
        with making:
            end = self._end = self._end or fresh
        if self._phase == _ENDED:
            end.try_set_result(None)
        return end

    def retire(self) -> None:
        """End the actor from outside, without its ``on_stop``: the cheapest end.

        If it is idle it has ended when this returns; else it ends when the handler that runs
        returns. What waits is refused. From any thread, any number of times.
        """
        if self.actor_inbox.seal():
            self._clear_up()

    # A visit of a dispatcher thread

    def serve(self) -> bool:
        """Handle a batch of messages; for the dispatcher."""
        inbox = self.actor_inbox
        if self._phase != _RUNNING:
            if self._phase != _NEW:
                return False
            self._begin()
        for _ in _BATCH:
            if inbox.closed:
                break
            if inbox.rung:
                inbox.rung = False
                try:
                    self.on_doorbell()
                except BaseException as error:
                    self._fail(error)
                continue
            try:
                if inbox.control:
                    envelope = inbox.control.popleft()
                elif inbox.user:
                    envelope = inbox.user.popleft()
                else:
                    break
            except IndexError:
                continue  # withdrawn by its sender, because the mailbox was closed
            message = envelope.message
            reply_to = envelope.reply_to
            try:
                if not isinstance(message, tuple):
                    response = self.on_receive(message)
                elif isinstance(message, _ActorStop):
                    self._finish(reply_to)
                    return False
                else:
                    response = self._handle_receive(message)
            except BaseException as error:
                self._answer_failure(reply_to, error)
            else:
                if reply_to is not None:
                    _answer(reply_to, response)
        if inbox.closed:
            self._clear_up()
            return False
        return inbox.leave()

    def _begin(self) -> None:
        self._phase = _RUNNING
        try:
            self.on_start()
        except BaseException as error:
            self._report(error)

    def _answer_failure(self, reply_to: pykka.Future[Any] | None, error: BaseException) -> None:
        if reply_to is not None:
            _answer_error(reply_to, error)
            if isinstance(error, Exception):
                logger.info(f"Exception returned from {self} to caller:", exc_info=error)
                return
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop because of an error that nobody was given."""
        self._handle_failure(type(error), error, error.__traceback__)
        try:
            self.on_failure(type(error), error, error.__traceback__)
        except BaseException as second:
            self._handle_failure(type(second), second, second.__traceback__)
        self._tell_failure(error)

    def _report(self, error: BaseException) -> None:
        """Stop because of an error in a hook."""
        self._handle_failure(type(error), error, error.__traceback__)
        self._tell_failure(error)

    def _tell_failure(self, error: BaseException) -> None:
        listener = self.failure_listener or _failure_listener
        if listener is None:
            return
        try:
            listener(self, error)
        except BaseException:
            logger.exception("The failure listener failed")

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logger.error(f"Unhandled exception in {self}:", exc_info=exception_value or sys.exc_info())
        self._close()

    def _close(self) -> None:
        if self.registered_with_pykka and self._actor_ref is not None:
            ActorRegistry.unregister(self._actor_ref)
        self.actor_inbox.close()

    def _finish(self, reply_to: pykka.Future[Any] | None) -> None:
        """Stop because of a stop message."""
        self._close()
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(f"Stopped {self}")
        try:
            self.on_stop()
        except BaseException as error:
            self._report(error)
        self._clear_up()
        if reply_to is not None:
            _answer(reply_to, None)

    def _stop(self) -> None:
        self._finish(None)

    def _clear_up(self) -> None:
        """Refuse what waits and let go of everything: the last step of every end."""
        if self._phase >= _ENDING:
            return
        self._phase = _ENDING
        inbox = self.actor_inbox
        inbox.seal()
        if self.registered_with_pykka and self._actor_ref is not None:
            ActorRegistry.unregister(self._actor_ref)
        self._discard()
        registry.running.pop(inbox.number, None)
        inbox.forget()
        self._phase = _ENDED
        if self._end is not None:
            self._end.try_set_result(None)

    def discard_waiting(self) -> None:
        """Refuse all messages that wait, now and in future; from any thread."""
        self.actor_inbox.close()
        self._discard()

    def _discard(self) -> None:
        for envelope in self.actor_inbox.drain():
            message, reply_to = envelope.message, envelope.reply_to
            if isinstance(message, _ActorStop):
                if reply_to is not None:
                    _answer(reply_to, None)
                continue
            if reply_to is not None:
                text = f"{self} stopped before handling the message"
                _answer_error(reply_to, ActorDeadError(text))
            deadletters.record(
                deadletters.DeadLetter(self.actor_urn, message, asked=reply_to is not None)
            )

    def abandon(self, error: BaseException) -> None:
        """End after an error that :meth:`serve` let through; for the dispatcher."""
        self._report(error)
        self._clear_up()

    # Hooks

    def on_doorbell(self) -> None:
        """Be called after ``actor_inbox.ring()``, before any message that waits.

        Rings before the call are one call; a ring during it is another. A failure is handled
        as that of a message without an asker. What may take long belongs between
        ``dispatcher.enter_blocking()`` and ``exit_blocking()``.
        """


def _answer(reply_to: pykka.Future[Any], response: Any) -> None:
    if isinstance(reply_to, Future):
        reply_to.try_set_result(response)  # the asker may have settled it, e.g. by a cancel
    else:
        reply_to.set(response)


def _answer_error(reply_to: pykka.Future[Any], error: BaseException) -> None:
    if isinstance(reply_to, Future):
        reply_to.try_set_error(error)
    else:
        reply_to.set_exception((type(error), error, error.__traceback__))
