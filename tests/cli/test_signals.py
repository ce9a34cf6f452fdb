"""The watch, in a process of its own: what signals do to a run that hangs somewhere."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# Says "ready", and then does what the test is about; `stopped` is the ordered stop.
_PRELUDE = """
import os, sys, threading
from dsh_actors_cli import signals

def say(word):
    os.write(1, (word + "\\n").encode())

def stopped(cause):
    say(f"stop {cause.kind} {cause.code}")

watch = signals.install()
watch.attend(stopped, lambda: say("killed"))
"""
_SLEEP = "say('ready')\nthreading.Event().wait()\n"


class Script:
    """A running script."""

    def __init__(self, body: str, stderr: int | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + body],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], 10)
        assert readable, "the script says nothing"
        return self.process.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def code(self) -> int:
        return self.process.wait(timeout=10)


@pytest.fixture
def script() -> Iterator[type[Script]]:
    started: list[Script] = []

    class Kept(Script):
        def __init__(self, body: str, stderr: int | None = None) -> None:
            super().__init__(body, stderr)
            started.append(self)

    yield Kept
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGINT, "stop signal 130"),
        (signal.SIGTERM, "stop signal 143"),
        (signal.SIGHUP, "stop hangup 129"),
    ],
)
def test_the_first_signal_starts_the_stop(
    script: type[Script], number: signal.Signals, told: str
) -> None:
    run = script(_SLEEP)
    assert run.line() == "ready"
    run.send(number)
    assert run.line() == told


@pytest.mark.parametrize(("second", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_kills_the_workers_and_exits(
    script: type[Script], second: signal.Signals, code: int
) -> None:
    run = script(_SLEEP)
    assert run.line() == "ready"
    run.send(signal.SIGINT)
    assert run.line() == "stop signal 130"
    run.send(second)
    assert run.line() == "killed"
    assert run.code() == code


@pytest.mark.parametrize(
    "hang",
    [
        "def stopped(cause):\n    say('stop'); threading.Event().wait()\n"
        "watch.attend(stopped, lambda: threading.Event().wait())\n" + _SLEEP,
        "lock = threading.Lock(); lock.acquire(); say('ready'); lock.acquire()\n",
        "say('ready')\nwhile True: pass\n",
        "say('ready')\nos.read(0, 1)\n",
    ],
    ids=["stop and kill hang", "lock", "loop", "read"],
)
def test_the_second_signal_exits_whatever_hangs(script: type[Script], hang: str) -> None:
    run = script(hang)
    assert run.line() == "ready"
    run.send(signal.SIGINT)
    assert run.line().startswith("stop")
    run.send(signal.SIGINT)
    assert run.code() == 130


@pytest.mark.skipif(sys.platform != "linux", reason="needs SA_RESETHAND by hand")
def test_native_code_that_holds_the_interpreter_is_ended_by_the_kernel(
    script: type[Script],
) -> None:
    # An endless sum: a loop in C that never lets go of the interpreter.
    run = script(
        "import itertools\n"
        "while watch._arm_at is not None: threading.Event().wait(0.01)\n"
        "say('ready')\n"
        "sum(itertools.repeat(0))\n"
    )
    assert run.line() == "ready"
    # The kernel merges signals that come faster than it can deliver them, so send until it ends.
    for _ in range(100):
        run.send(signal.SIGTERM)
        try:
            run.process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    assert run.code() == -signal.SIGTERM


def test_a_repeated_hang_up_does_not_cut_the_stop_short(script: type[Script]) -> None:
    run = script(_SLEEP)
    assert run.line() == "ready"
    run.send(signal.SIGHUP)
    assert run.line() == "stop hangup 129"
    run.send(signal.SIGHUP)
    run.send(signal.SIGTERM)
    run.send(signal.SIGINT)
    assert run.line() == "killed"
    assert run.code() in (130, 143)  # they may be delivered in either order


def test_under_nohup_a_hang_up_is_ignored(script: type[Script]) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = script(_SLEEP)
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert run.line() == "ready"
    run.send(signal.SIGHUP)
    run.send(signal.SIGINT)
    assert run.line() == "stop signal 130"


def test_a_signal_before_the_run_knows_how_to_stop_is_remembered(script: type[Script]) -> None:
    run = script(
        "watch._on_stop = None\nsay('ready')\nos.read(0, 1)\nwatch.attend(stopped, lambda: None)\n"
        "threading.Event().wait()\n"
    )
    assert run.line() == "ready"
    run.send(signal.SIGINT)
    assert run.process.stdin is not None
    run.process.stdin.write("x")
    run.process.stdin.flush()
    assert run.line() == "stop signal 130"


def test_the_time_out_starts_the_stop(script: type[Script]) -> None:
    run = script("watch.limit(0.05)\n" + _SLEEP)
    assert run.line() == "ready"
    assert run.line() == "stop timeout 124"
    # It is the user's first signal all the same, and not the second.
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    assert run.line() == "killed"
    assert run.code() in (130, 143)


def test_the_end_is_forced_when_it_takes_too_long(script: type[Script]) -> None:
    run = script("watch.force_after(0.05, 7)\nwhile True: pass\n")
    assert run.line() == "killed"
    assert run.code() == 7


def test_a_terminal_that_is_closed_starts_the_stop(script: type[Script]) -> None:
    controller, terminal = pty.openpty()
    run = script(_SLEEP, stderr=terminal)
    os.close(terminal)
    assert run.line() == "ready"
    os.close(controller)
    assert run.line() == "stop hangup 129"


def test_a_pipe_that_nobody_reads_starts_the_stop(script: type[Script]) -> None:
    reading, writing = os.pipe()
    run = script(_SLEEP, stderr=writing)
    os.close(writing)
    assert run.line() == "ready"
    os.close(reading)
    assert run.line() == "stop hangup 129"


def test_programs_started_during_a_run_can_be_interrupted(script: type[Script]) -> None:
    code = "import signal; print(signal.pthread_sigmask(0, []), signal.getsignal(15).name)"
    run = script(
        "import subprocess\n"
        "def start():\n"
        f"    subprocess.run([sys.executable, '-c', {code!r}])\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
    )
    assert run.line() == "set() SIG_DFL"
