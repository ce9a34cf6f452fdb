"""One client of a control server, as its thread sees it: what has come in, what is to go out."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from dsh_actors.control.protocol import (
    ERROR,
    MAX_REQUEST_BYTES,
    FrameBuffer,
    Request,
    error_data,
    frames_of,
    read_request,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
    from dsh_actors.control.limits import Limits
    from dsh_actors.control.watching import Stream
    from dsh_actors.errors import ControlError

__all__ = ["Connection", "Waiting"]

_READ = 64 << 10
_WRITE = 256 << 10  # in one go, before the others get their turn


class Waiting:
    """A request that is answered later."""

    __slots__ = ("encode", "future")

    def __init__(self, future: Future[Any], encode: Callable[[Any], bytes]) -> None:
        self.future = future
        self.encode = encode

    def answer(self) -> tuple[bool, bytes]:
        """Whether the future has a value, and the encoded value or error."""
        error = self.future.exception(timeout=0)
        if error is not None:
            return False, error_data(error)
        try:
            return True, self.encode(self.future.result(0))
        except Exception as failure:
            return False, error_data(failure)


class Connection:
    """The state of one connection, without a thread or a lock of its own.

    Parameters:
        socket: of the client; non-blocking.
        limits: what it is allowed.
        now: the time, in seconds.
    """

    __slots__ = (
        "_head_since", "_inbox", "_limits", "_outbox", "_outbox_bytes", "_partial_since",
        "closed", "closing_since", "eof", "greeted", "last_active", "opened", "reason", "socket",
        "streams", "waiting",
    )  # fmt: skip

    def __init__(self, socket: socket.socket, limits: Limits, now: float) -> None:
        self.socket = socket
        self._limits = limits
        self._inbox = FrameBuffer(MAX_REQUEST_BYTES)
        self._outbox: deque[memoryview] = deque()
        self._outbox_bytes = 0
        # Since when the first thing in the outbox is due; and since when a frame is incomplete.
        self._head_since = now
        self._partial_since: float | None = None
        self.opened = self.last_active = now
        self.greeted = False
        self.waiting: dict[int, Waiting] = {}
        self.streams: dict[int, Stream] = {}
        self.closing_since: float | None = None
        self.eof = False
        self.closed = False
        self.reason = ""

    # -- in ------------------------------------------------------------------------------------

    @property
    def wants_read(self) -> bool:
        """Whether more may come in: not while a request waits to be looked at."""
        return self.closing_since is None and not self.eof and not self._inbox.is_ready

    def read(self, now: float) -> None:
        """Take what has arrived, up to a limit.

        Raises:
            OSError: the connection is broken.
        """
        try:
            data = self.socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self.eof = True
            return
        if not self._inbox:
            self._partial_since = now
        self._inbox.feed(data)

    def next_request(self, now: float) -> Request | None:
        """Return the next request that is complete and may be done now.

        Raises:
            BadFrame: the client speaks something else.
        """
        if not self.has_request:
            return None
        payload = self._inbox.take()
        if payload is None:
            return None
        self._partial_since = now if self._inbox else None
        self.last_active = now
        return read_request(payload)

    # -- out -----------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._outbox)

    @property
    def takes_events(self) -> bool:
        """Whether events of streams may be added to what is to be sent."""
        return self.closing_since is None and self._outbox_bytes < self._limits.stream_outbox

    def send(self, id: int, op: str, data: bytes, now: float) -> None:
        """Put an answer or event where it is sent from."""
        if self.closed or self.closing_since is not None:
            return
        if self._outbox_bytes + len(data) > self._limits.outbox_limit:
            self.drop("it does not read its answers")
            return
        if not self._outbox:
            self._head_since = now
        for frame in frames_of(id, op, data):
            self._outbox.append(memoryview(frame))
            self._outbox_bytes += len(frame)

    def send_error(self, id: int, error: BaseException, now: float) -> None:
        """The same, for an error."""
        self.send(id, ERROR, error_data(error), now)

    def refuse(self, error: ControlError, now: float) -> None:
        """Say why the connection ends, and end it once that is sent."""
        self.send_error(0, error, now)
        self.reason = self.reason or str(error)
        if self.closing_since is None:
            self.closing_since = now

    def write(self, now: float) -> None:
        """Send what the client takes, up to a limit.

        Raises:
            OSError: the connection is broken.
        """
        budget = _WRITE
        while self._outbox and budget > 0:
            head = self._outbox[0]
            try:
                sent = self.socket.send(head[:budget])
            except (BlockingIOError, InterruptedError):
                return
            budget -= sent
            self._outbox_bytes -= sent
            if sent == len(head):
                self._outbox.popleft()
                self._head_since = now
            else:
                self._outbox[0] = head[sent:]

    # -- time ----------------------------------------------------------------------------------

    def deadline(self) -> tuple[float, str] | None:
        """Return until when the client has to do something, and what it has not done by then."""
        limits = self._limits
        if self.closing_since is not None:
            return self.closing_since + limits.linger, "it was closed"
        due = []
        if self._outbox:
            until = self._head_since + limits.stall
            due.append((until, f"it has not read a frame within {limits.stall:g} s"))
        if not self.greeted:
            until = self.opened + limits.hello
            due.append((until, f"it has not said hello within {limits.hello:g} s"))
        if self._partial_since is not None and self._outbox_bytes <= limits.outbox:
            until = self._partial_since + limits.frame
            due.append((until, f"a frame has not arrived within {limits.frame:g} s"))
        return min(due, default=None)

    @property
    def has_request(self) -> bool:
        """Whether a request, or what is taken for one, is there and may be done now."""
        return (
            self.closing_since is None
            and self._inbox.is_ready
            and self._outbox_bytes <= self._limits.outbox
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way on it."""
        return not (self.waiting or self.streams or self._outbox or self._inbox)

    @property
    def is_over(self) -> bool:
        """Whether it can be closed: all is said, or nobody is there to say it to."""
        if self._outbox:
            return False
        return self.closing_since is not None or (self.eof and not self._inbox.is_ready)

    def drop(self, reason: str) -> None:
        """Mark it to be closed as it is, without a word more."""
        self.reason = self.reason or reason
        self.closing_since = self.closing_since or self.opened
        self._outbox.clear()
        self._outbox_bytes = 0
