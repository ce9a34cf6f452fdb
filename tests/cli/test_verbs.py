"""The verbs that read, and the command itself."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cli_runs import dsh, environment, tree_file

from dsh_actors.codec import encode
from dsh_actors.sessions import SessionHeader, SqliteStore
from dsh_actors_cli.app import call

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a root that has failed and its child, and a younger one that was cut off."""
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    path = tmp_path / "state" / "sessions.db"

    def header(id: str, agent: str, created: float, parent: str | None = None) -> SessionHeader:
        depth = 0 if parent is None else 1
        return SessionHeader(id, agent, "sys", parent or id, parent, depth, "m:f", created)

    with SqliteStore(path) as store:
        store.create(header("s-1", "root", 1000.0))
        store.create(header("s-2", "child", 1001.0, "s-1"))
        store.create(header("s-9", "other\x1b", 2000.0))
        body = encode({"root": "src"})
        accepted = {"id": 1, "kind": "follow-up", "body": body}
        store.append("s-1", "prompt/accepted", encode(accepted))
        error = {"type": "ValueError", "message": "bad\x1b", "traceback": "Traceback:\n  boom\n"}
        ended = {"turn": 1, "reason": "error", "error": error, "results": []}
        store.append("s-1", "turn/end", encode(ended))
        result = {"turn": 1, "reason": "completed", "results": [{"id": 2, "result": encode(42)}]}
        store.append("s-2", "turn/end", encode(result))
        store.set_status("s-1", "failed")
        store.set_status("s-2", "completed")
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(list(arguments)) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    return out


@pytest.mark.usefixtures("store")
def test_the_list_has_a_line_for_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = printed(capsys, "sessions", "list").splitlines()
    assert head.split() == [
        *("id", "agent", "status", "created", "took", "events", "agents", "behaviour")
    ]
    rows = [line.split() for line in lines]
    assert [row[:3] for row in rows] == [
        *(["s-9", "other\\x1b", "interrupted"], ["s-1", "root", "failed"])
    ]
    assert rows[1][-3:] == ["2", "2", "m:f"]


@pytest.mark.usefixtures("store")
def test_the_list_can_show_children_and_be_cut(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "sessions", "list", "--all").splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["s-9", "s-2", "s-1"]
    assert call(["sessions", "list", "--limit", "1"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert captured.err == "... and 1 older; see --limit\n"


@pytest.mark.usefixtures("store")
def test_the_list_as_json_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    infos = json.loads(printed(capsys, "sessions", "list", "--json"))
    assert [(info["id"], info["parent"]) for info in infos] == [
        *(("s-9", None), ("s-2", "s-1"), ("s-1", None))
    ]
    assert len(json.loads(printed(capsys, "sessions", "list", "--json", "--limit", "2"))) == 2


def test_without_a_store_the_list_is_empty(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    assert call(["sessions", "list"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "there are no sessions yet" in captured.err
    assert printed(capsys, "sessions", "list", "--json") == "[]\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("store")
def test_a_session_is_shown_with_its_events_decoded(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "sessions", "show", "s-1")
    assert "children   1 completed\n" in text
    assert 'body={"root": "src"}' in text
    assert 'error={"type": "ValueError", "message": "bad\\u001b"}' in text
    assert "Traceback:\n       boom\n" in text


@pytest.mark.usefixtures("store")
def test_a_session_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(printed(capsys, "sessions", "show", "s-2", "--json"))
    assert (shown["id"], shown["parent"], shown["status"]) == ("s-2", "s-1", "completed")
    (event,) = shown["events"]
    assert event["data"]["results"] == [{"id": 2, "result": 42}]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("prefix", ["s-", "s-7"])
def test_a_prefix_that_names_no_session_or_several_is_refused(
    capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    assert call(["sessions", "show", prefix]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dsh-actors: error: ")


def test_check_shows_the_tree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tree = tree_file(
        tmp_path,
        "id: a, behaviour: '@echo', prompt: 1, children: [{id: b, behaviour: '@wait', "
        "isolation: own, restart: transient}]",
        "id: c, behaviour: '@steps'",
    )
    assert printed(capsys, "check", str(tree)).splitlines()[0] == "tree  workers 2, stop grace 1 s"
    assert call(["check", str(tree)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("├─ a  ")
    assert lines[1].endswith("  inline, temporary, function, prompt 1")
    assert lines[2].startswith("│  └─ b  ")
    assert lines[2].endswith("  own, transient, function")
    assert lines[3].startswith("└─ c  ")
    data: dict[str, Any] = json.loads(printed(capsys, "check", str(tree), "--json"))
    assert [agent["id"] for agent in data["agents"]] == ["a", "c"]
    assert data["agents"][0]["children"][0]["restart"] == "transient"


def test_check_names_every_behaviour_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tree = tree_file(tmp_path, "id: a, behaviour: '@nope'", "id: b, behaviour: '@not_callable'")
    assert call(["check", str(tree)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = captured.err.splitlines()
    assert f"{tree}:4: agent 'a': behaviour" in first
    assert f"{tree}:5: agent 'b': behaviour" in second
    assert "is not callable" in second


def test_doctor_starts_a_worker_and_names_each_thing(tmp_path: Path) -> None:
    done = dsh("doctor", "--json", home=tmp_path)
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, findings
    assert findings["worker process"]["state"] == "ok", findings["worker process"]
    assert {"python", "platform", "packages", "state folder", "session store"} <= set(findings)


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    (state / "sessions.db").write_text("no database", encoding="utf-8")
    done = dsh("doctor", home=tmp_path)
    assert done.returncode == 1
    assert f"chmod 700 {state}" in done.stdout
    assert "move the file away" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [[], ["run"], ["check"], ["sessions"], ["sessions", "list"], ["sessions", "show"], ["doctor"]],
)
def test_each_verb_has_help_with_examples(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert call([*arguments, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:\n  dsh-actors " in text or "Examples:\n    dsh-actors " in text


def test_help_is_quick_and_imports_only_click(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from dsh_actors_cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'dsh_actors', 'pykka', 'rich', 'structlog', 'yaml', 'pydantic', 'psutil'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime) < 0.25


def test_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "1.2.3")
    assert printed(capsys, "--version") == "dsh-actors 1.2.3\n"


def test_without_a_verb_the_help_is_shown_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: dsh-actors" in captured.err


def test_a_reader_that_has_gone_ends_a_verb_quietly(tmp_path: Path, store: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = dsh("sessions", "list", home=tmp_path, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_shell_completion_knows_the_verbs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dsh_actors_cli"],
        env=environment(
            tmp_path,
            _DSH_ACTORS_COMPLETE="bash_complete",
            COMP_WORDS="dsh-actors ses",
            COMP_CWORD="1",
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,sessions\n"
