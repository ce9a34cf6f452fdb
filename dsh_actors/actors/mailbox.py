"""The mailbox of a pooled actor: two lanes, a doorbell, and an atomic end.

No put takes a lock, so that one may happen anywhere: in a done-callback, in a finaliser. It
rests on operations that are atomic (append, popleft and remove of a deque, acquire of a lock)
and on the order of two steps on each side:

* Scheduling. A sender *enqueues, then takes the flag*; the visitor *releases the flag, then
  looks again*. Whichever comes second sees the other, so no envelope is left behind, and only
  the taker of the flag hands the actor to the dispatcher: it is run by one thread at a time.
* Closing. The closer *sets closed, then drains*; a sender *enqueues, then reads closed*. An
  envelope that slipped in is either drained, or taken back by its sender and refused.
"""

from __future__ import annotations

import queue
import sys
from _thread import RLock, allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError
from pykka.messages import _ActorStop

from dsh_actors.actors.future import Future
from dsh_actors.actors.urn import format_urn, next_number
from dsh_actors.errors import ForkedSystemError, InboxFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from pykka._envelope import Envelope

    from dsh_actors.actors.dispatcher import Dispatcher
    from dsh_actors.actors.worker import Runnable

    Lane: TypeAlias = deque[Envelope[Any]]

__all__ = ["Mailbox", "StopFlag"]

# Guards only the assignment of what is made on demand, by any actor. Nothing is called while it
# is held, so that no other thread, signal handler or fork comes in between.
making = RLock()


class StopFlag:
    """What Pykka calls ``actor_stopped``: set once, for good.

    Stands in for ``threading.Event``, at a twentieth of its size while nobody waits.
    """

    __slots__ = ("_stopped", "closed")

    closed: bool
    """Whether the flag is set. Read it, do not set it."""

    # Made by the first waiter, set after closed.
    _stopped: Future[None] | None

    def __init__(self) -> None:
        self.closed = False
        self._stopped = None

    def is_set(self) -> bool:
        """Tell whether the flag is set."""
        return self.closed

    def set(self) -> None:
        """Set the flag and wake who waits for it."""
        self.closed = True
        if self._stopped is not None:
            self._stopped.try_set_result(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        Parameters:
            timeout: seconds to wait at most.

        Returns:
            whether the flag is set.
        """
        if self.closed:
            return True
        fresh: Future[None] = Future()
        with making:
            stopped = self._stopped = self._stopped or fresh
        if self.closed:
            return True
        try:
            stopped.result(timeout)
        except TimeoutError:
            return self.closed
        return True


class Mailbox(StopFlag):
    """Where the messages to one pooled actor wait, and whether it is due to be run.

    It is the ``actor_stopped`` flag of its actor as well: an actor is stopped when its mailbox
    is closed, which is one fact.

    Parameters:
        limit: how many user messages may wait. Senders that put at the very same moment may
            exceed it by one each.
    """

    __slots__ = (
        "_scheduled", "actor", "control", "dispatcher", "limit", "number", "rung", "user",
    )  # fmt: skip

    number: int
    """The number of the actor in this process, part of its URN."""

    limit: int
    """How many user messages may wait."""

    actor: Runnable | None
    """The actor, from its start to its end. Until then the mailbox keeps it alive."""

    dispatcher: Dispatcher | None
    """Whose threads run the actor, from its start on."""

    rung: bool
    """Whether the doorbell was rung and not yet answered."""

    # None until the first message: an empty deque costs 0.7 KiB, most of an idle actor.
    control: Lane | None
    user: Lane | None

    # Held from the moment the actor becomes runnable until a visit leaves nothing to do, and
    # before the start and after the end, so that nobody submits an actor then.
    _scheduled: Any

    def __init__(self, limit: int | None = None) -> None:
        self.closed = False
        self._stopped = None
        self.number = next_number()
        self.limit = sys.maxsize if limit is None else limit
        self.actor = None
        self.dispatcher = None
        self.rung = False
        self.control = None
        self.user = None
        self._scheduled = allocate_lock()
        self._scheduled.acquire()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Mailbox of {format_urn(self.number)}, {state}, {len(self)} waiting>"

    def __len__(self) -> int:
        return len(self.control or ()) + len(self.user or ())

    # Sending

    def put(self, envelope: Envelope[Any]) -> None:
        """Append a user message.

        Raises:
            InboxFull: as many messages as allowed wait already; this one was not taken.
            ActorDeadError: the actor stopped; the message was not taken.
            ForkedSystemError: the actor belongs to the process that forked this one.
        """
        lane = self.user
        if lane is None:
            lane = self._make_user_lane()
        if len(lane) >= self.limit and not isinstance(envelope.message, _ActorStop):
            if self.closed:
                self._refuse()
            msg = f"{format_urn(self.number)} has {len(lane)} messages waiting, its limit"
            raise InboxFull(msg)
        lane.append(envelope)
        if self.closed:
            self._withdraw(lane, envelope)
        elif self._scheduled.acquire(False):
            self.dispatcher.submit(self.actor)  # type: ignore[union-attr, arg-type]

    def put_control(self, envelope: Envelope[Any]) -> None:
        """Append a message that is handled before every user message, whatever the limit.

        Raises:
            ActorDeadError: the actor stopped; the message was not taken.
            ForkedSystemError: the actor belongs to the process that forked this one.
        """
        lane = self.control
        if lane is None:
            lane = self._make_control_lane()
        lane.append(envelope)
        if self.closed:
            self._withdraw(lane, envelope)
        elif self._scheduled.acquire(False):
            self.dispatcher.submit(self.actor)  # type: ignore[union-attr, arg-type]

    def ring(self) -> bool:
        """Have the actor's ``on_doorbell`` called, before any message.

        Rings that come before the call are answered by that one call. No memory is taken.

        Returns:
            False if the actor has stopped, so that nobody answers.

        Raises:
            ForkedSystemError: the actor belongs to the process that forked this one.
        """
        self.rung = True
        if self.closed:
            if self.dispatcher is not None and self.dispatcher.forked:
                self._refuse()
            return False
        if self._scheduled.acquire(False):
            self.dispatcher.submit(self.actor)  # type: ignore[union-attr, arg-type]
        return True

    def _make_user_lane(self) -> Lane:
        fresh: Lane = deque()
        with making:
            if self.user is None:
                self.user = fresh
            return self.user

    def _make_control_lane(self) -> Lane:
        fresh: Lane = deque()
        with making:
            if self.control is None:
                self.control = fresh
            return self.control

    def _withdraw(self, lane: Lane, envelope: Envelope[Any]) -> None:
        try:
            lane.remove(envelope)
        except ValueError:
            return  # handled or dead-lettered already: it was accepted
        self._refuse()

    def _refuse(self) -> None:
        if self.dispatcher is not None and self.dispatcher.forked:
            msg = "this actor belongs to the process that forked this one: start actors here"
            raise ForkedSystemError(msg)
        msg = f"{format_urn(self.number)} not found"
        raise ActorDeadError(msg)

    # Receiving: only the dispatcher thread that holds the flag

    def attach(self, actor: Runnable, dispatcher: Dispatcher, *, visit: bool) -> None:
        """Open the mailbox for visits.

        Parameters:
            actor: what is to be run.
            dispatcher: whose threads run it.
            visit: whether it is to be run even if nothing waits.
        """
        self.dispatcher = dispatcher
        self.actor = actor
        if visit or self.leave():
            dispatcher.submit(actor)

    def leave(self) -> bool:
        """End a visit: release the flag, unless there is something left to do.

        Returns:
            True if the caller holds the flag (still or again) and must see to another visit.
        """
        if self.rung or self.user or self.control or self.closed:
            return True
        self._scheduled.release()
        return bool(
            (self.rung or self.user or self.control or self.closed)
            and self._scheduled.acquire(False)
        )

    def get(self) -> Envelope[Any]:
        """Take the next message, control messages first, without waiting.

        Raises:
            queue.Empty: none waits.
        """
        try:
            if self.control:
                return self.control.popleft()
            if self.user:
                return self.user.popleft()
        except IndexError:
            pass  # its sender has just withdrawn it, which only happens after the close
        raise queue.Empty

    def empty(self) -> bool:
        """Tell whether no message waits."""
        return not (self.control or self.user)

    def set(self) -> None:
        """Close; Pykka's name of :meth:`close` when it takes the mailbox for the stop flag."""
        self.close()

    def close(self) -> None:
        """Accept no more. What waits is left to :meth:`drain`, on the next visit."""
        super().set()
        if self.actor is not None and self._scheduled.acquire(False):
            self.dispatcher.submit(self.actor)  # type: ignore[union-attr]

    def seal(self) -> bool:
        """Close without asking for a visit, to clear up here.

        Returns:
            True if nobody visits or is due to: the caller has the flag and must clear up.
        """
        super().set()
        taken: bool = self._scheduled.acquire(False)
        return taken

    def drain(self) -> Iterator[Envelope[Any]]:
        """Take out, of a closed mailbox, what nobody will handle; any thread may do so."""
        while True:
            try:
                yield self.get()
            except queue.Empty:
                return

    def forget(self) -> None:
        """Stop keeping the actor alive."""
        self.actor = None

    def poison(self) -> None:
        """In a forked child: refuse everything, without touching what another thread held."""
        self.closed = True
        self.actor = None
        self.control = self.user = None
