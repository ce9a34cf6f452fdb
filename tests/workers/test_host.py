"""The worker's side: what it does with its agents, and how it fails to start."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Watch

import dsh_actors as dsh
from dsh_actors.workers import host

if TYPE_CHECKING:
    from pathlib import Path

IN_WORKERS = pytest.mark.parametrize("isolation", ["pool", "own"])


@IN_WORKERS
def test_agents_run_in_another_process(isolation: str) -> None:
    with dsh.ActorSystem(workers=2) as system:
        agents = [system.create(behaviours.pid, isolation=isolation).agent for _ in range(4)]
        pids = {agent.ask(None).result(PATIENCE) for agent in agents}
        assert os.getpid() not in pids
        assert len(pids) == (2 if isolation == "pool" else 4)
        assert pids == {node.pid for node in system.tree()}


@IN_WORKERS
def test_a_behaviour_is_found_by_a_reference_to_its_file(isolation: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def double(turn, message):\n    return 2 * message\n")
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(f"{file}:double", isolation=isolation).agent
        assert agent.ask(21).result(PATIENCE) == 42


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_module_at_all", "it needs 'no_such_module_at_all'"),
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def other(turn, message): ...", "has no 'mine'"),
        ("mine = 5", "is not callable"),
        ("def mine(turn): ...", "cannot be called with"),
    ],
)
def test_a_bad_module_fails_its_agent_and_no_other(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the worker, where it is imported; the worker goes on."""
    name = f"bad_module_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(f"{name}:mine", id="bad", isolation="pool")
        ended = watch.see("agent/ended", "bad")
        assert ended["outcome"] == "failed"
        assert says in ended["detail"]
        with pytest.raises(dsh.AgentGone):
            handle.agent.send(None)
        good = system.create(behaviours.echo, isolation="pool").agent
        assert good.ask(1).result(PATIENCE) == 1
    assert len(watch.of("worker/started")) == 1


@IN_WORKERS
def test_a_worker_that_cannot_start_says_why(
    isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that the worker needs cannot be imported there."""
    (tmp_path / "msgpack.py").write_text("raise ImportError('this is no msgpack')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(behaviours.echo, id="a", isolation=isolation)
        try:
            error: BaseException | None = handle.agent.ask(1).exception(PATIENCE)
            assert isinstance(error, dsh.AgentLost)
            assert "did not start: exited with status 1" in str(error)
            assert "ImportError: this is no msgpack" in str(error)
        except dsh.AgentGone:
            pass  # it was faster
        ended = watch.see("agent/ended", "a")
        assert ended["outcome"] == "lost"
        assert "ImportError: this is no msgpack" in ended["detail"]


def test_a_behaviour_that_no_worker_can_import_is_refused_at_once() -> None:
    def local(turn: dsh.Turn, message: Any) -> None: ...

    with dsh.ActorSystem(workers=1) as system:
        for behaviour in (local, lambda turn, message: None):
            with pytest.raises(dsh.BehaviourError, match="isolation='inline'"):
                system.create(behaviour, isolation="pool")
        assert system.tree() == []


@IN_WORKERS
def test_a_worker_agent_uses_the_whole_of_its_turn(isolation: str) -> None:
    """Children, asks, states, in and out of its own process."""
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviours.uses_everything, id="u", isolation=isolation).agent
        assert agent.ask(isolation).result(PATIENCE) == {
            "run": ["completed", 1],
            "spawned": "running",
            "child": "spawned",
            "missing": "AgentGone",
            "gone": "AgentGone",
            "cycle": "AskCycle",
            "refused": "MessageError",
        }


@IN_WORKERS
def test_an_async_worker_agent_runs_many_turns_side_by_side(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handles = [
            system.create(behaviours.wait_async, id=f"a{n}", isolation=isolation)
            for n in range(3 if isolation == "own" else 50)
        ]
        for handle in handles:
            handle.agent.send(None)
        watch.see("progress", count=len(handles))
        for handle in handles:
            handle.dispose()
        receipts = [handle.dispose().result(PATIENCE) for handle in handles]
        assert {end.outcome for receipt in receipts for end in receipt.agents} == {"aborted"}


def test_the_end_of_a_worker_waits_for_no_behaviour_that_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each of many system calls it waited 5 ms for the interpreter's lock: seconds in all."""
    before = sys.getswitchinterval()
    seen: list[Any] = []
    monkeypatch.setattr(
        host, "end_own_descendants", lambda marker: seen.append((marker, sys.getswitchinterval()))
    )
    monkeypatch.setattr(os, "_exit", seen.append)
    try:
        host._exit("the mark", None)
    finally:
        sys.setswitchinterval(before)
    assert seen[0][0] == "the mark"
    assert seen[0][1] < 1e-4
    assert seen[1] == 0
