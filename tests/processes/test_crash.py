"""The supervisor of a busy tree is killed again and again; nothing that it acknowledged is lost."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import scripts

from dsh_actors.sessions import SqliteStore

if TYPE_CHECKING:
    from dsh_actors.sessions.events import Event

SCRIPT = Path(__file__).with_name("crash_system.py")
KILLS = 200
CHAINS = 2
"""How many stores are worked on side by side, each by one system at a time."""

MARK = "DSH_ACTORS_CRASH_TEST"
UNHURRIED = 0.25
"""The latest moment of a kill, in seconds after the tree is back."""


class Chain:
    """One store, and the systems that worked on it one after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.store = folder / f"chain-{seed}.db"
        self.session = "-"
        # Half of the trees have no worker, whose start takes most of a short life.
        self.far = "pool" if seed % 2 else "inline"
        self.acknowledged: Counter[tuple[str, int]] = Counter()
        self.mark = f"{os.getpid()}-{seed}"
        self._random = random.Random(seed)
        self._errors = folder / f"chain-{seed}.err"

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, str(SCRIPT), str(self.store), self.session, self.far, *more],
                stdout=subprocess.PIPE, stderr=errors,
                env={**scripts.environment(), MARK: self.mark},
            )  # fmt: skip

    def killed_run(self) -> None:
        """Run a system, and kill it some time between its first breath and far into its work."""
        system = self._start()
        assert system.stdout is not None
        try:
            if self.session == "-" or self._random.random() < 0.8:
                assert select.select([system.stdout], [], [], 60)[0], "it does not come up"
                self._note(os.read(system.stdout.fileno(), 65536))
            until = time.monotonic() + self._random.random() * UNHURRIED
            while (left := until - time.monotonic()) > 0:
                if select.select([system.stdout], [], [], left)[0]:
                    piece = os.read(system.stdout.fileno(), 65536)
                    if not piece:
                        raise AssertionError(f"it has ended by itself: {self._errors.read_text()}")
                    self._note(piece)
        finally:
            system.send_signal(signal.SIGKILL)
            self._note(system.stdout.read())
            system.stdout.close()
            system.wait()

    def last_run(self) -> None:
        """Run one that handles all that is left, and ends in order."""
        system = self._start("finish")
        try:
            said = system.communicate(timeout=120)[0]
        finally:
            system.kill()
        assert said.endswith(b"done\n"), self._errors.read_text()

    def _note(self, said: bytes) -> None:
        # Each line was written at once, and each read gets whole ones, but for the last.
        said = getattr(self, "_rest", b"") + said
        *lines, self._rest = said.split(b"\n")
        for line in lines:
            kind, session, *number = line.decode().split()
            if kind == "session":
                assert self.session in ("-", session)
                self.session = session
            else:
                self.acknowledged[session, int(number[0])] += 1

    def left_processes(self) -> list[str]:
        """The processes of this chain that still run."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
            except OSError:
                continue  # it has ended
        return found


def check_log(events: list[Event]) -> tuple[Counter[int], set[int]]:
    """Check one session; how often each message was handled, and which were not at all.

    Returns:
        By message id how often a turn completed with it; and what is still queued.
    """
    assert [event.seq for event in events] == list(range(len(events)))
    accepted: Counter[int] = Counter()
    handled: Counter[int] = Counter()
    gone: set[int] = set()
    turn = 0
    for event in events:
        data = event.data
        if event.type == "prompt/accepted":
            accepted[data["id"]] += 1
        elif event.type == "turn/start":
            assert turn == 0, f"turn {data['turn']} starts in turn {turn}"
            turn = data["turn"]
        elif event.type == "turn/end":
            assert data["turn"] == turn
            turn = 0
            if data["reason"] == "completed":
                handled.update(data["messages"])
            elif data["reason"] != "interrupted":
                raise AssertionError(f"a turn ended with {data}")
        elif event.type in ("prompt/discarded", "prompt/failed"):
            gone.add(data["id"])
    assert turn == 0
    assert all(times == 1 for times in accepted.values())
    assert set(handled) <= set(accepted)
    return handled, set(accepted) - set(handled) - gone


def crash_chain(chain: Chain, kills: int) -> None:
    for _ in range(kills):
        chain.killed_run()
    chain.last_run()


@pytest.mark.behaviour(102, 106)
def test_nothing_acknowledged_is_lost_by_200_kills(tmp_path: Path) -> None:
    chains = [Chain(tmp_path, seed) for seed in range(CHAINS)]
    failures: list[BaseException] = []

    def work(chain: Chain) -> None:
        try:
            crash_chain(chain, KILLS // CHAINS)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(chain,)) for chain in chains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]

    for chain in chains:
        assert chain.acknowledged, "nothing was ever acknowledged"
        with SqliteStore.open_readonly(chain.store) as reader:
            assert reader.check() == []
            for info in reader.list():
                log = reader.load(info.id)
                assert log.damage == ()
                handled, queued = check_log(log.events)
                assert all(times == 1 for times in handled.values()), "handled twice"
                mine = {id for session, id in chain.acknowledged if session == info.id}
                lost = mine - set(handled) - queued
                assert not lost, f"{info.agent_id}: acknowledged, and neither handled nor queued"
                if mine:
                    assert not queued, "the last run has left something"
    print({chain.far: chain.acknowledged.total() for chain in chains}, "acknowledged")
    deadline = time.monotonic() + 5
    while (left := [p for chain in chains for p in chain.left_processes()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert left == []
