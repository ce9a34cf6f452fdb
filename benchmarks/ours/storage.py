"""The session store."""

from __future__ import annotations

import os
import tempfile
import threading
import time

from benchmarks import meter
from dsh_actors import codec
from dsh_actors.sessions import SessionHeader, SqliteStore

TIMEOUT = 120.0


def append(n: int) -> dict[str, float]:
    """Events appended per second, until the last is committed and confirmed."""
    committed = threading.Event()
    header = SessionHeader(
        id="session-1",
        agent_id="agent-1",
        system_id="system-1",
        root="session-1",
        parent=None,
        depth=0,
        behaviour="benchmarks.behaviours:echo",
        created=time.time(),
        policy={},
    )
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(os.path.join(folder, "sessions.db"))
        store.create(header)

        def work() -> None:
            for number in range(n - 1):
                store.append("session-1", "prompt/accepted", codec.encode(number))
            store.append(
                "session-1",
                "prompt/accepted",
                codec.encode(n - 1),
                on_commit=lambda error: committed.set(),
            )
            committed.wait(TIMEOUT)

        taken = meter.seconds(work)
        assert store.close(TIMEOUT)
    return {"rate": n / taken}
