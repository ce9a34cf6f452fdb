"""Behaviours of scripts in workers, with and without a ``__main__`` guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import scripts

if TYPE_CHECKING:
    from pathlib import Path


def test_behaviours_of_the_main_script_run_in_workers(tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
import os
import dsh_actors as dsh

SECRET = 42

def helper(value):
    return value + SECRET

@dsh.behaviour
def add(turn, message):
    return [helper(message), os.getpid()]

class Adder(dsh.Behaviour):
    async def on_message(self, turn, message):
        return [helper(message), os.getpid()]

if __name__ == "__main__":
    with dsh.ActorSystem(workers=1) as system:
        for behaviour in (add, Adder):
            for isolation in ("pool", "own"):
                value, pid = system.create(behaviour, isolation=isolation).agent.ask(1).result(20)
                print(value, pid != os.getpid())
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["43", "True"] * 4


def test_a_script_without_a_guard_may_import_its_behaviours(tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
import dsh_actors as dsh
from worker_behaviours import echo

with dsh.ActorSystem(workers=1) as system:
    print(system.create(echo, isolation="pool").agent.ask("hello").result(20))
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello\n"
    assert done.stderr == ""


def test_a_script_without_a_guard_gets_one_clear_error_for_its_own_behaviours(
    tmp_path: Path,
) -> None:
    """And no processes that start processes."""
    done = scripts.run(
        tmp_path,
        """
import sys
import dsh_actors as dsh

print("the script runs", file=sys.stderr)

def mine(turn, message):
    return message

with dsh.ActorSystem(workers=1) as system:
    agent = system.create(mine, isolation="pool").agent
    try:
        print(agent.ask("hello").result(20))
    except dsh.DshActorsError as error:
        print(type(error).__name__, error)
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("AgentFailed BehaviourError: ")
    assert "__main__" in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr.count("the script runs") == 2  # once here, once to find the behaviour
