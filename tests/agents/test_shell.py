"""``turn.shell``: whose the commands are, and with what they end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import shell_behaviours as behaviours
from watching import PATIENCE, Watch

import dsh_actors as dsh
from dsh_actors.errors import AgentFailed, TurnAborted
from dsh_actors.processes.identity import ProcessId, is_running
from dsh_actors.sessions import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STAYS = "trap '' TERM; echo $$ >> pids; echo > ready; while :; do sleep 60; done"


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def system(watch: Watch) -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1, on_event=watch) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "ready")
    return tmp_path


def ready(folder: Path) -> None:
    with open(folder / "ready") as pipe:
        pipe.read(1)


def running(folder: Path) -> list[int]:
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    found = [ProcessId.of(pid) for pid in pids]
    return [each.pid for each in found if each is not None and is_running(each)]


isolations = pytest.mark.parametrize("isolation", ["inline", "pool"])


@isolations
@pytest.mark.parametrize("behaviour", [behaviours.run_plain, behaviours.run_async])
def test_a_command_in_the_foreground(
    system: dsh.ActorSystem, behaviour: Any, isolation: str
) -> None:
    agent = system.create(behaviour, isolation=isolation).agent

    code, signal, text = agent.ask({"command": "echo hello; exit 3"}).result(PATIENCE)

    assert (code, signal, text) == (3, None, "hello\n")


@isolations
@pytest.mark.parametrize("behaviour", [behaviours.run_plain, behaviours.run_async])
def test_a_cancel_ends_it_with_its_turn(
    system: dsh.ActorSystem, behaviour: Any, isolation: str, folder: Path
) -> None:
    handle = system.create(behaviour, isolation=isolation)
    reply = handle.agent.ask({"command": STAYS, "cwd": str(folder)})
    ready(folder)

    handle.agent.cancel()

    with pytest.raises(TurnAborted):
        reply.result(PATIENCE)
    receipt = handle.dispose().result(PATIENCE)  # which waits until they are gone
    assert running(folder) == []
    assert receipt.complete


@isolations
def test_a_turn_that_does_not_wait_ends_it_too(
    system: dsh.ActorSystem, isolation: str, folder: Path
) -> None:
    handle = system.create(behaviours.leave_one, isolation=isolation)
    assert handle.agent.ask({"command": STAYS, "cwd": str(folder)}).result(PATIENCE) == "returned"

    handle.dispose().result(PATIENCE)

    assert running(folder) == []


@isolations
@pytest.mark.behaviour(157)
def test_a_command_in_the_background_is_its_agents(
    system: dsh.ActorSystem, isolation: str, folder: Path
) -> None:
    mine = system.create(behaviours.Owner, id="mine", isolation=isolation).agent
    other = system.create(behaviours.Owner, id="other", isolation=isolation).agent
    task = mine.ask({"do": "start", "command": f"echo hello; {STAYS}", "cwd": str(folder)}).result(
        PATIENCE
    )
    ready(folder)
    if isolation == "inline":
        assert system._supervisor.host.shell.owner_of(task) == "mine"

    mine.cancel()  # which it survives
    assert mine.ask({"do": "tasks"}).result(PATIENCE) == [[task, True]]
    assert mine.ask({"do": "read", "task": task}).result(PATIENCE) == "hello\n"
    assert other.ask({"do": "tasks"}).result(PATIENCE) == []
    for verb in ("read", "kill", "wait"):
        with pytest.raises(AgentFailed, match=f"there is no task '{task}' of yours"):
            other.ask({"do": verb, "task": task}).result(PATIENCE)
    assert running(folder) != []

    assert mine.ask({"do": "kill", "task": task}).result(PATIENCE) == "killed"
    assert running(folder) == []


@isolations
@pytest.mark.parametrize("outlive", [False, True])
def test_it_ends_with_its_owner_unless_it_is_to_outlive_it(
    system: dsh.ActorSystem, isolation: str, folder: Path, outlive: bool
) -> None:
    handle = system.create(behaviours.Owner, isolation=isolation)
    start = {"do": "start", "command": STAYS, "cwd": str(folder), "grace": 0.1, "outlive": outlive}
    handle.agent.ask(start).result(PATIENCE)
    ready(folder)

    handle.dispose().result(PATIENCE)

    assert bool(running(folder)) == outlive
    receipt = system.shutdown().result(PATIENCE)
    assert running(folder) == []
    ended = [process.ended for process in receipt.processes if process.kind == "shell"]
    assert "killed" in ended


@isolations
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.behaviour(160)
def test_the_owner_is_told_of_the_end(
    isolation: str, stored: bool, watch: Watch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    store = MemoryStore() if stored else None
    with dsh.ActorSystem(workers=1, on_event=watch, store=store) as system:
        owner = system.create(behaviours.Owner, id="owner", isolation=isolation)
        start = {"do": "start", "command": "read x < go; echo end; exit 4", "cwd": str(tmp_path)}
        task = owner.agent.ask(dict(start)).result(PATIENCE)
        with open(tmp_path / "go", "w") as pipe:
            pipe.write("\n")
        watch.see("progress", "owner", note="told")

        assert owner.agent.ask({"do": "notices"}).result(PATIENCE) == [
            [task, start["command"], 4, None, "exited", False, "end\n"]
        ]

        # An owner that has ended before is told nothing, and nothing goes wrong.
        owner.agent.ask({**start, "outlive": True}).result(PATIENCE)
        owner.dispose().result(PATIENCE)
        with open(tmp_path / "go", "w") as pipe:
            pipe.write("\n")
        again = system.create(behaviours.Owner, id="later", isolation=isolation).agent
        assert again.ask({"do": "notices"}).result(PATIENCE) == []
    if store is not None:
        store.close()


def test_a_policy_may_forbid_commands(system: dsh.ActorSystem, tmp_path: Path) -> None:
    for policy, says in (
        (dsh.Policy(tools=["search"]), "allows no tool 'shell'"),
        (dsh.Policy(paths=[str(tmp_path / "inner")]), "allows nothing in"),
    ):
        agent = system.create(behaviours.run_plain, policy=policy).agent
        with pytest.raises(AgentFailed, match=says):
            agent.ask({"command": "true", "cwd": str(tmp_path)}).result(PATIENCE)
