"""Behaviours that run commands, for tests. Workers import them too."""

from __future__ import annotations

from typing import Any

import dsh_actors as dsh


@dsh.behaviour
def run_plain(turn: dsh.Turn, message: Any) -> list[Any]:
    """Run a command in the foreground."""
    result = turn.shell.run(message["command"], cwd=message.get("cwd"), grace=0.1).result()
    return [result.exit_code, result.signal, result.text]


@dsh.behaviour
async def run_async(turn: dsh.Turn, message: Any) -> list[Any]:
    """Run two commands in the foreground, at the same time."""
    import asyncio

    first, second = await asyncio.gather(
        *(
            _awaited(turn.shell.run(message["command"], cwd=message.get("cwd"), grace=0.1))
            for _ in range(2)
        )
    )
    return [first.exit_code, second.signal, first.text]


async def _awaited(future: Any) -> Any:
    return await future


@dsh.behaviour
def leave_one(turn: dsh.Turn, message: Any) -> str:
    """Start a foreground command, and return without waiting for its end."""
    turn.shell.run(message["command"], cwd=message["cwd"], grace=0.1)
    with open(message["cwd"] + "/ready") as pipe:
        pipe.read(1)
    return "returned"


class Owner(dsh.Behaviour):
    """Starts commands in the background, reads and ends them, and keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[Any] = []

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        """Do what is asked."""
        shell, verb = turn.shell, message.pop("do")
        if verb == "start":
            return shell.start(**message).result().id
        if verb == "read":
            return shell.read(message["task"]).data.decode()
        if verb == "kill":
            return shell.kill(message["task"], 0.1).result().ended
        if verb == "wait":
            return shell.wait(message["task"]).result().text
        if verb == "tasks":
            return [[task.id, task.running] for task in shell.tasks()]
        return self.notices

    def on_shell_done(self, turn: dsh.Turn, notice: Any) -> None:
        """Keep it, and say so."""
        self.notices.append(list(notice))
        turn.progress(note="told")
