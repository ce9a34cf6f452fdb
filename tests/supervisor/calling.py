"""Behaviours that make calls on the record, in workers. What they did is in a file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dsh_actors as dsh
from dsh_actors.agents import calls


def did(folder: str, what: str) -> list[str]:
    """Note something where no crash can take it back; all that was noted."""
    with Path(folder, "did").open("a") as file:
        file.write(f"{what}\n")
    return Path(folder, "did").read_text().splitlines()


def die_once(folder: str) -> None:
    """SIGKILL this process, unless that was done before."""
    mark = Path(folder, "died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def pays(turn: dsh.Turn, folder: str) -> dict[str, Any]:
    """Two calls with a crash between them."""
    first = turn.call("pay", did, folder, "first")
    die_once(folder)
    return {"first": first, "second": turn.call("pay", did, folder, "second")}


async def pays_async(turn: dsh.Turn, folder: str) -> dict[str, Any]:
    first = await turn.call("pay", did, folder, "first")
    die_once(folder)
    return {"first": first, "second": await turn.call("pay", did, folder, "second")}


def _pay_and_die(folder: str) -> str:
    did(folder, "paid")
    die_once(folder)
    return "paid"


def dies_in_a_call(turn: dsh.Turn, folder: str) -> list[Any]:
    """A crash in the middle of a call."""
    try:
        turn.call("pay", _pay_and_die, folder)
    except dsh.OutcomeUnknown as error:
        (unknown,) = turn.unknown_calls
        return [error.name, error.key, error.call_args, list(unknown)[1:]]
    return ["made again"]


def dies_in_an_idempotent_call(turn: dsh.Turn, folder: str) -> Any:
    return turn.call("put", _pay_and_die, folder, idempotent=True)


def unknown(turn: dsh.Turn, folder: str | None) -> list[Any]:
    """Die in a call, or tell what is unknown."""
    if folder is not None:
        turn.call("pay", _pay_and_die, folder)
    return [list(call)[1:] for call in turn.unknown_calls]


def checkpoints(turn: dsh.Turn, folder: str) -> str:
    turn.remember("before", 1)
    turn.checkpoint()
    did(folder, "passed")
    return "passed"


async def checkpoints_async(turn: dsh.Turn, folder: str) -> str:
    turn.remember("before", 1)
    await turn.checkpoint()
    did(folder, "passed")
    return "passed"


def calls_soon(turn: dsh.Turn, folder: str) -> Any:
    """One call, by who does not wait long for the store."""
    calls.DEADLINE = 0.05
    return turn.call("pay", did, folder, "paid")


def steered(turn: dsh.Turn, message: Any) -> Any:
    """Takes on steering input, and waits in it until it is killed."""
    if message == "steer":
        turn.progress(note="took it on")
        turn.sleep(3600)
    if message == "begin":
        turn.progress(note="begun")
        while not turn._actor.inbox.steering:
            turn.sleep(0.005)
    return message


@dsh.behaviour(interrupted="retry")
def retried(turn: dsh.Turn, message: Any) -> Any:
    return message


class Retried(dsh.Behaviour):
    """As a class."""

    interrupted = "retry"

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message


def calls_and_waits(turn: dsh.Turn, message: Any) -> Any:
    """Wait for ever in a call, unless there is nothing to wait for."""

    def wait() -> None:
        turn.progress(note="waits")
        turn.sleep(3600)

    return turn.call("wait", wait) if message == "waits" else message


def parent(turn: dsh.Turn, message: Any) -> None:
    turn.spawn(Retried, 1, id="spawned", interrupted="retry")
    turn.run(calls_and_waits, 1, id="run", interrupted="retry").result()


def spends(turn: dsh.Turn, tokens: int) -> None:
    turn.spend(tokens=tokens)
