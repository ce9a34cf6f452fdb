"""The raw limits: what the machine and the interpreter do without any actor."""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from benchmarks import meter

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


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


def _hold(pipe: Connection) -> None:
    pipe.send_bytes(b"!")
    signal.pause()


def _spawned_eof() -> float:
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_hold, args=(writer,))
    process.start()
    writer.close()
    reader.recv_bytes()
    start = time.perf_counter()
    process.kill()
    with contextlib.suppress(EOFError):
        reader.recv_bytes()
    taken = time.perf_counter() - start
    process.join()
    reader.close()
    return taken


def _smallest_eof() -> float:
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
    """Milliseconds from SIGKILL of a process to the end of file on its pipe.

    For a bare process started by multiprocessing's ``spawn``, and for the smallest interpreter.
    """
    return {
        "ms": statistics.median(_spawned_eof() for _ in range(n)) * 1e3,
        "smallest_ms": statistics.median(_smallest_eof() for _ in range(n)) * 1e3,
    }
