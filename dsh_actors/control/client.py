"""The client of a control server: what the commands talk to a running system with."""

from __future__ import annotations

import select
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from dsh_actors import codec
from dsh_actors.control.dialling import dial, path_of, ready
from dsh_actors.control.protocol import (
    END,
    ERROR,
    EVENT,
    MAX_ANSWER_BYTES,
    MAX_FRAME_BYTES,
    OK,
    PART,
    PROTOCOL,
    BadFrame,
    FrameBuffer,
    read_answer,
    request_frame,
    to_error,
)
from dsh_actors.errors import ControlError

if TYPE_CHECKING:
    import socket
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["TIMEOUT", "ControlClient", "Stream"]

TIMEOUT: Final = 10.0
"""Seconds that a system gets for an answer, and for each sign of life, unless told otherwise."""

_PATIENT = frozenset(("stop", "drain", "shutdown", "result", "idle"))
_UNSET: Any = object()
_READ = 256 << 10


class ControlClient:
    """A connection to one running system. It is for one thread at a time.

    Make it with :meth:`connect`, and close it, or use it as a context manager.

    Attributes:
        hello: what the system says about itself: ``system`` (its id), ``name``, ``pid``,
            ``started`` (Unix seconds), ``version``, ``protocol``, ``store`` and ``verbs``.
    """

    def __init__(self, connection: socket.socket, where: str) -> None:
        self._socket = connection
        self._where = where
        self._buffer = FrameBuffer(MAX_FRAME_BYTES)
        self._parts: dict[int, bytearray] = {}
        # By the id of its request: what came for it while something else was waited for.
        self._arrived: dict[int, deque[tuple[str, bytes]]] = {}
        self._last = 0
        self._failure: ControlError | None = None
        self.hello: dict[str, Any] = {}

    @classmethod
    def connect(
        cls,
        target: str | Path | None = None,
        *,
        timeout: float = TIMEOUT,
        folder: Path | None = None,
    ) -> Self:
        """Connect to a running system.

        Parameters:
            target: the id of a system, or how it begins; the path of a socket (a ``Path``, or a
                text with a ``/``); None for the only system that is running.
            timeout: seconds that connecting and the first answer may take.
            folder: where to look for sockets; None for `runtime_dir`.

        Raises:
            ControlError: there is no such system (the message names those that run), it does not
                answer, or it is of a version that this one does not understand.
        """
        path = path_of(target, folder)
        client = cls(dial(path, timeout), str(path))
        try:
            client.hello = client.call("hello", timeout=timeout, protocol=PROTOCOL)
            spoken = client.hello.get("protocol") if isinstance(client.hello, dict) else None
            if spoken != PROTOCOL:
                raise ControlError(
                    f"{path}: the system speaks version {spoken!r} of the control protocol, and "
                    f"this command {PROTOCOL}; use the dsh-actors that the system runs with",
                    type_name="VersionMismatch",
                )
        except BaseException:
            client.close()
            raise
        return client

    def fileno(self) -> int:
        """The descriptor of the connection, to wait for events of a stream beside other things."""
        return self._socket.fileno()

    def call(self, verb: str, *, timeout: float | None = _UNSET, **fields: Any) -> Any:
        """Have one thing done, and return what the system answers.

        Parameters:
            verb: what; :attr:`hello` names all that this system knows. ``tree`` ``{}``; ``agent``
                ``{agent}``; ``send`` ``{agent, body, kind?, wait?}``, with the kind ``follow-up``,
                ``steer`` or ``inject``; ``interrupt`` ``{agent}``; ``cancel`` ``{agent, tree?}``;
                ``idle`` ``{agent}``; ``stop`` ``{agent, grace?}``; ``drain`` and ``shutdown``
                ``{grace?}``; ``receipt`` ``{}``; ``result`` ``{}``.
            timeout: seconds that the answer may take; None waits for as long as the system lives.
                By default that is so for what takes its time (``stop``, ``drain``, ``shutdown``,
                ``idle``, ``result``, and ``send`` with ``wait``), and 10 seconds for the rest.
            fields: of the request. Times are in seconds.

        Returns:
            Plain data. ``send`` gives ``{"message": id}``, with ``wait`` also ``"result"``.

        Raises:
            ControlError: the system refused, failed or is gone; ``type_name`` says which.
            MessageError: a field cannot be carried.
        """
        if timeout is _UNSET:
            patient = verb in _PATIENT or (verb == "send" and bool(fields.get("wait")))
            timeout = None if patient else TIMEOUT
        id = self._request(verb, fields)
        try:
            op, data = self._next(id, timeout)
        finally:
            del self._arrived[id]
        if op == ERROR:
            raise to_error(data)
        return codec.decode_leniently(data)

    def stream(self, verb: str, *, timeout: float | None = TIMEOUT, **fields: Any) -> Stream:
        """Begin a stream of events, and wait until it has begun.

        Parameters:
            verb: ``watch`` ``{agent?, session?, events?}``. Without fields it tells all events of
                the system; with ``agent``, those of that agent, and the log of its session, if
                there is a store; with ``session``, that log, and with ``events`` those of the
                system too. A log event is ``{"type": "log", "session", "seq", "time", "event",
                "data"}``. Where events were dropped, because they came faster than they were
                read, ``{"type": "dropped", "count"}`` takes their place; the count may include
                some of other agents.
            timeout: seconds that the beginning may take.
            fields: of the request.

        Returns:
            The events, as they come. Other calls may be made in between.

        Raises:
            ControlError: as for :meth:`call`.
        """
        id = self._request(verb, fields)
        stream = Stream(self, id)
        try:
            op, data = self._next(id, timeout)
            if op == ERROR:
                raise to_error(data)
        except BaseException:
            del self._arrived[id]
            raise
        stream.begun = codec.decode_leniently(data)
        return stream

    def close(self) -> None:
        """Close the connection. Idempotent. Nothing in the system ends by that."""
        self._fail(ControlError("this connection was closed", type_name="ConnectionLost"))
        self._socket.close()

    # -- the connection ------------------------------------------------------------------------

    def _request(self, verb: str, fields: dict[str, Any]) -> int:
        self._last += 1
        frame = request_frame(self._last, verb, fields)
        if self._failure is not None:
            raise self._failure
        deadline = monotonic() + TIMEOUT
        view = memoryview(frame)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                # What comes in must be read, or neither side gets on.
                self._wait(deadline, "takes no request", writing=True)
            except OSError as error:
                self._explain(error)
        self._arrived[self._last] = deque()
        return self._last

    def _next(self, id: int, timeout: float | None) -> tuple[str, bytes]:
        """Wait for what comes next for a request."""
        deadline = None if timeout is None else monotonic() + timeout
        arrived = self._arrived[id]
        while not arrived:
            if self._failure is not None:
                raise self._failure
            self._wait(deadline, f"has not answered within {timeout:g} s" if timeout else "")
        return arrived.popleft()

    def _wait(self, deadline: float | None, what: str, *, writing: bool = False) -> None:
        """Wait for the socket, and take in what has come."""
        left = None if deadline is None else max(0.0, deadline - monotonic())
        found = ready(self._socket, left, writing=writing)
        if found & ~select.POLLOUT:
            try:
                self._receive()
            except BadFrame as error:
                self._fail(error)
                raise
        elif not found:
            raise ControlError(
                f"{self._where}: the system {what}; it may be stopped or overloaded",
                type_name="Timeout",
            )

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            reason = error.strerror or str(error)
        else:
            reason = "closed"
        if not data:
            self._fail(
                ControlError(
                    f"{self._where}: the system has ended, or has closed this connection "
                    f"({reason.lower()})",
                    type_name="ConnectionLost",
                )
            )
            return
        self._buffer.feed(data)
        while (payload := self._buffer.take()) is not None:
            self._sort(*read_answer(payload))

    def _sort(self, id: int, op: str, data: bytes) -> None:
        if op == PART or id in self._parts:
            parts = self._parts.setdefault(id, bytearray())
            parts += data
            if len(parts) > MAX_ANSWER_BYTES:
                raise BadFrame(f"an answer of more than {MAX_ANSWER_BYTES:,} bytes")
            if op == PART:
                return
            data = bytes(self._parts.pop(id))
        if id == 0 and op == ERROR:
            self._fail(to_error(data))
        elif id in self._arrived:  # else nobody waits for it any more
            self._arrived[id].append((op, data))

    def _fail(self, error: ControlError) -> None:
        self._failure = self._failure or error

    def _explain(self, error: OSError) -> None:
        """The system takes nothing more; raise what it said before, if it said why."""
        while self._failure is None:
            if not ready(self._socket, 0.0):
                self._fail(
                    ControlError(
                        f"{self._where}: the connection is broken: {error.strerror or error}",
                        type_name="ConnectionLost",
                    )
                )
                break
            self._receive()
        assert self._failure is not None
        raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ControlClient of {self.hello.get('system', self._where)}>"


class Stream:
    """The events of one stream, as mappings with a ``type``; an iterator.

    Attributes:
        begun: the first event, ``{"type": "watching", …}``: what happens from then on is told.
        over: whether the system has ended the stream.
    """

    def __init__(self, client: ControlClient, id: int) -> None:
        self._client = client
        self._id = id
        self.begun: dict[str, Any] = {}
        self.over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        """Wait for the next event.

        Raises:
            ControlError: the system is gone without a farewell.
        """
        event = self.get(None)
        if event is None:
            raise StopIteration
        return event

    def get(self, timeout: float | None) -> dict[str, Any] | None:
        """Wait for the next event; None if none has come in time, or the stream is `over`.

        Parameters:
            timeout: seconds; None waits for as long as it takes.

        Raises:
            ControlError: the system is gone without a farewell.
        """
        if self.over or self._id not in self._client._arrived:
            return None
        try:
            op, data = self._client._next(self._id, timeout)
        except ControlError as error:
            if error.type_name == "Timeout" and self._client._failure is None:
                return None
            raise
        if op in (END, OK):
            self._end()
            return None
        if op == ERROR:
            self._end()
            raise to_error(data)
        assert op == EVENT
        event: dict[str, Any] = codec.decode_leniently(data)
        return event

    def close(self) -> None:
        """End the stream; the connection goes on."""
        if self.over:
            return
        self._end()
        try:
            self._client.call("unwatch", stream=self._id)
        except ControlError:
            if self._client._failure is None:
                raise  # else it has ended with the connection

    def _end(self) -> None:
        self.over = True
        self._client._arrived.pop(self._id, None)
