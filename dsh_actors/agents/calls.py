"""Calls on the record: an intent is durable before its body runs, and its result is kept.

After a crash the log tells of each call how far it came. A turn that is tried again gets the
recorded results; a call that was made and of which nobody knows the outcome is reported, and never
silently made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dsh_actors import codec
from dsh_actors.agents.waiting import wait_in_turn
from dsh_actors.errors import (
    CallFailed,
    Cancelled,
    DshActorsError,
    MessageError,
    OutcomeUnknown,
    StoreError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.turn import Turn

DEADLINE = 30.0
"""Seconds that a turn waits for the store before it gives up what was to follow."""

# As in sessions/recovery.py, which reads them.
ABORTED: Final = "aborted before dispatch"
UNKNOWN: Final = "outcome unknown"

_MISSING: Final = object()


class UnknownCall(NamedTuple):
    """A call of an earlier life that was made, and of which nobody knows how it ended.

    Attributes:
        message: the id of the message that its turn was working on.
        name, key, idempotent: as the turn gave them.
        call_args: what it was called with, as ``{"args": [...], "kwargs": {...}}``; in place of
            what is no plain data stands the name of its type.
    """

    message: int
    name: str
    key: str
    call_args: Any
    idempotent: bool


class Earlier:
    """What an agent knows of the calls of its earlier lives.

    Parameters:
        rows: as ``sessions.recovery.Call.to_plain`` makes them.
    """

    __slots__ = ("_by_key", "unknown")

    def __init__(self, rows: Iterable[list[Any]]) -> None:
        self._by_key: dict[tuple[int, str], list[Any]] = {}
        unknown = []
        for row in rows:
            message, name, key, args, idempotent, status, _, _ = row
            self._by_key[message, key] = row
            if status == "unknown":
                unknown.append(UnknownCall(message, name, key, args, idempotent))
        self.unknown = tuple(unknown)

    def take(self, message: int, key: str) -> list[Any] | None:
        """The record of a call that a retried turn comes to; each is taken once."""
        return self._by_key.pop((message, key), None)


class TurnCalls:
    """The calls of one turn so far."""

    __slots__ = ("_counts", "_number", "done")

    def __init__(self) -> None:
        self._number = 0
        self._counts: dict[tuple[int, str], int] = {}
        # Results of calls with a key of the behaviour's own, for who asks again in this turn.
        self.done: dict[tuple[int, str], Any] = {}

    def next_id(self, turn: int) -> str:
        """A new id, unique in the session."""
        self._number += 1
        return f"{turn}.{self._number}"

    def key(self, message: int, name: str) -> str:
        """The key of a call that was given none: its name, and the how manieth it is."""
        count = self._counts[message, name] = self._counts.get((message, name), 0) + 1
        return f"{name}#{count}"


class _Call:
    """One call, from its intent to its result."""

    __slots__ = ("_turn", "args", "function", "id", "idempotent", "key", "kwargs", "message",
                 "name", "own_key")  # fmt: skip

    def __init__(
        self,
        turn: Turn,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        key: str | None,
        idempotent: bool,
    ) -> None:
        for what, text in (("name", name), ("key", key)):
            if text is not None and not (isinstance(text, str) and text):
                raise UsageError(f"the {what} of a call is a text, not {text!r}")
        if not callable(function):
            raise UsageError(f"call {name!r}: there is nothing to call in {function!r}")
        turn._check_running()
        if turn._message is None:
            raise UsageError(
                f"call {name!r}: a start or stop hook works on no message, so nobody could tell "
                "its calls apart after a crash; call the function itself"
            )
        if turn._calls is None:
            turn._calls = TurnCalls()
        self._turn = turn
        self.name, self.function, self.args, self.kwargs = name, function, args, kwargs
        self.message = turn._message.id
        self.own_key = key is not None
        # Counted here, and not when it is awaited: the order of the calls is that of the code.
        self.key = key if key is not None else turn._calls.key(self.message, name)
        self.idempotent = idempotent
        self.id = turn._calls.next_id(turn.number)

    # -- what is known already -----------------------------------------------------------------

    def known(self) -> Any:
        """The result that this call has had already, or ``_MISSING``.

        Raises:
            CallFailed: it had failed.
            OutcomeUnknown: it was made, and may not simply be made again.
        """
        turn = self._turn
        assert turn._calls is not None
        if self.own_key and (self.message, self.key) in turn._calls.done:
            return turn._calls.done[self.message, self.key]
        earlier = turn._actor.earlier
        row = earlier.take(self.message, self.key) if earlier is not None else None
        if row is None:
            return _MISSING
        _, name, key, args, _, status, result, error = row
        if name != self.name:
            raise UsageError(
                f"the key {key!r} belongs to a call of {name!r} in the turn that was cut off, and "
                f"to one of {self.name!r} in this one; give each call a key of its own"
            )
        if status == "ok":
            return self._keep(codec.decode(result))
        if status == "error":
            raise CallFailed(
                *(str(error.get(each, "")) for each in ("type", "message", "traceback"))
            )
        if self.idempotent:
            return _MISSING
        raise OutcomeUnknown(
            f"call {name!r} was made in a turn that was cut off, and its outcome is unknown; "
            "find out whether it has happened, or declare it idempotent",
            name=name, key=key, call_args=args,
        )  # fmt: skip

    def _keep(self, value: Any) -> Any:
        if self.own_key:
            assert self._turn._calls is not None
            self._turn._calls.done[self.message, self.key] = value
        return value

    # -- on the record -------------------------------------------------------------------------

    def begin(self) -> Future[None]:
        """Record the intent and the dispatch; settled once both are durable."""
        intent = {
            "call": self.id,
            "message": self.message,
            "name": self.name,
            "key": self.key,
            "args": {
                "args": [_plain(each) for each in self.args],
                "kwargs": {name: _plain(each) for name, each in self.kwargs.items()},
            },
            "idempotent": self.idempotent,
        }
        return self._turn._actor.host.port.call_begin(self._turn, self.id, codec.encode(intent))

    def failed_to_begin(self, error: BaseException) -> None:
        """It is not made: on the record, as far as that is possible."""
        self._end({"ok": False, "error": ABORTED})
        if isinstance(error, TimeoutError):
            raise StoreError(
                f"call {self.name!r} was not made: the session store has not confirmed its intent "
                f"within {DEADLINE:g} s"
            ) from None
        if isinstance(error, DshActorsError):
            raise StoreError(f"call {self.name!r} was not made: {error}") from error
        raise error

    def succeeded(self, value: Any) -> Any:
        """Record the result, and return it.

        Raises:
            MessageError: it is no plain data.
        """
        try:
            body = codec.encode(value)
        except MessageError as error:
            failure = MessageError(
                error.path, f"{error.problem} (in the result of call {self.name!r})"
            )
            self.raised(failure)
            raise failure from None
        if self._turn._actor.host.port.durable:
            self._end({"ok": True, "result": body})
        return self._keep(value)

    def raised(self, error: BaseException) -> None:
        """Record that the body has raised."""
        if not self._turn._actor.host.port.durable:
            return
        if isinstance(error, Exception):
            from dsh_actors.agents.actor import describe

            type, message, traceback = describe(error)
            data = {"type": type, "message": message, "traceback": traceback}
            self._end({"ok": False, "error": data})
        else:  # it was cut off in the middle
            self._end({"ok": False, "error": UNKNOWN})

    def _end(self, outcome: dict[str, Any]) -> None:
        body = codec.encode({"call": self.id, **outcome})
        self._turn._actor.host.port.call_end(self._turn, self.id, body)


def call(
    turn: Turn,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    key: str | None,
    idempotent: bool,
) -> Any:
    """See :meth:`Turn.call`."""
    made = _Call(turn, name, function, args, kwargs, key, idempotent)
    if turn._is_async:
        return _call_async(turn, made)
    found = made.known()
    if found is not _MISSING:
        return found
    if turn._actor.host.port.durable:
        try:
            wait_in_turn(made.begin(), DEADLINE)
            turn.check()
        except BaseException as error:
            made.failed_to_begin(error)
    try:
        value = function(*args, **kwargs)
        if hasattr(value, "__await__"):
            if hasattr(value, "close"):
                value.close()
            raise UsageError(
                f"call {name!r} is async, and the behaviour is not; make the behaviour async"
            )
    except BaseException as error:
        made.raised(error)
        raise
    return made.succeeded(value)


async def _call_async(turn: Turn, made: _Call) -> Any:
    found = made.known()
    if found is not _MISSING:
        return found
    if turn._actor.host.port.durable:
        try:
            await _within_deadline(made.begin())
            turn.check()
        except BaseException as error:
            made.failed_to_begin(error)
    try:
        value = made.function(*made.args, **made.kwargs)
        if hasattr(value, "__await__"):
            value = await value
    except BaseException as error:
        import asyncio

        # A body's own use of cancellation is no cancel of the turn, and yet it was cut off.
        made.raised(Cancelled("user") if isinstance(error, asyncio.CancelledError) else error)
        raise
    return made.succeeded(value)


def checkpoint(turn: Turn) -> Coroutine[Any, Any, None] | None:
    """See :meth:`Turn.checkpoint`. None if it is done already."""
    future = turn._actor.host.port.checkpoint(turn)
    if turn._is_async:
        return _checkpoint_async(turn, future)
    try:
        wait_in_turn(future, DEADLINE)
    except TimeoutError:
        raise _not_durable(turn, _late()) from None
    except DshActorsError as error:
        raise _not_durable(turn, str(error)) from error
    turn.check()
    return None


async def _checkpoint_async(turn: Turn, future: Future[None]) -> None:
    try:
        await _within_deadline(future)
    except TimeoutError:
        raise _not_durable(turn, _late()) from None
    except DshActorsError as error:
        raise _not_durable(turn, str(error)) from error
    turn.check()


async def _within_deadline(future: Future[None]) -> None:
    import asyncio

    async def settled() -> None:
        await future

    await asyncio.wait_for(settled(), DEADLINE)


def _late() -> str:
    return f"the session store has not confirmed it within {DEADLINE:g} s"


def _not_durable(turn: Turn, why: str) -> StoreError:
    return StoreError(
        f"what turn {turn.number} of agent {turn.agent_id!r} has done so far is not durable: {why}"
    )


def _plain(value: Any) -> Any:
    """A value as it stands in the log: itself, or the name of its type if it is no plain data."""
    try:
        codec.encode(value)
    except MessageError:
        return f"<{type(value).__qualname__}>"
    return value
