"""The session store."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks import meter
from dsh_actors import ActorSystem, codec
from dsh_actors.sessions import SessionHeader, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 120.0

EVENTS_EACH = 100
"""Events of each session in the large store: 10,000 of them are a million."""


@contextmanager
def store_in_a_folder() -> Iterator[SqliteStore]:
    """A new store on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(os.path.join(folder, "sessions.db"))
        yield store
        assert store.close(TIMEOUT)


def make_header(number: int) -> SessionHeader:
    """The header of the session with this number."""
    name = f"session-{number}"
    return SessionHeader(
        id=name,
        agent_id=f"agent-{number}",
        system_id="system-1",
        root=name,
        parent=None,
        depth=0,
        behaviour="benchmarks.behaviours:echo",
        created=float(number),
    )


def append_all(store: SqliteStore, n: int) -> None:
    """Append n events to the first session and wait until the last of them is durable."""
    committed = threading.Event()
    append = store.append
    for number in range(n - 1):
        append("session-0", "prompt/accepted", codec.encode(number))
    append(
        "session-0",
        "prompt/accepted",
        codec.encode(n - 1),
        on_commit=lambda error: committed.set(),
    )
    assert committed.wait(TIMEOUT)


def append(n: int) -> dict[str, float]:
    """Events appended per second, until the last is on the disk and confirmed."""
    with store_in_a_folder() as store:
        store.create(make_header(0))
        taken = meter.seconds(lambda: append_all(store, n))
    return {"rate": n / taken}


def system(n: int) -> dict[str, float]:
    """Events on the disk per second that one system writes while its agents handle n messages."""
    with store_in_a_folder() as store, ActorSystem(store=store) as running:
        handles = [running.create("benchmarks.behaviours:echo", id=f"a{i}") for i in range(8)]
        agents = [handle.agent for handle in handles]
        assert store.flush(TIMEOUT)
        before = sum(info.events for info in store.list())

        def work() -> None:
            answers = [agents[number % 8].ask(number) for number in range(n)]
            for answer in answers:
                answer.result(TIMEOUT)
            assert store.flush(TIMEOUT)

        taken = meter.seconds(work)
        written = sum(info.events for info in store.list()) - before
    return {"rate": written / taken}


def large(n: int) -> dict[str, float]:
    """List n sessions of 100 events each, and open some of them, in milliseconds.

    To open one is what a resume does: open the file, take the session, and load it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sessions.db")
        data = codec.encode({"id": 1, "kind": "follow-up", "body": "x" * 100})
        with SqliteStore(path) as store:
            for number in range(n):
                name = f"session-{number}"
                store.create(make_header(number))
                for _ in range(EVENTS_EACH):
                    store.append(name, "prompt/accepted", data)
                store.set_status(name, "completed")
            assert store.flush(TIMEOUT)
        opened = []
        for number in range(0, n, n // 20):
            start = time.perf_counter()
            with SqliteStore(path) as store:
                store.acquire([f"session-{number}"])
                assert len(store.load(f"session-{number}").events) == EVENTS_EACH
                opened.append(time.perf_counter() - start)
        with SqliteStore.open_readonly(path) as reader:
            listed = meter.seconds(lambda: len(reader.list()) == n)
    return {"list_ms": listed * 1000, "open_ms": statistics.median(opened) * 1000}
