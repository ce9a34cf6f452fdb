"""Which session a run is bound to, and the line at its exit: through the real command."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_runs import PATIENCE, RUN, dsh, environment, read_until, tree_file
from test_terminal import Terminal, after_the_frame, home, start

from dsh_actors.config import AgentSpec, TreeSpec
from dsh_actors.errors import StoreError, UsageError
from dsh_actors.sessions import SessionHeader, SessionLog, SqliteReader, SqliteStore
from dsh_actors_cli.arguments import Options
from dsh_actors_cli.binding import bind

__all__ = ["home", "start"]

BEHAVIOURS = Path(__file__).with_name("launcher_behaviours.py")

OVERLAY = """\
version: 1
agents:
  - id: a
    behaviour: {behaviours}:tell
    isolation: inline
    restart: temporary
    args: {{}}
    children: []
    prompt: mine
"""


def tree(home: Path, *agents: str, **options: Any) -> str:
    """Write a tree file; ``!name`` stands for a behaviour of ``launcher_behaviours``."""
    named = [agent.replace("!", f"{BEHAVIOURS}:") for agent in agents]
    return str(tree_file(home, *named, **options))


def told(home: Path, *arguments: str) -> Any:
    """Run a command to its good end, and return what it has told as JSON."""
    done = dsh(*arguments, "--output-format", "json", home=home)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("to resume: "), done.stderr
    assert done.stderr.count("to resume: ") == 1
    return result | {"line": line, "stderr": done.stderr}


def log_of(home: Path, session: str) -> SessionLog:
    with SqliteReader(home / "state" / "sessions.db") as reader:
        return reader.load(session)


def sessions_of(home: Path) -> list[str]:
    if not (home / "state" / "sessions.db").exists():
        return []
    with SqliteReader(home / "state" / "sessions.db") as reader:
        return [info.id for info in reader.list()]


@pytest.mark.behaviour(102)
@pytest.mark.behaviour(169)
@pytest.mark.behaviour(170)
@pytest.mark.behaviour(173)
@pytest.mark.behaviour(181)
@pytest.mark.behaviour(184)
def test_no_overlay_can_drop_the_session_or_the_exit_line(
    start: type[Terminal], home: Path
) -> None:
    path = tree(home, "id: a, behaviour: '!tell', isolation: pool, prompt: shipped")
    extra = home / "an extra.yaml"
    extra.write_text("version: 1\nsystem: {stop_grace: 2s}\n", encoding="utf-8")
    first = told(home, "run", path, "--config", str(extra))
    session = first["session_id"]
    assert first["result"]["session"] == session
    assert first["line"] == f"to resume: {first['result']['line'].removeprefix('to resume: ')}"

    # A personal file replaces the whole of the agent, and stale variables name other sessions.
    (home / "config.yaml").write_text(OVERLAY.format(behaviours=BEHAVIOURS), encoding="utf-8")
    stale = dict.fromkeys(("RESUME_SESSION_ID", "DSH_ACTORS_RESUME", "DSH_ACTORS_SESSION"), "s-1")
    arguments = (path, "--resume", session, "--config", str(extra))
    run = start(*arguments, "again", "--output-format", "json", **stale)
    code, printed = run.end()
    assert code == 0, run.seen
    result = json.loads(printed)
    assert result["session_id"] == result["result"]["session"] == session
    assert (result["result"]["message"], result["result"]["turn"]) == ("again", 2)
    assert result["result"]["pid"] == run.process.pid  # inline, as the personal file says
    left = after_the_frame(run.seen)
    again = ["dsh-actors", "run", *arguments, "--output-format", "json"]
    assert left.splitlines()[-1] == f"\x1b[2mto resume: {shlex.join(again)}\x1b[0m"
    assert run.seen.count("to resume: ") == 1
    assert sessions_of(home) == [session]
    turns = [e.data["turn"] for e in log_of(home, session).events if e.type == "turn/start"]
    assert turns == [1, 2]


@pytest.mark.behaviour(169)
def test_all_that_shows_a_session_shows_the_one_that_is_bound(home: Path) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    done = dsh("run", path, "--output-format", "stream-json", home=home)
    first, *_, last = map(json.loads, done.stdout.splitlines())
    (session,) = sessions_of(home)
    ids = re.findall(r"s-\d{8}-\d{6}-\w{8}", done.stderr)
    assert {first["session_id"], last["session_id"], last["result"]["session"], *ids} == {session}
    assert f"a: started in session {session}" in done.stderr
    assert shlex.split(done.stderr.splitlines()[-1])[2:] == [
        *("dsh-actors", "run", path, "--resume", session, "--output-format", "stream-json")
    ]


@pytest.mark.behaviour(103)
@pytest.mark.behaviour(167)
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_session_that_is_not_there_is_an_error(home: Path, is_empty: bool) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    if not is_empty:
        told(home, "run", path)
    before = sessions_of(home)
    done = dsh("run", path, "--resume", "nope", home=home)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "no session 'nope'" in line
    assert sessions_of(home) == before
    assert is_empty == (not (home / "state").exists())


@pytest.mark.behaviour(172)
def test_the_line_of_a_run_that_never_began_fails_loudly(home: Path) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    quit_at_once = dsh("run", path, "--timeout", "1ms", home=home)
    assert quit_at_once.returncode == 124
    command = shlex.split(quit_at_once.stderr.splitlines()[-1].removeprefix("to resume: "))
    assert command[-2:] == ["--timeout", "0.001"]
    again = dsh(*command[1:-2], home=home)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"no session {command[4]!r}" in again.stderr
    assert sessions_of(home) == []


@pytest.mark.behaviour(171)
@pytest.mark.behaviour(178)
def test_the_line_is_there_although_the_store_hangs(home: Path) -> None:
    path = tree(home, "id: a, behaviour: '!hang_the_store', prompt: 1")
    run = subprocess.Popen(
        [*RUN, path], env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert run.stderr is not None
    try:
        seen = read_until(run.stderr, "closing")
    finally:
        run.kill()
        out, _ = run.communicate(timeout=PATIENCE)
    assert "to resume: dsh-actors run " in seen
    assert "Traceback" not in seen
    assert out == "hung\n"


@pytest.mark.behaviour(177)
def test_a_hostile_path_cannot_act_on_the_terminal(start: type[Terminal], home: Path) -> None:
    hostile = home / "\x1b]0;title\x07.yaml"
    hostile.write_text("version: 1\nsystem: {stop_grace: 2s}\n", encoding="utf-8")
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    run = start(path, "--config", str(hostile), NO_COLOR="1")
    assert run.end()[0] == 0
    line = after_the_frame(run.seen).splitlines()[-1]
    assert not re.search(r"[\x00-\x1f\x7f]", line)
    assert line.endswith(f"--config $'{home}/\\033]0;title\\007.yaml'")
    words = line.removeprefix("to resume: dsh-actors")
    shown = subprocess.run(["bash", "-c", f"printf %s {words}"], capture_output=True, check=True)
    assert shown.stdout.endswith(os.fsencode(hostile))


def test_without_a_prompt_nothing_is_asked_again(home: Path) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    first = told(home, "run", path)
    again = told(home, "run", path, "--resume", first["session_id"][:-3])
    assert again["result"] == first["result"]
    assert "notice: nothing was waiting" in again["stderr"]
    types = [event.type for event in log_of(home, first["session_id"]).events]
    assert types.count("prompt/accepted") == types.count("turn/start") == 1


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_what_a_crash_cut_off_is_done_or_told_to_be_lost(home: Path, policy: str) -> None:
    mark = home / "mark"
    path = tree(home, f"id: a, behaviour: '!once', interrupted: {policy}, prompt: {mark}")
    run = subprocess.Popen(
        [*RUN, path], env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert run.stderr is not None
    read_until(run.stderr, "working")
    (session,) = sessions_of(home)
    held = dsh("run", path, "--resume", session, home=home)
    assert (held.returncode, held.stdout) == (1, "")
    assert f"pid {run.pid}" in held.stderr or f"process {run.pid}" in held.stderr
    assert f"dsh-actors logs {session}" in held.stderr
    run.kill()
    run.communicate(timeout=PATIENCE)

    done = dsh("resume", session, home=home)
    if policy == "retry":
        assert (done.returncode, done.stdout) == (0, "done at last\n")
    else:
        assert done.returncode == 1
        assert "its last turn was cut off, and is not tried again" in done.stderr
        asked = dsh("run", path, str(mark), "--resume", session, home=home)
        assert (asked.returncode, asked.stdout) == (0, "done at last\n")
    assert sessions_of(home) == [session]


@pytest.mark.behaviour(174)
def test_resume_goes_on_in_place_and_where_it_was_run(home: Path) -> None:
    path = tree(home, "id: a, behaviour: '!once', interrupted: retry, prompt: mark")
    run = subprocess.Popen(
        [*RUN, os.path.basename(path), "--set", "agents.a.restart=temporary"],
        env=environment(home), stderr=subprocess.PIPE, text=True, cwd=home,
    )  # fmt: skip
    assert run.stderr is not None
    read_until(run.stderr, "working")
    run.kill()
    run.communicate(timeout=PATIENCE)
    (session,) = sessions_of(home)
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    resumed = subprocess.Popen(
        [*RUN[:-1], "resume", session], env=environment(home), cwd=elsewhere,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, err = resumed.communicate(timeout=PATIENCE)
    assert out == "done at last\n"
    words = f"dsh-actors run tree.yaml --resume {session} --set agents.a.restart=temporary"
    assert err.splitlines()[0] == f"cd {home} && {words}"
    assert err.splitlines()[-1] == f"to resume: {words}"


@pytest.mark.behaviour(175)
def test_a_run_hands_over_to_another_session_in_place(home: Path) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: first")
    first = told(home, "run", path)
    other = home / "other"
    other.mkdir()
    over = tree(other, f"id: b, behaviour: '!go_over', prompt: {first['session_id']}")
    run = subprocess.Popen(
        [*RUN, over], env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=home,
    )  # fmt: skip
    out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, err
    assert json.loads(out)["result"] == first["result"]
    assert json.loads(out)["session_id"] == first["session_id"]
    lines = [line for line in err.splitlines() if line.startswith("to resume: ")]
    assert [shlex.split(line)[4] for line in lines] == [over, path]
    statuses = {event.data["outcome"] for event in log_of(home, lines_id(lines[0])).events
                if event.type == "agent/ended"}  # fmt: skip
    assert statuses == {"aborted"}


def lines_id(line: str) -> str:
    words = shlex.split(line)
    return words[words.index("--resume") + 1]


@pytest.mark.behaviour(169)
def test_all_roots_of_a_run_go_on_in_their_sessions(home: Path) -> None:
    path = tree(
        home,
        "id: a, behaviour: '!tell', prompt: 1",
        "id: b, behaviour: '!tell', prompt: 2",
        "id: c, behaviour: '!tell'",
    )
    first = told(home, "run", path)
    sessions = {agent: first["result"][agent]["session"] for agent in "ab"}
    assert first["session_id"] == sessions["a"]
    again = told(home, "run", path, "--resume", sessions["b"], "more")
    assert again["session_id"] == sessions["b"]
    assert again["result"]["a"] == first["result"]["a"]
    assert again["result"]["b"] | {"pid": 0, "line": ""} == {
        "message": "more", "turn": 2, "session": sessions["b"], "cwd": str(home),
        "pid": 0, "line": "",
    }  # fmt: skip
    assert len(sessions_of(home)) == 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--no-store"], "--resume goes on with a stored session"),
        (["--store", "not there.db"], "not there.db"),
    ],
)
def test_what_cannot_be_meant_is_refused(home: Path, arguments: list[str], problem: str) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    done = dsh("run", path, "--resume", "s-1", *arguments, home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_only_the_tree_of_a_root_goes_on_with_its_session(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store:
        for id, parent in (("s-root", None), ("s-child", "s-root")):
            store.create(SessionHeader(id, "a", "system", "s-root", parent, 0, "m:f", 1.0))
    spec = TreeSpec("t", agents=(AgentSpec("b", "m:f", prompt=1),))
    with pytest.raises(UsageError, match=r"is that of agent 'a', but the roots of t.yaml are b;"):
        bind(Options("t.yaml", store=path, resume="s-r"), spec)
    with pytest.raises(UsageError, match=r"is that of a child.*resume that: s-root"):
        bind(Options("t.yaml", store=path, resume="s-c"), spec)
    with pytest.raises(StoreError, match="'s-' could be s-child, s-root"):
        bind(Options("t.yaml", store=path, resume="s-"), spec)
