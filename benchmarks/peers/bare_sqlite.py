"""What sqlite3 alone takes for the same inserts: the floor of a store that is made of it."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from typing import TYPE_CHECKING

import msgpack

from benchmarks import meter
from benchmarks.ours.storage import append_all, make_header
from dsh_actors.sessions import SqliteStore
from dsh_actors.sessions.dbfile import open_for_writing

if TYPE_CHECKING:
    from dsh_actors.sessions.ops import Ops


class _Counting(SqliteStore):
    """Our store, which notes how many events it wrote in each transaction."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.sizes: list[int] = []

    def _commit(self, group: Ops) -> None:
        super()._commit(group)
        self.sizes.append(sum(isinstance(op, tuple) for op in group))


def append(n: int) -> dict[str, float]:
    """Rows inserted per second into our table of events, in groups of the sizes that we make.

    The same events, encoded in the same loop, in WAL mode with the same ``synchronous=FULL``, by
    ``executemany`` in one thread. The sizes are those of a run of our store just before.
    """
    with tempfile.TemporaryDirectory() as folder:
        with _Counting(os.path.join(folder, "ours.db")) as store:
            store.create(make_header(0))
            append_all(store, n)
            sizes = [size for size in store.sizes if size]
        path = os.path.join(folder, "bare.db")
        open_for_writing(path).close()  # our tables
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA wal_autocheckpoint = 4000")
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"

        def work() -> None:
            start = 0
            for size in sizes:
                rows = [
                    (1, seq, time.time(), "prompt/accepted", msgpack.packb(seq), 0)
                    for seq in range(start, start + size)
                ]
                database.execute("BEGIN IMMEDIATE")
                database.executemany(
                    "INSERT INTO events (session, seq, time, type, data, checksum)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    rows,
                )
                database.execute("COMMIT")
                start += size

        taken = meter.seconds(work)
        database.close()
    return {"rate": n / taken}
