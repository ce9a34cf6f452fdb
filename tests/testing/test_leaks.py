from __future__ import annotations

import _thread
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pykka
import pytest

from dsh_actors.actors import PooledActor
from dsh_actors.testing import leaks

if TYPE_CHECKING:
    from collections.abc import Iterator

SLEEPER = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def before() -> leaks.Snapshot:
    return leaks.snapshot()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) as process:
        yield process


def test_nothing_left_is_clean(before: leaks.Snapshot) -> None:
    assert leaks.leaks_since(before) == []


def test_a_running_thread_is_named_with_its_stack(before: leaks.Snapshot) -> None:
    release, started = threading.Event(), threading.Event()

    def linger() -> None:
        started.set()
        release.wait()

    thread = threading.Thread(target=linger, name="forgotten")
    thread.start()
    started.wait()
    found = leaks.leaks_since(before, timeout=0)
    release.set()
    thread.join()
    assert len(found) == 1
    assert "'forgotten'" in found[0]
    assert "linger" in found[0]
    assert leaks.leaks_since(before) == []


def test_a_thread_that_is_ending_gets_its_time(before: leaks.Snapshot) -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    threading.Timer(0.02, release.set).start()
    assert leaks.leaks_since(before) == []
    thread.join()


def test_a_raw_thread_is_found(before: leaks.Snapshot) -> None:
    release, started = _thread.allocate_lock(), threading.Event()
    release.acquire()

    def linger() -> None:
        started.set()
        release.acquire()

    _thread.start_new_thread(linger, ())
    started.wait()
    found = leaks.leaks_since(before, timeout=0)
    release.release()
    assert "without a Thread object" in found[0]
    assert leaks.leaks_since(before) == []


def test_an_adopted_thread_that_ended_is_no_leak(before: leaks.Snapshot) -> None:
    adopted = threading.Event()

    def adopt() -> None:
        threading.current_thread()  # makes a dummy Thread that stays listed
        adopted.set()

    _thread.start_new_thread(adopt, ())
    adopted.wait()
    assert leaks.leaks_since(before) == []


def test_a_registered_actor_is_named(before: leaks.Snapshot) -> None:
    class Forgotten(pykka.ThreadingActor):
        pass

    ref = Forgotten.start()
    found = leaks.leaks_since(before, timeout=0)
    ref.stop()
    assert any("Forgotten" in leak and ref.actor_urn in leak for leak in found)
    assert leaks.leaks_since(before) == []


def test_a_pooled_actor_is_named_and_the_shared_threads_are_released(
    before: leaks.Snapshot,
) -> None:
    class Pooled(PooledActor):
        pass

    ref = Pooled.start()
    ref.tell("x")
    found = leaks.leaks_since(before, timeout=0)
    assert sum(f"Pooled ({ref.actor_urn})" in leak for leak in found) == 1
    ref.stop()
    assert leaks.leaks_since(before) == []
    again = Pooled.start()  # on a new default dispatcher
    again.stop()


def test_a_child_process_is_named(before: leaks.Snapshot, sleeper: subprocess.Popen[bytes]) -> None:
    found = leaks.leaks_since(before, timeout=0)
    assert any(f"process {sleeper.pid}:" in leak and "stdin.read" in leak for leak in found)
    sleeper.communicate()
    assert leaks.leaks_since(before) == []


def test_a_zombie_is_told_as_such(before: leaks.Snapshot, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped
    found = leaks.leaks_since(before, timeout=0)
    assert any(f"process {sleeper.pid}, ended but not waited for" in leak for leak in found)


def test_an_orphan_in_a_session_of_its_own_is_found(before: leaks.Snapshot) -> None:
    held, other = socket.socketpair()
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'input()'], stdin=0,"
        " stdout=subprocess.DEVNULL, start_new_session=True)\n"
        "print(child.pid)"
    )
    with held:
        with other:
            middle = subprocess.run(
                [sys.executable, "-c", script], stdin=other, stdout=subprocess.PIPE, check=True
            )
        found = leaks.leaks_since(before, timeout=0)
        held.sendall(b"\n")
    assert any(f"process {int(middle.stdout)}:" in leak for leak in found)
    assert leaks.leaks_since(before) == []


def test_an_open_descriptor_is_named(before: leaks.Snapshot, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "left-open")
    with open(path, "w"):
        found = leaks.leaks_since(before, timeout=0)
    assert any("file descriptor" in leak and "left-open" in leak for leak in found)
    assert leaks.leaks_since(before) == []


def test_an_open_event_loop_is_named(before: leaks.Snapshot) -> None:
    import asyncio

    loop = asyncio.new_event_loop()
    found = leaks.leaks_since(before, timeout=0)
    loop.close()
    assert any("event loop" in leak for leak in found)
    assert leaks.leaks_since(before) == []


def test_a_release_hook_runs_before_the_comparison(
    before: leaks.Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks, "_release_hooks", [])
    file = open(os.devnull)  # noqa: SIM115 - closed by the hook
    leaks.add_release_hook(file.close)
    leaks.add_release_hook(file.close)
    assert leaks._release_hooks == [file.close]
    assert leaks.leaks_since(before) == []
    assert file.closed


def test_a_clean_check_is_cheap() -> None:
    start = time.process_time()
    for _ in range(20):
        assert leaks.leaks_since(leaks.snapshot()) == []
    assert (time.process_time() - start) / 20 < 0.02
