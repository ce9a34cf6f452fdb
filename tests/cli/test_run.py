"""``dsh-actors run``, end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cli_runs import (
    PATIENCE,
    RUN,
    assert_nothing_left,
    dsh,
    environment,
    read_until,
    tree_file,
)

from dsh_actors.sessions import SqliteReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESULT_KEYS = (
    *("type", "subtype", "is_error", "result", "error", "session_id", "system_id"),
    *("duration_ms", "agents", "receipt"),
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert_nothing_left(tmp_path)


class Run:
    """A run in the background."""

    def __init__(self, home: Path, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [*RUN, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(home),
            cwd=home,
        )

    def until(self, word: str) -> str:
        assert self.process.stderr is not None
        return read_until(self.process.stderr, word)

    def end(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, stdout, stderr


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(done.stdout)
    assert tuple(result) == RESULT_KEYS
    return result


def events_of(home: Path, agent: str) -> list[str]:
    """The types of the events that the store has of an agent."""
    with SqliteReader(home / "state" / "sessions.db") as reader:
        (session,) = (info.id for info in reader.list() if info.agent_id == agent)
        return [event.type for event in reader.load(session)[1]]


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_stdout_carries_the_result_and_nothing_else(home: Path, isolation: str) -> None:
    tree = tree_file(home, f"id: a, behaviour: '@echo', isolation: {isolation}, prompt: hello")
    done = dsh("run", tree, home=home)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    for printed in ("printed\n", "written\n", "from a program\n", "nothing left running\n"):
        assert printed in done.stderr


def test_json_is_one_object(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo', isolation: pool, prompt: {x: [1, null]}")
    done = dsh("run", tree, "--output-format", "json", home=home)
    result = result_of(done)
    assert done.returncode == 0
    assert (result["type"], result["subtype"], result["is_error"]) == ("result", "completed", False)
    assert (result["result"], result["error"]) == ({"x": [1, None]}, None)
    assert result["agents"] == {"completed": 1, "aborted": 0, "failed": 0, "lost": 0}
    (agent,) = result["receipt"]["agents"]
    (process,) = result["receipt"]["processes"]
    assert agent == {"id": "a", "outcome": "completed", "pid": process["pid"]}
    assert (process["kind"], process["ended"], process["signal"]) == ("worker", "exited", None)
    assert result["receipt"]["survivors"] == []


def test_stream_json_begins_with_the_session_and_ends_with_the_result(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo', prompt: 1")
    done = dsh("run", tree, "--output-format", "stream-json", home=home)
    first, *events, last = map(json.loads, done.stdout.splitlines())
    assert first["type"] == "system"
    assert (first["session_id"], first["system_id"]) == (last["session_id"], last["system_id"])
    assert [event["type"] for event in events] == [
        *("agent/started", "turn/start", "turn/end", "agent/ended")
    ]
    assert tuple(last) == RESULT_KEYS


def test_several_roots_give_an_object_and_those_without_a_prompt_just_live(home: Path) -> None:
    tree = tree_file(
        home,
        "id: a, behaviour: '@echo', prompt: 1",
        "id: b, behaviour: '@echo', prompt: null",
        "id: idle, behaviour: '@echo'",
    )
    result = result_of(dsh("run", tree, "--output-format", "json", home=home))
    assert result["result"] == {"a": 1, "b": None}
    assert result["agents"]["completed"] == 3


def test_the_prompt_may_come_from_the_command_line_a_file_or_stdin(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo'")
    (home / "prompt.txt").write_text("from a file", encoding="utf-8")
    assert dsh("run", tree, '{"not": "parsed"}', home=home).stdout == '{"not": "parsed"}\n'
    assert dsh("run", tree, "--prompt-file", "prompt.txt", home=home).stdout == "from a file\n"
    done = dsh("run", tree, "--prompt-file", "-", home=home, input="from stdin")
    assert done.stdout == "from stdin\n"


def test_a_failing_behaviour_is_told_in_one_line_with_its_place(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@boom', prompt: 1")
    done = dsh("run", tree, home=home)
    assert (done.returncode, done.stdout) == (1, "")
    assert "dsh-actors: error: ValueError: bad \\x1b[31m news (" in done.stderr
    assert "cli_behaviours.py:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_killed_worker_fails_the_run(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@die', isolation: own, prompt: 1")
    done = dsh("run", tree, "--output-format", "json", home=home)
    result = result_of(done)
    assert (done.returncode, result["subtype"], result["agents"]["lost"]) == (1, "failed", 1)
    assert result["error"]["type"] == "AgentLost"
    assert "SIGKILL" in result["error"]["message"]
    assert "killed by SIGKILL" in done.stderr


def test_an_agent_that_cannot_start_fails_the_run(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@Unstartable', prompt: 1")
    done = dsh("run", tree, "--output-format", "json", home=home)
    assert done.returncode == 1
    assert result_of(done)["error"] == {"type": "RuntimeError", "message": "no way"}


def test_a_run_is_not_done_while_a_child_works(home: Path) -> None:
    tree = tree_file(home, f"id: a, behaviour: '@delegate', prompt: {home}/out")
    done = dsh("run", tree, "--output-format", "json", home=home)
    assert done.returncode == 0
    assert (home / "out").read_text() == "done"
    assert result_of(done)["agents"] == {"completed": 2, "aborted": 0, "failed": 0, "lost": 0}


def test_the_time_out_exits_with_124(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@wait', isolation: own, prompt: 1")
    done = dsh("run", tree, "--timeout", "800ms", "--output-format", "json", home=home)
    result = result_of(done)
    assert (done.returncode, result["subtype"], result["is_error"]) == (124, "timeout", True)
    assert result["error"] == {"type": "Timeout", "message": "not done after 0.8 s"}


@pytest.mark.parametrize("isolation", ["inline", "pool"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_stops_the_tree_and_prints_the_receipt(
    home: Path, isolation: str, number: signal.Signals, code: int
) -> None:
    tree = tree_file(home, f"id: a, behaviour: '@wait', isolation: {isolation}, prompt: 1")
    run = Run(home, tree, "--output-format", "json")
    run.until("working")
    run.process.send_signal(number)
    returned, stdout, stderr = run.end()
    assert returned == code
    result = json.loads(stdout)
    assert (result["subtype"], result["agents"]["aborted"]) == ("cancelled", 1)
    assert result["error"]["message"] == f"stopped by {number.name}"
    assert "stopping all agents" in stderr
    assert "    a  aborted" in stderr
    assert "  survivors  none\n" in stderr
    assert events_of(home, "a") == [*("prompt/accepted", "turn/start", "turn/end", "agent/ended")]


def test_a_child_that_ignores_its_cancel_is_ended_by_force(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@spin', isolation: own, prompt: 1", grace="300ms")
    run = Run(home, tree, "--output-format", "json")
    run.until("working")
    run.process.send_signal(signal.SIGINT)
    code, stdout, stderr = run.end()
    assert code == 130
    (process,) = json.loads(stdout)["receipt"]["processes"]
    assert (process["ended"], process["signal"]) == ("terminated", "SIGTERM")
    assert "terminated by SIGTERM" in stderr
    assert "turn/end" in events_of(home, "a")


def test_an_agent_of_the_launching_process_that_ignores_its_cancel_is_named(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@spin', prompt: 1", grace="200ms")
    run = Run(home, tree, "--output-format", "json")
    run.until("working")
    run.process.send_signal(signal.SIGINT)
    code, stdout, stderr = run.end()
    assert code == 130
    (survivor,) = json.loads(stdout)["receipt"]["survivors"]
    assert survivor["id"] == "a"
    assert survivor["pid"] == run.process.pid
    assert "in spin" in survivor["stack"]
    assert "  survivors  1\n    a  pid" in stderr


@pytest.mark.parametrize("isolation", ["inline", "own"])
def test_a_second_signal_exits_at_once(home: Path, isolation: str) -> None:
    tree = tree_file(
        home, f"id: a, behaviour: '@spin', isolation: {isolation}, prompt: 1", grace="60s"
    )
    run = Run(home, tree)
    run.until("working")
    run.process.send_signal(signal.SIGINT)
    run.until("press Ctrl-C again")
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130


def test_a_signal_while_stdin_is_read_ends_the_command(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo'")
    run = subprocess.Popen(
        [*RUN, str(tree), "--prompt-file", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
    )
    # Sent again until it is heard: nothing tells when the handlers are there.
    code = None
    while code is None:
        run.send_signal(signal.SIGTERM)
        try:
            code = run.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    run.communicate()
    assert code in (143, -signal.SIGTERM)


def test_a_reader_that_goes_away_ends_the_run_quietly(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@steps', prompt: 4")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = dsh("run", tree, home=home, stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_reader_of_the_stream_that_goes_away_stops_the_tree(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@wait', prompt: 1")
    run = Run(home, tree, "--output-format", "stream-json")
    assert run.process.stdout is not None
    run.process.stdout.close()
    run.process.stdout = None
    code, _, stderr = run.end()
    assert code == 1
    assert "Traceback" not in stderr


def test_a_closed_stderr_stops_the_tree(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@wait', prompt: 1")
    run = Run(home, tree, "--output-format", "json")
    run.until("working")
    assert run.process.stderr is not None
    run.process.stderr.close()
    run.process.stderr = None
    code, stdout, _ = run.end()
    assert code == 129
    assert json.loads(stdout)["error"]["message"] == "the terminal was closed"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_result_that_cannot_be_written_is_an_error(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo', prompt: 1")
    with open("/dev/full", "w") as full:
        done = dsh("run", tree, home=home, stdout=full)
    assert done.returncode == 1
    assert "dsh-actors: error: the result cannot be written: " in done.stderr


def test_closed_descriptors_get_no_other_use(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo', isolation: pool, prompt: 1")
    command = f"exec {sys.executable} -m dsh_actors_cli run {tree} <&- >&-"
    done = subprocess.run(
        ["sh", "-c", command],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing left running" in done.stderr


@pytest.mark.behaviour(170)
def test_the_last_lines_name_the_session_if_there_is_one(home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@echo', prompt: 1")
    store = home / "my sessions.db"
    done = dsh("run", tree, "--store", store, home=home)
    look, resume = done.stderr.splitlines()[-2:]
    assert done.stderr.count("\nsession s-") == done.stderr.count("\nto resume: ") == 1
    _, session, command = look.split(" ", 2)
    again = f"dsh-actors run {tree} --resume {session[:-1]} --store '{store}'"
    assert resume == f"to resume: {again}"
    assert command == f"dsh-actors sessions show {session[:-1]} --store '{store}'"
    shown = dsh("sessions", "show", session[:-1], "--store", store, home=home)
    assert "prompt/accepted" in shown.stdout
    without = dsh("run", tree, "--no-store", home=home).stderr
    assert "session s-" not in without
    assert "to resume" not in without
