"""Behaviours that use their scope or look at their initiator. Workers import them by name."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh

if TYPE_CHECKING:
    from collections.abc import Callable


def note(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


def registers(turn: dsh.Turn, path: str) -> list[str]:
    """Register an effect that leaves a line in a file when it is released."""

    def setup() -> Callable[[], None]:
        note(path, "done")
        return lambda: note(path, "undone")

    turn.scope.effect(setup)
    turn.scope.tool("search", len)
    return sorted(turn.scope.tools)


async def registers_async(turn: dsh.Turn, path: str) -> list[str]:
    return registers(turn, path)


class Registers(dsh.Behaviour):
    """The same with a stop hook, which can still use the scope."""

    def on_message(self, turn: dsh.Turn, path: str) -> list[str]:
        self.path = path
        return registers(turn, path)

    def on_stop(self, turn: dsh.Turn) -> None:
        note(self.path, f"stopped with {sorted(turn.scope.tools)}")
        turn.scope.effect(lambda: None)


def registers_what_breaks(turn: dsh.Turn, message: Any) -> None:
    turn.scope.effect(lambda: broken)
    turn.scope.plugin(lambda below: below.effect(lambda: broken))


def broken() -> None:
    raise ValueError("stuck")


class BreaksTwice(dsh.Behaviour):
    def on_message(self, turn: dsh.Turn, message: Any) -> None:
        turn.scope.effect(lambda: broken)

    def on_stop(self, turn: dsh.Turn) -> None:
        raise RuntimeError("no end today")


class FailsToStart(dsh.Behaviour):
    def __init__(self, path: str) -> None:
        self.path = path

    def on_start(self, turn: dsh.Turn) -> None:
        registers(turn, self.path)
        raise RuntimeError("no start today")

    def on_message(self, turn: dsh.Turn, message: Any) -> None: ...


def never_released(turn: dsh.Turn, message: Any) -> None:
    turn.scope.effect(lambda: threading.Event().wait)


def who(turn: dsh.Turn, message: Any) -> list[str | None]:
    """On whose behalf it runs: here, in a helper, in a cleared boundary, and back."""
    return [_id(), _helper(), dsh.without_initiator(_id), _id()]


async def who_async(turn: dsh.Turn, message: Any) -> list[str | None]:
    before = _id()
    await asyncio.sleep(0)
    helper = await asyncio.create_task(_async_helper())
    return [before, helper, dsh.without_initiator(_id), _id()]


class Who(dsh.Behaviour):
    def on_start(self, turn: dsh.Turn) -> None:
        self.seen = [_id()]

    def on_message(self, turn: dsh.Turn, message: Any) -> list[str | None]:
        return [*self.seen, _helper(), dsh.without_initiator(_id), _id()]


def _id() -> str | None:
    agent = dsh.current_agent()
    return None if agent is None else agent.id


def _helper() -> str | None:
    return _id()


async def _async_helper() -> str | None:
    await asyncio.sleep(0)
    return _id()
