"""Behaviours that grow a tree below them. Workers import this module by its name."""

from __future__ import annotations

from typing import Any

import dsh_actors as dsh


def grow(turn: dsh.Turn, below: dict[str, Any]) -> None:
    """Spawn children by name, each with what is to be below it, and leave them waiting."""
    for name, more in below.items():
        turn.spawn(grow_and_wait, more, id=name, isolation=turn.args.get("isolation"))


def grow_and_wait(turn: dsh.Turn, below: dict[str, Any]) -> None:
    grow(turn, below)
    turn.progress(note="waits")
    turn.sleep(3600)


def one_shot_with_a_child(turn: dsh.Turn, name: str) -> str:
    """Leave a continuable child behind, and end."""
    turn.spawn(grow_and_wait, {}, id=name)
    return name


def run_one_shot(turn: dsh.Turn, name: str) -> Any:
    """Run a one-shot that has a continuable child; its outcome."""
    return turn.run(one_shot_with_a_child, name, id="one-shot").result().kind


class Waits(dsh.Behaviour):
    def on_message(self, turn: dsh.Turn, message: Any) -> None:
        turn.progress(note="waits")
        turn.sleep(3600)


class FailsAtStop(Waits):
    def on_stop(self, turn: dsh.Turn) -> None:
        raise RuntimeError("no end today")


def spawn_each(turn: dsh.Turn, kinds: dict[str, str]) -> None:
    """Spawn children of these classes by name."""
    for name, kind in kinds.items():
        turn.spawn({"Waits": Waits, "FailsAtStop": FailsAtStop}[kind], None, id=name)
