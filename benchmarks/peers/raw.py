"""The raw limits: what the machine and the interpreter do without any actor."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgpack

from benchmarks import meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 256
CHUNK = 1 << 18
LENGTH = struct.Struct(">I")

# --- threads


def handoff(n: int) -> dict[str, float]:
    """Microseconds for a hand-off to another thread and back, over two locks."""
    there, back = _thread.allocate_lock(), _thread.allocate_lock()
    there.acquire()
    back.acquire()

    def other() -> None:
        for _ in range(n):
            there.acquire()
            back.release()

    def work() -> None:
        for _ in range(n):
            there.release()
            back.acquire()

    thread = threading.Thread(target=other)
    thread.start()
    taken = meter.seconds(work)
    thread.join()
    return {"us": taken / n * 1e6}


# --- a bare link between two processes
#
# Two forms. The *link* is the plainest that could serve as one: messages are sent one by one
# and gathered into batches, each with its own length in front, and each goes to a handler at the
# other end. The *stream* knows all messages beforehand, packs them in bulk and hands none to
# anybody: the limit of msgpack and the socket.


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


# --- flags over plain objects


class Node:
    """What a node of a tree cannot do without."""

    __slots__ = ("children", "marked", "parent")

    def __init__(self, parent: Node | None) -> None:
        self.parent, self.marked = parent, False
        self.children: list[Node] = []
        if parent is not None:
            parent.children.append(self)


def _mark_and_dispose(root: Node) -> dict[str, float]:
    order: list[Node] = []

    def mark() -> None:
        order.append(root)
        for node in order:
            node.marked = True
            order.extend(node.children)

    def dispose() -> None:
        for node in reversed(order):
            node.children.clear()
            node.parent = None

    marked = meter.seconds(mark)
    disposed = meter.seconds(dispose)
    return {"marked_ms": marked * 1e3, "disposed_ms": (marked + disposed) * 1e3}


def flags_tree(n: int) -> dict[str, float]:
    """Mark, then take apart, a tree of depth *n* and fan-out 10."""

    def grow(parent: Node, depth: int) -> None:
        if depth:
            for _ in range(10):
                grow(Node(parent), depth - 1)

    root = Node(None)
    grow(root, n)
    return _mark_and_dispose(root)


def flags_flat(n: int) -> dict[str, float]:
    """Mark, then take apart, one node with *n* children."""
    root = Node(None)
    for _ in range(n):
        Node(root)
    return _mark_and_dispose(root)


# --- processes


def _nothing() -> None:
    pass


def starts(n: int) -> dict[str, float]:
    """Milliseconds for 5 bare interpreters and 2 bare spawned processes, one after another."""
    context = multiprocessing.get_context("spawn")

    def work() -> None:
        for _ in range(5):
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        for _ in range(2):
            process = context.Process(target=_nothing)
            process.start()
            process.join()

    return {"ms": statistics.median(meter.seconds(work) for _ in range(n)) * 1e3}


def _eof() -> float:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, signal; os.write({writer}, b'!'); signal.pause()"],
        pass_fds=[writer],
    )
    os.close(writer)
    os.read(reader, 1)
    start = time.perf_counter()
    process.kill()
    os.read(reader, 1)
    taken = time.perf_counter() - start
    process.wait()
    os.close(reader)
    return taken


def kill_eof(n: int) -> dict[str, float]:
    """Milliseconds from SIGKILL of a process to the end of file on its pipe."""
    return {"ms": statistics.median(_eof() for _ in range(n)) * 1e3}


# --- storage


def sqlite_append(n: int) -> dict[str, float]:
    """Rows appended per second by bare sqlite3 in WAL mode, 1,000 to a transaction."""
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(os.path.join(folder, "raw.db"), isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(
            "CREATE TABLE events (session TEXT, seq INTEGER, time REAL, type TEXT, data BLOB,"
            " PRIMARY KEY (session, seq)) WITHOUT ROWID"
        )

        def work() -> None:
            for start in range(0, n, 1000):
                database.execute("BEGIN")
                database.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                    [
                        ("session-1", seq, time.time(), "prompt/accepted", msgpack.packb(seq))
                        for seq in range(start, min(n, start + 1000))
                    ],
                )
                database.execute("COMMIT")

        taken = meter.seconds(work)
        database.close()
    return {"rate": n / taken}
