"""The verbs that talk to running systems, with systems of this process to talk to."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from cli_runs import BEHAVIOURS, assert_nothing_left, tree_file
from test_terminal import Terminal

from dsh_actors.control import ControlServer
from dsh_actors.system import ActorSystem
from dsh_actors_cli.app import call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Verbs:
    """Calls verbs, and tells what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Return stdout of a verb that exits with this code; of one that fails, stderr."""
        assert call(list(arguments)) == code, self._capsys.readouterr()
        captured = self._capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        return captured.err if code else captured.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def verbs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Verbs:
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    return Verbs(capsys)


@pytest.fixture
def start(verbs: Verbs) -> Iterator[Callable[..., ActorSystem]]:
    """Start a reachable system with these agents: behaviours of the tests, by id."""
    started: list[tuple[ActorSystem, ControlServer]] = []

    def make(name: str = "demo", **agents: str) -> ActorSystem:
        system = ActorSystem(name=name, workers=1, stop_grace=1.0)
        server = ControlServer(system)
        started.append((system, server))
        for id, behaviour in agents.items():
            system.create(f"{BEHAVIOURS}:{behaviour}", id=id)
        server.start()
        return system

    yield make
    for system, server in started:
        system.shutdown().result(10)
        server.close()


def test_without_a_system_each_verb_says_how_to_start_one(verbs: Verbs) -> None:
    assert verbs("ps") == ""
    assert verbs.json("ps") == []
    for words in (["tree"], ["attach"], ["shutdown"], ["drain"], ["send", "a", "x"], ["stop", "a"]):
        error = verbs(*words, code=2)
        assert error.startswith("dsh-actors: error: no system is running here")
        assert len(error.splitlines()) == 1


def test_ps_lists_the_systems(verbs: Verbs, start: Callable[..., ActorSystem]) -> None:
    systems = [start("one", a="reply", b="reply"), start("two\x1b[31m")]
    found = verbs.json("ps")
    assert [(each["id"], each["agents"], each["running"]) for each in found] == [
        *((systems[0].id, 2, 0), (systems[1].id, 0, 0))
    ]
    head, first, second = verbs("ps").splitlines()
    assert head.split() == ["system", "name", "pid", "up", "agents", "running"]
    assert first.split()[:3] == [systems[0].id, "one", str(os.getpid())]
    assert second.split()[1] == "two\\x1b[31m"


def test_a_system_is_found_by_the_beginning_of_its_id(
    verbs: Verbs, start: Callable[..., ActorSystem]
) -> None:
    one, two = start("one", a="reply"), start("two", a="reply")
    assert verbs("tree", "on").splitlines()[0].startswith(one.id)
    error = verbs("tree", code=2)
    assert one.id in error
    assert two.id in error
    assert f"did you mean {one.id}?" in verbs("tree", f"{one.id}x", code=2)


def test_a_tree_is_shown(verbs: Verbs, start: Callable[..., ActorSystem]) -> None:
    system = start(a="delegate", b="reply")
    told = verbs.json("tree")
    assert told["system"] == system.id
    assert [node["id"] for node in told["agents"]] == ["a", "b"]
    lines = verbs("tree").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["a", "idle"], ["b", "idle"]]


def test_a_message_is_sent_and_its_result_is_waited_for(
    verbs: Verbs, start: Callable[..., ActorSystem]
) -> None:
    system = start(a="reply")
    told = verbs.json("send", "a", "hello")
    assert (told["system"], told["agent"]) == (system.id, "a")
    assert verbs("send", "a", "hello", "--wait") == "hello\n"
    told = verbs.json("send", f"{system.id}/a", '{"x": [1, null]}', "--data", "--wait")
    assert told["result"] == {"x": [1, None]}
    assert verbs("send", "a", "hello", "--inject") == ""
    assert "leave out --wait" in verbs("send", "a", "x", "--inject", "--wait", code=2)
    assert "not JSON" in verbs("send", "a", "{", "--data", code=2)


def test_an_agent_that_fails_gives_its_error_in_one_line(
    verbs: Verbs, start: Callable[..., ActorSystem]
) -> None:
    start(a="boom")
    error = verbs("send", "a", "hello", "--wait", code=1)
    assert "bad \\x1b[31m news" in error
    assert len(error.splitlines()) == 1


def test_an_unknown_agent_is_answered_with_the_nearest_one(
    verbs: Verbs, start: Callable[..., ActorSystem]
) -> None:
    one, two = start("one", reviewer="reply"), start("two", reviewer="reply", other="reply")
    assert "did you mean other?" in verbs("send", "othr", "x", code=2)
    assert f"did you mean {two.id}/other?" in verbs("send", f"{two.id}/othr", "x", code=2)
    error = verbs("interrupt", "reviewer", code=2)
    assert f"{one.id}/reviewer, {two.id}/reviewer" in error
    assert verbs.json("interrupt", "two/reviewer")["system"] == two.id


def test_an_agent_is_interrupted_cancelled_and_stopped(
    verbs: Verbs, start: Callable[..., ActorSystem]
) -> None:
    system = start(a="wait", b="wait", c="wait")
    asked = {id: system.agent(id).ask("x") for id in "abc"}
    verbs("interrupt", "a")
    assert verbs.json("cancel", "b", "--only")["done"] == "cancelled"
    for id in "ab":
        assert asked[id].exception(10) is not None
        system.agent(id).when_idle().result(10)
    receipt = verbs.json("stop", "c")
    assert [(each["id"], each["outcome"]) for each in receipt["agents"]] == [("c", "aborted")]
    assert [node["id"] for node in verbs.json("tree")["agents"]] == ["a", "b"]


@pytest.mark.parametrize("verb", ["drain", "shutdown"])
def test_a_system_is_ended_with_a_receipt(
    verbs: Verbs, start: Callable[..., ActorSystem], verb: str
) -> None:
    system = start(a="reply", b="reply")
    receipt = verbs.json(verb, system.id, "--grace", "2s")
    assert sorted(each["id"] for each in receipt["agents"]) == ["a", "b"]
    assert receipt["survivors"] == []


def test_a_tree_that_is_watched_without_a_terminal_ends_with_its_system(
    verbs: Verbs,
    start: Callable[..., ActorSystem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = start(a="reply")
    server = ControlServer(system)
    seen: list[float] = []

    def pause(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == 2:
            system.stop("a").result(10)
        if len(seen) == 3:
            for each in _servers():
                each.close()

    monkeypatch.setattr("dsh_actors_cli.tree.time.sleep", pause)
    first, second = verbs("tree", "--watch", "--json").splitlines()
    assert [node["id"] for node in json.loads(first)["agents"]] == ["a"]
    assert json.loads(second)["agents"] == []
    assert len(seen) == 3
    server.close()


def _servers() -> list[ControlServer]:
    from dsh_actors.control import server

    return list(server._servers)


class _Verb(Terminal):
    command: ClassVar = [sys.executable, "-m", "dsh_actors_cli"]


class _Shown(_Verb):
    shows_stdout = True


def test_on_a_terminal_a_run_is_watched_live_and_left_with_ctrl_c(tmp_path: Path) -> None:
    tree = tree_file(tmp_path, "id: a, behaviour: '@steps', isolation: pool, prompt: 400")
    run = Terminal(tmp_path, str(tree))
    run.until("step 2")  # or 20 and more: well under way, and reachable
    watch, attached = _Shown(tmp_path, "tree", "--watch"), _Verb(tmp_path, "attach")
    try:
        for verb in (watch, attached):
            assert "━" in verb.until("step ")
            assert "pid " in verb.seen
            verb.process.send_signal(signal.SIGINT)
            assert verb.end() == (130, "")
        assert "the run goes on: dsh-actors attach tree-" in attached.seen
        assert "dsh-actors attach" not in watch.seen
        run.process.send_signal(signal.SIGINT)
        assert run.end()[0] == 130
    finally:
        for terminal in (run, watch, attached):
            terminal.process.kill()
            terminal.hang_up()
            terminal.process.communicate()
    assert_nothing_left(tmp_path)
