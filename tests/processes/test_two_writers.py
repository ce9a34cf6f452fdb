"""Two processes on one session: there are never two writers, whatever happens to one of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

import scripts

from dsh_actors.codec import encode
from dsh_actors.sessions import SessionHeader, SqliteReader, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SESSIONS = ("s-0", "s-1")

PATIENCE = 120.0

WRITE_LOCK = "120"
"""Where in the shared memory of a write-ahead log SQLite locks for the one who writes."""

WRITER = """
import json, os, random, sys, threading
from dsh_actors.codec import encode
from dsh_actors.errors import SessionHeld
from dsh_actors.sessions import SqliteStore

SESSIONS = ("s-0", "s-1")
path, name = sys.argv[1:]
store = SqliteStore(path, holder=name, lease_ttl=0.05)
acknowledged = os.open(f"{path}.{name}.acks", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
lock = threading.Lock()
pause = threading.Event()  # never set


def say(*words):
    with lock:
        print(*words, flush=True)


def chain(session, term):
    '''Append one event after another, each once the one before is confirmed, until refused.'''
    number = 0

    def confirmed(error):
        nonlocal number
        if error is not None:
            say("refused", session, type(error).__name__, error.holder.name)
            return
        os.write(acknowledged, json.dumps([session, term, number, seq]).encode() + b"\\n")
        if number == 0:
            say("wrote", session)
        pause.wait(random.uniform(0, 0.004))  # the other one wants to get in, too
        number += 1
        send()

    def send():
        nonlocal seq
        try:
            seq = store.append(
                session, "custom/x", encode([term, number]), on_commit=confirmed
            )
        except SessionHeld as error:
            confirmed(error)

    seq = -1
    send()


for term, line in enumerate(sys.stdin):
    while True:
        try:
            store.acquire(SESSIONS)
            break
        except SessionHeld as error:
            pause.wait(0.005)  # it looks again when that one may be taken for hung
    for session in SESSIONS:
        chain(session, f"{name}/{term}")
"""


class Writer:
    """A process that writes to both sessions for as long as it may.

    Parameters:
        folder: where the store is.
        name: what it calls itself.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.jitter = threading.Event()  # never set
        self.path = folder / "s.db"
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "writer.py"), str(self.path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=scripts.environment(),
        )

    def take(self) -> None:
        """Have it take both sessions and wait until it has written to both."""
        assert self.process.stdin is not None
        self.process.stdin.write("take\n")
        self.process.stdin.flush()
        assert {self.read() for _ in SESSIONS} == {f"wrote {session}" for session in SESSIONS}

    def read(self) -> str:
        """What it says next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> bool:
        """Stop it as it stands; return whether it is in the middle of a transaction."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        # Not by trying: SQLite waits for ten seconds for one that is stopped at certain points.
        index = os.stat(f"{self.path}-shm").st_ino
        with open("/proc/locks") as file:
            locks = [line.split() for line in file]
        return any(
            kind == "WRITE" and pid == str(self.process.pid) and start == WRITE_LOCK
            for _, _, _, kind, pid, place, start, *_ in locks
            if place.endswith(f":{index}")
        )

    def go_on(self) -> None:
        """Let it run again, for some time at least."""
        self.process.send_signal(signal.SIGCONT)
        self.jitter.wait(0.002)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def writers(folder: Path) -> Iterator[list[Writer]]:
    """The writers of a test; whichever are in the list at its end are ended."""
    (folder / "writer.py").write_text(WRITER)
    with SqliteStore(folder / "s.db") as store:
        for session in SESSIONS:
            header = SessionHeader(session, "a", "sys", session, None, 0, "m:f", 1.0)
            store.create(header)
    running: list[Writer] = []
    # One that does not say what is expected would be waited for, for ever.
    limit = threading.Timer(PATIENCE, lambda: [writer.process.kill() for writer in running])
    limit.start()
    try:
        yield running
    finally:
        limit.cancel()
        limit.join()
        for writer in running:
            writer.kill()


def check(folder: Path) -> int:
    """Check what is in the store against what was acknowledged; return how many events."""
    acknowledged: dict[str, dict[int, list[object]]] = {session: {} for session in SESSIONS}
    for file in folder.glob("*.acks"):
        for line in file.read_text().splitlines():
            session, term, number, seq = json.loads(line)
            assert seq not in acknowledged[session], "two writers were given the same number"
            acknowledged[session][seq] = [term, number]
    count = 0
    with SqliteReader(folder / "s.db") as reader:
        assert reader.check() == []
        for session in SESSIONS:
            events, damage = reader.load(session)[1:]
            assert damage == ()
            assert [event.seq for event in events] == list(range(len(events)))
            # Whoever has been followed by another one has never written again ...
            terms = [term for term, _ in groupby(event.data[0] for event in events)]
            assert len(terms) == len(set(terms))
            # ... each has written its own in order, and nothing twice ...
            for _, own in groupby(events, key=lambda event: event.data[0]):
                numbers = [event.data[1] for event in own]
                assert numbers == list(range(len(numbers)))
            # ... and what was acknowledged is there, in its place.
            for seq, data in acknowledged[session].items():
                assert events[seq].data == data
            count += len(events)
    return count


def contend(folder: Path, tries: int) -> None:
    """Let two processes take the sessions from each other, one of them stopped or killed."""
    dice = random.Random(tries)
    with writers(folder) as running:
        # Who holds, who takes over, and one in reserve, since a process takes long to start.
        for name in ("w0", "w1", "w2"):
            running.append(Writer(folder, name))
        running[0].take()
        for attempt in range(tries):
            holder, other, reserve = running
            holder.jitter.wait(dice.uniform(0, 0.01))  # it is hit wherever it happens to be
            if attempt % 3 == 2:
                holder.kill()
                running[:] = [other, reserve, Writer(folder, f"w{attempt + 1}")]
                other.take()
            else:
                while holder.stop():
                    holder.go_on()  # it holds the file: that is the next test
                other.take()
                holder.go_on()
                refused = {holder.read() for _ in SESSIONS}
                assert refused == {f"refused {s} SessionHeld {other.name}" for s in SESSIONS}
                running[:] = [other, holder, reserve]
    assert check(folder) >= tries * len(SESSIONS)


def test_there_are_never_two_writers(tmp_path: Path) -> None:
    contend(tmp_path, 100)


def test_one_that_is_stopped_within_a_transaction_keeps_all_it_has(tmp_path: Path) -> None:
    with writers(tmp_path) as running:
        running.append(Writer(tmp_path, "w0"))
        running[0].take()
        while not running[0].stop():
            running[0].go_on()
        with SqliteStore(tmp_path / "s.db") as store:
            answers: list[BaseException | None] = []
            store.create(
                SessionHeader("s-2", "a", "sys", "s-2", None, 0, "m:f", 1.0), answers.append
            )
            assert not store.flush(0.3)  # nobody can write, and so nobody can take over
            running[0].go_on()
            assert store.flush(30)
            assert answers == [None]
            holder = store.holder_of("s-0")
            assert holder is not None
            assert holder.name == "w0"
            assert store.append("s-2", "custom/x", encode(None)) == 0
    assert check(tmp_path) > 0
