"""What the agents of these tests do."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import dsh_actors as dsh


def say(text: str) -> None:
    """Tell the test, on stderr and at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@dsh.behaviour
def echo(turn: dsh.Turn, message: Any) -> Any:
    """Print, by all the ways there are, and give the message back."""
    print("printed")
    os.write(1, b"written\n")
    os.system("echo from a program")
    return message


@dsh.behaviour
def reply(turn: dsh.Turn, message: Any) -> Any:
    return message


@dsh.behaviour
def boom(turn: dsh.Turn, message: Any) -> Any:
    raise ValueError("bad \x1b[31m news")


@dsh.behaviour
def die(turn: dsh.Turn, message: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@dsh.behaviour
def wait(turn: dsh.Turn, message: Any) -> None:
    """Work until cancelled."""
    say(f"working {os.getpid()}")
    while True:
        turn.sleep(0.05)


@dsh.behaviour
def spin(turn: dsh.Turn, message: Any) -> None:
    """Ignore the cancel."""
    say(f"working {os.getpid()}")
    while True:
        pass


@dsh.behaviour
def hostile(turn: dsh.Turn, message: Any) -> str:
    """Try to act on the terminal, by every way to it."""
    print("\x1b]0;print\x07")
    turn.progress(done=1, total=2, note="\x1b]0;note\x07")
    turn.sleep(1.0)
    return "\x1b]0;result\x07"


@dsh.behaviour
def steps(turn: dsh.Turn, message: Any) -> str:
    """Report progress for long enough to be seen."""
    for done in range(message):
        turn.progress(done=done, total=message, note=f"step {done}")
        turn.sleep(0.05)
    return "all steps"


@dsh.behaviour
def delegate(turn: dsh.Turn, message: str) -> str:
    """Leave work behind with a child, and do not wait for it."""
    turn.spawn(slow_write, message)
    return "delegated"


@dsh.behaviour
def slow_write(turn: dsh.Turn, message: str) -> None:
    turn.sleep(0.3)
    Path(message).write_text("done", encoding="utf-8")


class Slow(dsh.Behaviour):
    """An agent that takes its time before its first message."""

    def __init__(self, told: str) -> None:
        Path(told).write_text("starting", encoding="utf-8")
        time.sleep(60)

    def on_message(self, turn: dsh.Turn, message: Any) -> None: ...


class Gate(dsh.Behaviour):
    """An agent that starts when the file that it makes is taken away."""

    def __init__(self, told: str) -> None:
        Path(told).write_text("starting", encoding="utf-8")
        while Path(told).exists():
            time.sleep(0.01)

    def on_message(self, turn: dsh.Turn, message: Any) -> None:
        while True:
            turn.sleep(0.05)


class Unstartable(dsh.Behaviour):
    """An agent that fails before its first message."""

    def __init__(self) -> None:
        raise RuntimeError("no way")

    def on_message(self, turn: dsh.Turn, message: Any) -> None: ...


not_callable = 3
