"""A bare link between two processes, in two forms.

The *link* is the plainest that could serve as one: messages are sent one by one and gathered
into batches, each with its own length in front, and each goes to a handler at the other end.
The *stream* knows all messages beforehand, packs them in bulk and hands none to anybody: the
limit of msgpack and the socket.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import msgpack

from benchmarks import meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 256
CHUNK = 1 << 18
LENGTH = struct.Struct(">I")


class BareLink:
    """Length-framed msgpack over a socket, many frames to a system call."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._pack = msgpack.Packer().pack
        self._out: list[bytes] = []

    def send(self, message: list[Any]) -> None:
        data = self._pack(message)
        self._out.append(LENGTH.pack(len(data)) + data)
        if len(self._out) >= BATCH:
            self.flush()

    def flush(self) -> None:
        if self._out:
            self.sock.sendall(b"".join(self._out))
            self._out.clear()

    def receive(self, handle: Callable[[list[Any]], None]) -> bool:
        """Handle what the next read of the socket brings; False at the end."""
        kept = b""
        while True:
            data = self.sock.recv(CHUNK)
            if not data:
                return False
            data = kept + data
            end, start = len(data), 0
            while start + 4 <= end:
                stop = start + 4 + LENGTH.unpack_from(data, start)[0]
                if stop > end:
                    break
                handle(msgpack.unpackb(data[start + 4 : stop]))
                start = stop
            kept = data[start:]
            if not kept:
                return True


def _message(number: int) -> list[Any]:
    """A message of the size that an agent's envelope has."""
    return ["tell", "agent-1", number, 1, None]


def _far_link(sock: socket.socket) -> None:
    """Answer each ask, nothing else."""
    link = BareLink(sock)

    def handle(message: list[Any]) -> None:
        if message[0] == "ask":
            link.send(["answer", message[2], message[3]])

    while link.receive(handle):
        link.flush()


def _far_stream(sock: socket.socket) -> None:
    """Answer each ask, a received chunk at a time."""
    unpacker, pack = msgpack.Unpacker(), msgpack.Packer().pack
    while data := sock.recv(CHUNK):
        unpacker.feed(data)
        answers = [pack(["answer", m[2], m[3]]) for m in unpacker if m[0] == "ask"]
        if answers:
            sock.sendall(b"".join(answers))


def _host(sock: socket.socket, far: Callable[[socket.socket], None]) -> None:
    sock.sendall(b"!")
    far(sock)


@contextlib.contextmanager
def _connected(far: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("spawn").Process(target=_host, args=(theirs, far))
    process.start()
    theirs.close()
    with ours:
        assert ours.recv(1) == b"!"
        yield ours
    process.join()


def link_tell(n: int) -> dict[str, float]:
    """Messages per second to another process, until the last is handled."""
    with _connected(_far_link) as sock:
        link = BareLink(sock)

        def work() -> None:
            for number in range(n):
                link.send(_message(number))
            link.send(["ask", "agent-1", n, 1, None])
            link.flush()
            link.receive(lambda message: None)

        return {"rate": n / meter.seconds(work)}


def link_pipelined(n: int) -> dict[str, float]:
    """Requests answered by another process per second, all outstanding at once."""
    with _connected(_far_link) as sock:
        link, answered = BareLink(sock), 0

        def write() -> None:
            for number in range(n):
                link.send(["ask", "agent-1", number, 1, None])
            link.flush()

        def handle(message: list[Any]) -> None:
            nonlocal answered
            answered += 1

        def work() -> None:
            writer = threading.Thread(target=write)
            writer.start()
            while answered < n:
                link.receive(handle)
            writer.join()

        return {"rate": n / meter.seconds(work)}


def link_ask(n: int) -> dict[str, float]:
    """Microseconds for one request to another process and its answer."""
    with _connected(_far_link) as sock:
        link = BareLink(sock)

        def work() -> None:
            for number in range(n):
                link.send(["ask", "agent-1", number, 1, None])
                link.flush()
                link.receive(lambda message: None)

        return {"us": meter.seconds(work) / n * 1e6}


def _bulk(kind: str, n: int) -> Iterator[bytes]:
    pack = msgpack.Packer().pack
    for start in range(0, n, BATCH):
        numbers = range(start, min(n, start + BATCH))
        yield b"".join([pack([kind, "agent-1", number, 1, None]) for number in numbers])


def stream_tell(n: int) -> dict[str, float]:
    """Like ``link_tell``, in bulk and without a handler."""
    with _connected(_far_stream) as sock:

        def work() -> None:
            for batch in _bulk("tell", n):
                sock.sendall(batch)
            sock.sendall(msgpack.packb(["ask", "agent-1", n, 1, None]))
            sock.recv(CHUNK)

        return {"rate": n / meter.seconds(work)}


def stream_pipelined(n: int) -> dict[str, float]:
    """Like ``link_pipelined``, in bulk and without a handler."""
    with _connected(_far_stream) as sock:

        def write() -> None:
            for batch in _bulk("ask", n):
                sock.sendall(batch)

        def work() -> None:
            writer = threading.Thread(target=write)
            writer.start()
            unpacker, answered = msgpack.Unpacker(), 0
            while answered < n:
                unpacker.feed(sock.recv(CHUNK))
                answered += sum(1 for _ in unpacker)
            writer.join()

        return {"rate": n / meter.seconds(work)}
