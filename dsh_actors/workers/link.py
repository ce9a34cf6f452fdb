"""One end of the connection between a supervisor and a worker.

Each link has one reader, which only decodes and hands over, and at most one writer at a time.
Sending never blocks. Who sends while nobody writes becomes the writer and makes the system call
itself, so a single message costs no change of threads; who sends while another writes only queues,
and the writer takes along all that has gathered. A thread of the link's own takes over in two
cases: when the socket is full, and to finish what a sender in a hurry has left queued.

Invariants, all under ``_lock``:

- Bytes are written only by the holder of ``_writing``, so frames are never torn or reordered.
- Whoever gives up ``_writing`` has found the outbox empty in the same section, or has handed it
  to the writer thread together with the unsent rest of a frame.
- Once ``_reason`` is set nobody becomes the writer. The descriptor is closed by the last one to
  leave, reader or writer, so that no system call can meet a number that was given out again.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.errors import DshActorsError
from dsh_actors.workers.framing import MAX_FRAME_BYTES, FrameDecoder, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Link", "LinkClosed", "LinkStalled"]

MAX_OUTBOX_BYTES = 256 << 20
"""The default limit of what may wait for a peer that does not read, in bytes."""

_RECEIVE_BYTES = 256 << 10
_FRAME_TARGET_BYTES = 128 << 10  # a backlog is cut into frames of about this size
# A sender that keeps sending at shorter intervals than this (seconds), for at least this many
# messages, is in a hurry: it queues, and makes one system call for many messages.
_HURRY_INTERVAL = 40e-6
_HURRY_STREAK = 8
_HURRY_MESSAGES = 64
_HURRY_BYTES = 32 << 10


class LinkClosed(DshActorsError):
    """The link is closed, here or at the peer."""


class LinkStalled(DshActorsError):
    """The peer did not read for so long that the outbox ran full, so the link was closed."""


class Link:
    """A connected stream socket that carries messages.

    Call `start` (or `run`) once the callbacks may be called, and `close` in the end.

    Parameters:
        sock: one end of a connected stream socket; the link owns it from here on.
        on_messages: called by the reader with all messages that arrived in one go, in order. It
            must not block. If it raises, the link closes, and the exception is the reason.
        on_close: called by the reader exactly once, after the last message, with the reason: None
            for an ordinary end (`close`, or the peer closed between two frames).
        name: names the link in errors and its threads.
        max_outbox: how many bytes may wait for the peer.
        max_frame: the largest accepted frame, in bytes.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_messages: Callable[[list[Any]], None],
        on_close: Callable[[BaseException | None], None],
        name: str,
        max_outbox: int = MAX_OUTBOX_BYTES,
        max_frame: int = MAX_FRAME_BYTES,
    ) -> None:
        sock.setblocking(True)
        self.name = name
        self._sock = sock
        self._on_messages = on_messages
        self._on_close = on_close
        self._max_outbox = max_outbox
        self._max_frame = max_frame
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._writing = False
        self._rest: memoryview | None = None  # of a frame, handed to the writer thread
        self._wanted = False  # the writer thread shall look at the outbox
        self._writer: threading.Thread | None = None
        self._reader: threading.Thread | None = None
        self._last_write = 0.0
        self._streak = 0
        self._started = False
        self._reading = True  # the reader runs or is still to come: keep the descriptor
        self._refusing = False  # no more sends: closing or closed
        self._ended = False  # shut down; only the clean-up is left
        self._reason: BaseException | None = None
        _open_links.add(self)

    def __repr__(self) -> str:
        return f"<Link {self.name} {'closed' if self._refusing else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether `send` would raise `LinkClosed`."""
        return self._refusing

    # -- Reading ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the reader as a daemon thread."""
        self._begin_reading()
        self._reader = threading.Thread(target=self.run, name=f"{self.name}-reader", daemon=True)
        self._reader.start()

    def run(self) -> None:
        """Read in the calling thread until the link ends; an alternative to `start`."""
        error: BaseException | None = None
        if self._begin_reading():
            try:
                error = self._read()
            except BaseException as raised:
                error = raised
        with self._lock:
            self._end_locked(error)
            self._reading = False
            self._close_if_unused()
        self._on_close(self._reason)

    def _begin_reading(self) -> bool:
        """Take the part of the reader; return whether there is still something to read."""
        with self._lock:
            self._started = True
            return self._reading

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the link's threads have ended, `on_close` included.

        Parameters:
            timeout: how long to wait at most, in seconds; None for ever.

        Returns:
            Whether they have ended. A thread of the link itself is not waited for.
        """
        deadline = None if timeout is None else monotonic() + timeout
        threads = [thread for thread in (self._reader, self._writer) if thread is not None]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _read(self) -> BaseException | None:
        decoder = FrameDecoder(self._max_frame)
        feed, receive, deliver = decoder.feed, self._sock.recv_into, self._on_messages
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        while True:
            try:
                size = receive(buffer)
            except ConnectionResetError:
                size = 0  # the peer died with messages of ours unread: an end like any other
            if not size:
                if not self._ended:
                    decoder.end()
                return None
            messages = feed(buffer[:size])
            if messages:
                deliver(messages)

    # -- Sending ------------------------------------------------------------------------------

    def send(self, message: Any) -> None:
        """Encode a message and send it; see `send_packed`.

        Parameters:
            message: plain data, as `dsh_actors.codec.encode` takes it.

        Raises:
            MessageError: the message cannot be encoded; nothing was sent.
            LinkClosed: the link is closed.
        """
        self.send_packed(codec.encode(message, limit=self._max_frame))

    def send_packed(self, message: bytes) -> None:
        """Send an encoded message without ever blocking.

        A message that was taken may still be lost when the peer ends; `on_close` tells.

        Parameters:
            message: what `dsh_actors.codec.encode` returned.

        Raises:
            LinkClosed: the link is closed, or it was closed now because the outbox is full.
        """
        with self._lock:
            self._enqueue(message)
            if self._writing:
                return
            if self._is_hurrying() and self._writer is not None:
                if not self._wanted:
                    self._wanted = True
                    self._changed.notify_all()
                return
            self._writing = True
        self._write()

    def queue_packed(self, message: bytes) -> None:
        """Queue an encoded message in order, for the next `flush` or send to take along.

        Parameters:
            message: what `dsh_actors.codec.encode` returned.

        Raises:
            LinkClosed: as `send_packed` does.
        """
        with self._lock:
            self._enqueue(message)

    def flush(self) -> None:
        """Send what is queued without ever blocking; on a closed link there is nothing.

        For a caller in a hurry, as in `send_packed`, the writer thread does it.
        """
        if not self._outbox:
            return
        with self._lock:
            if self._writing or not self._outbox:
                return
            if self._is_hurrying() and self._writer is not None:
                if not self._wanted:
                    self._wanted = True
                    self._changed.notify_all()
                return
            self._writing = True
        self._write()

    def _enqueue(self, message: bytes) -> None:
        if self._refusing:
            raise self._closed_error()
        queued = self._outbox_bytes + len(message)
        if queued > self._max_outbox and self._outbox:
            self._end_locked(
                LinkStalled(
                    f"link {self.name}: the peer does not read, {self._outbox_bytes:,} bytes "
                    f"wait for it and {self._max_outbox:,} may"
                )
            )
            raise self._closed_error()
        self._outbox.append(message)
        self._outbox_bytes = queued

    def _is_hurrying(self) -> bool:
        """Whether to leave the outbox for later, because more is likely to follow at once."""
        if monotonic() - self._last_write > _HURRY_INTERVAL and len(self._outbox) == 1:
            self._streak = 0
            return False
        self._streak += 1
        if self._streak <= _HURRY_STREAK:
            return False
        return len(self._outbox) < _HURRY_MESSAGES and self._outbox_bytes < _HURRY_BYTES

    def _write(self) -> None:
        """Write what is queued, as the writer, as far as the socket takes it."""
        while True:
            with self._lock:
                if not self._outbox or self._ended:
                    self._stop_writing()
                    start_writer = self._streak > _HURRY_STREAK and self._writer is None
                    break
                batch = self._take_batch()
            frame = encode_batch(batch)
            try:
                sent = self._sock.send(frame, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._write_failed(error)
                return
            if sent < len(frame):
                with self._lock:
                    if self._ended:
                        self._stop_writing()
                        return
                    self._rest = memoryview(frame)[sent:]
                    self._changed.notify_all()
                    start_writer = self._writer is None
                break
        if start_writer:
            self._start_writer()

    def _take_batch(self) -> deque[bytes]:
        if self._outbox_bytes <= _FRAME_TARGET_BYTES:
            batch, self._outbox, self._outbox_bytes = self._outbox, deque(), 0
            return batch
        batch, size = deque(), 0
        while self._outbox and (not batch or size + len(self._outbox[0]) <= _FRAME_TARGET_BYTES):
            message = self._outbox.popleft()
            size += len(message)
            batch.append(message)
        self._outbox_bytes -= size
        return batch

    def _stop_writing(self) -> None:
        self._writing = False
        self._last_write = monotonic()
        if self._refusing:
            self._changed.notify_all()  # `close` may wait for the outbox
            self._close_if_unused()

    def _write_failed(self, error: OSError) -> None:
        # The peer is gone. What it had sent before is still to be read, so the reader goes on to
        # the end of the stream; what was queued for the peer is lost, as if sent a moment earlier.
        gone = isinstance(error, BrokenPipeError | ConnectionResetError)
        self._end(None if gone else error)
        with self._lock:
            self._rest = None
            self._stop_writing()

    # -- The writer thread --------------------------------------------------------------------

    def _start_writer(self) -> None:
        thread = threading.Thread(target=self._run_writer, name=f"{self.name}-writer", daemon=True)
        with self._lock:
            if self._writer is not None or self._ended:
                if self._rest is not None and self._ended:
                    self._rest = None
                    self._stop_writing()
                return
            self._writer = thread
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is going down
            with self._lock:
                self._writer = None
                had_rest, self._rest = self._rest is not None, None
            if had_rest:
                self._end(error)
                with self._lock:
                    self._stop_writing()

    def _run_writer(self) -> None:
        while True:
            with self._lock:
                while not (self._rest is not None or self._wanted or self._ended):
                    self._changed.wait()
                self._wanted = False
                if self._rest is None:
                    if self._ended:
                        return
                    if self._writing or not self._outbox:
                        continue
                    self._writing = True
            if self._rest is None or self._write_rest():
                self._write()

    def _write_rest(self) -> bool:
        """Write the rest of a frame, waiting for the peer; return whether all was written."""
        import select

        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        rest = self._rest
        while rest:
            poll.poll()
            try:
                rest = rest[self._sock.send(rest, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue
            except OSError as error:
                self._write_failed(error)
                return False
        with self._lock:
            self._rest = None
        return True

    # -- Ending -------------------------------------------------------------------------------

    def close(self, *, flush_timeout: float = 1.0, reason: BaseException | None = None) -> bool:
        """Close the link: refuse to send, write what is queued, then shut down. Idempotent.

        The reader still delivers what has arrived, then calls `on_close`; see `join`.

        Parameters:
            flush_timeout: how long to wait for the peer to take what is queued, in seconds.
            reason: what `on_close` is told.

        Returns:
            Whether everything that was queued could be written.
        """
        with self._lock:
            self._refusing = True
            self._reading = self._reading and self._started
        self.flush()
        with self._lock:
            flushed = self._changed.wait_for(
                lambda: self._ended or not (self._outbox or self._writing), flush_timeout
            )
            flushed = flushed and not (self._outbox or self._writing)
            self._end_locked(reason)
        return flushed

    def _end(self, reason: BaseException | None) -> None:
        with self._lock:
            self._end_locked(reason)

    def _end_locked(self, reason: BaseException | None) -> None:
        if self._reason is None:
            self._reason = reason
        if self._ended:
            return
        self._ended = self._refusing = True
        self._outbox.clear()
        self._outbox_bytes = 0
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the reader and a waiting writer
        except OSError as error:
            import errno

            if error.errno != errno.ENOTCONN:  # the peer was faster
                raise
        self._changed.notify_all()
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._ended and not self._reading and not self._writing:
            self._sock.close()
            _open_links.discard(self)

    def _closed_error(self) -> LinkClosed:
        reason = f": {self._reason}" if self._reason is not None else ""
        return LinkClosed(f"link {self.name} is closed{reason}")


_open_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _drop_inherited_links() -> None:
    """Close the copies that a forked child got, or the peers would not see the parent's end."""
    for link in list(_open_links):
        link._lock = threading.Lock()  # the old one may be held by a thread that is not here
        link._changed = threading.Condition(link._lock)
        link._refusing = link._ended = True
        link._sock.close()
    _open_links.clear()


os.register_at_fork(after_in_child=_drop_inherited_links)
