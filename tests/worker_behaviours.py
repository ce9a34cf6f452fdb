"""Behaviours that tests run in worker processes. Workers import this module by its name."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dsh_actors as dsh


def echo(turn: dsh.Turn, message: Any) -> Any:
    return message


def pid(turn: dsh.Turn, message: Any) -> int:
    return os.getpid()


def fail(turn: dsh.Turn, message: Any) -> None:
    raise ValueError(message)


def wait(turn: dsh.Turn, message: Any) -> None:
    """Tell that it has begun, then wait for the cancel."""
    turn.progress(note="waits")
    turn.sleep(3600)


async def wait_async(turn: dsh.Turn, message: Any) -> None:
    turn.progress(note="waits")
    await turn.sleep(3600)


def spin(turn: dsh.Turn, message: Any) -> None:
    """Ignore every signal."""
    turn.progress(note="spins")
    while True:
        pass


def die(turn: dsh.Turn, message: Any) -> None:
    """SIGKILL the own process."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(turn: dsh.Turn, message: Any) -> str:
    """SIGKILL the own process, unless the file exists already."""
    mark = Path(message)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def die_on(turn: dsh.Turn, message: Any) -> Any:
    """Die on the message "die", wait on "wait", else echo."""
    if message == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if message == "wait":
        turn.progress(note="waits")
        turn.sleep(3600)
    return message


def uncarried(turn: dsh.Turn, message: Any) -> Any:
    return {"jobs": [1, {"callback": object()}]}


def ask_itself(turn: dsh.Turn, message: Any) -> Any:
    return turn.child("below").ask("anything").result(10)


def parent_of_waiting(turn: dsh.Turn, isolations: list[str]) -> list[Any]:
    """Run a waiting child in each of these isolations."""
    jobs = [turn.run(wait, None, isolation=isolation) for isolation in isolations]
    return [job.result()[0] for job in jobs]


def nested(turn: dsh.Turn, message: dict[str, Any]) -> int:
    """Run a child that runs a child ..., to a depth, then wait at the bottom."""
    levels: list[str] = message["levels"]
    if not levels:
        turn.progress(note="waits")
        turn.sleep(3600)
        return 0
    job = turn.run(nested, {"levels": levels[1:]}, id=f"{turn.agent_id}.", isolation=levels[0])
    return 1 + int(job.result().unwrap())


def deep(turn: dsh.Turn, depth: int) -> int:
    """The depth of a chain of waiting one-shots."""
    if depth == 0:
        return 0
    return 1 + int(turn.run(deep, depth - 1).result(60).unwrap())


def start_processes(turn: dsh.Turn, folder: str) -> None:
    """Start a child, one with a session of its own, and an orphan by a double fork; then wait."""
    sleeper = "import time; time.sleep(3600)"
    plain = subprocess.Popen([sys.executable, "-c", sleeper])
    apart = subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
    report = Path(folder) / "orphan"
    orphan = (
        "import os, sys, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(3600)\n"
    )
    subprocess.run([sys.executable, "-c", orphan, str(report)], check=True)
    while not report.exists():
        time.sleep(0.005)
    pids = [os.getpid(), plain.pid, apart.pid, int(report.read_text())]
    turn.progress(note=" ".join(map(str, pids)))
    turn.sleep(3600)


class Counter(dsh.Behaviour):
    """Keeps a count; plain hooks."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def on_start(self, turn: dsh.Turn) -> None:
        self.count += 100
        turn.progress(note="started")

    def on_message(self, turn: dsh.Turn, message: int) -> int:
        self.count += message
        return self.count

    def on_stop(self, turn: dsh.Turn) -> None:
        turn.progress(note=f"stopped at {self.count}")


class AsyncCounter(dsh.Behaviour):
    """The same with async hooks."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    async def on_start(self, turn: dsh.Turn) -> None:
        await asyncio.sleep(0)
        self.count += 100
        turn.progress(note="started")

    async def on_message(self, turn: dsh.Turn, message: int) -> int:
        await asyncio.sleep(0)
        self.count += message
        return self.count

    async def on_stop(self, turn: dsh.Turn) -> None:
        await asyncio.sleep(0)
        turn.progress(note=f"stopped at {self.count}")


class OnlyMessages(dsh.Behaviour):
    """Async, without hooks of its own."""

    async def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message


class BadStart(dsh.Behaviour):
    def on_start(self, turn: dsh.Turn) -> None:
        raise RuntimeError("no start today")

    def on_message(self, turn: dsh.Turn, message: Any) -> None:
        raise AssertionError("never called")


class BadStop(dsh.Behaviour):
    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message

    def on_stop(self, turn: dsh.Turn) -> None:
        raise RuntimeError("no end today")


class DiesInStop(dsh.Behaviour):
    """Its work is done when its process dies."""

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message

    def on_stop(self, turn: dsh.Turn) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class WaitsInStart(dsh.Behaviour):
    """Its start takes until it is cancelled."""

    def on_start(self, turn: dsh.Turn) -> None:
        turn.progress(note="starting")
        turn.sleep(3600)

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message


class WaitsInAsyncStart(dsh.Behaviour):
    async def on_start(self, turn: dsh.Turn) -> None:
        turn.progress(note="starting")
        await turn.sleep(3600)

    async def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message


def exits(turn: dsh.Turn, status: int) -> str:
    if status:
        sys.exit(status)
    return "still there"


async def exits_async(turn: dsh.Turn, status: int) -> str:
    if status:
        sys.exit(status)
    return "still there"


def remembers(turn: dsh.Turn, message: Any) -> None:
    turn.remember("noted", {"what": message})


async def leaves_a_task(turn: dsh.Turn, message: Any) -> None:
    """Leave a task behind that tries to start a child when the turn is over."""

    async def late() -> None:
        while turn._actor.running is turn:
            await asyncio.sleep(0)
        try:
            turn.run(echo, 1)
        except dsh.DshActorsError as error:
            turn.progress(note=f"{type(error).__name__}: {error}")

    _tasks.append(asyncio.create_task(late()))


_tasks: list[asyncio.Task[None]] = []


def runs_with_bad_id(turn: dsh.Turn, message: Any) -> list[Any]:
    bad: Any = ["x"]
    outcome = turn.run(echo, 1, id=bad).result()
    return [outcome.kind, outcome.error_type, outcome.error]


def wait_or_echo(turn: dsh.Turn, message: Any) -> Any:
    if message == "wait":
        turn.progress(note="waits")
        turn.sleep(3600)
    return message


def remembers_then_waits(turn: dsh.Turn, message: Any) -> None:
    turn.remember("noted", {"what": message})
    turn.progress(note="waits")
    turn.sleep(3600)


class collects(dsh.Behaviour):  # noqa: N801 - used like a function
    """Keeps all messages; answers "all" with them."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def on_message(self, turn: dsh.Turn, message: Any) -> list[Any] | None:
        if message == "all":
            return self.got
        self.got.append(message)
        return None


def uses_everything(turn: dsh.Turn, isolation: str) -> dict[str, Any]:
    """Use all that a turn offers, and say what came of it."""

    def error_of(call: Any) -> str:
        try:
            call()
        except (dsh.DshActorsError, ValueError) as error:
            return type(error).__name__
        return "none"

    outcome = turn.run(echo, 1, isolation=isolation).result()
    child = turn.spawn(wait_or_echo, "wait", id="spawned", isolation="inline")
    found: dict[str, Any] = {
        "run": [outcome.kind, outcome.value],
        "spawned": child.status,
        "child": turn.child("spawned").id,
        "missing": error_of(lambda: turn.child("nobody")),
        "refused": error_of(lambda: child.send({"a": object()})),
    }
    asking = turn.run(asks_its_parent, None, id="asking")
    found["cycle"] = asking.result().value
    one_shot = turn.run(echo, 1, id="short")
    one_shot.result()
    found["gone"] = error_of(lambda: turn.child("short"))
    return found


def asks_its_parent(turn: dsh.Turn, message: Any) -> str:
    parent = turn._actor.host.port  # the system of the parent is this process's, if it is inline
    supervisor = getattr(parent, "_supervisor", None)
    if supervisor is None:
        return "AskCycle"
    node = turn._actor.key.parent
    try:
        supervisor.agent(node).ask("hello")
    except dsh.AskCycle as error:
        return type(error).__name__
    return "none"


def asks_its_child(turn: dsh.Turn, count: int) -> list[Any]:
    """Spawn a child and ask it one thing after the other, whatever it does in between."""
    child = turn.spawn(echo, "first", isolation="pool" if count % 2 else "inline")
    return [child.ask(number).result() for number in range(count)]
