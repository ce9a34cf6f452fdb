"""Sessions go out, come in, branch and go; and a session can be followed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, ClassVar

import pytest
from cli_runs import PATIENCE, environment, read_until
from test_terminal import Terminal

from dsh_actors.codec import encode, register
from dsh_actors.sessions import SessionHeader, SqliteReader, SqliteStore
from dsh_actors_cli.app import call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERB = [sys.executable, "-m", "dsh_actors_cli"]


@register
@dataclass
class Finding:
    """Known here, but not to the process of the command."""

    text: str


def header(id: str, parent: str | None = None) -> SessionHeader:
    root, depth = (parent, 1) if parent else (id, 0)
    options = {"args": {"raw": b"\xff", "when": datetime(2026, 1, 2, tzinfo=UTC)}}
    return SessionHeader(
        id, f"agent-{id}", "sys", root, parent, depth, "m:f", 1000.0, {"tools": ["x"]}, options
    )


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a root that has ended and its child."""
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    path = tmp_path / "state" / "sessions.db"
    with SqliteStore(path) as store:
        store.create(header("s-1"))
        store.create(header("s-2", "s-1"))
        body = encode({"odd": [float("nan"), b"\x00", {1: "number"}, {"$bytes": "text"}, None]})
        store.append("s-1", "prompt/accepted", encode({"id": 1, "kind": "follow-up", "body": body}))
        store.append("s-1", "turn/start", encode({"turn": 1, "messages": [1]}))
        store.append("s-1", "turn/end", encode({"turn": 1, "reason": "completed", "results": []}))
        store.append("s-2", "custom/finding", encode(Finding("bad\x1b[31m")))
        store.append("s-2", "custom/deep", encode(deep()))
        store.set_status("s-1", "completed")
        store.set_status("s-2", "failed")
    return path


def deep() -> object:
    value: object = float("-inf")
    for _ in range(80):
        value = [value]
    return value


def contents(path: Path) -> dict[str, object]:
    """All that a store holds, as bytes where it is bytes."""
    with SqliteReader(path) as reader:
        return {info.id: (info.status, *reader.stored(info.id)) for info in reader.list()}


def run(*arguments: str) -> int:
    return call(["sessions", *arguments])


@pytest.fixture
def exported(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run("export", "--tree", "s-1") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.isascii()
    return captured.out


def test_an_export_comes_in_as_it_went_out(path: Path, exported: str, tmp_path: Path) -> None:
    file, other = tmp_path / "e.jsonl", tmp_path / "other.db"
    file.write_text(exported)
    assert run("import", str(file), "--store", str(other)) == 0
    assert contents(other) == contents(path)


def test_what_another_process_does_not_know_is_kept_as_well(
    path: Path, exported: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*VERB, "sessions", "export", "--tree", "s-1"],
        env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    other = tmp_path / "other.db"
    subprocess.run(
        [*VERB, "sessions", "import", "-", "--store", str(other)],
        env=environment(tmp_path), input=done.stdout, text=True, timeout=PATIENCE, check=True,
        capture_output=True,
    )  # fmt: skip
    assert contents(other) == contents(path)


def test_what_is_there_already_is_imported_under_new_ids_only(
    path: Path,
    exported: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(path)
    monkeypatch.setattr("sys.stdin", _Stdin(exported))
    assert run("import", "-") == 2
    assert "session 's-1' is in the store" in capsys.readouterr().err
    assert contents(path) == before

    monkeypatch.setattr("sys.stdin", _Stdin(exported))
    assert run("import", "-", "--new-ids", "--json") == 0
    new = {each["was"]: each["id"] for each in json.loads(capsys.readouterr().out)}
    with SqliteReader(path) as reader:
        family = reader.family(new["s-1"])
    assert [(info.id, info.parent) for info in family] == [
        *((new["s-1"], None), (new["s-2"], new["s-1"]))
    ]
    assert {id: contents(path)[id] for id in before} == before


class _Stdin(StringIO):
    """A stdin that has bytes as well."""

    @property
    def buffer(self) -> _Stdin:
        return self

    def read(self, size: int | None = -1) -> bytes:  # type: ignore[override]
        return super().read(size).encode()


def test_an_export_that_is_cut_off_or_changed_is_refused(
    exported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = exported.splitlines(keepends=True)
    wrong = [lines[:count] for count in range(len(lines))]
    wrong += [[*lines[:place], *lines[place + 1 :]] for place in range(len(lines))]
    wrong += [[line, *lines] for line in lines]
    wrong += [[*lines[:2], line, *lines[3:]] for line in ("{}", "[1]", "x", '{"type": "event"}')]
    wrong += [[lines[0].replace('"version":1', '"version":2'), *lines[1:]]]
    file, other = tmp_path / "e.jsonl", tmp_path / "other.db"
    for each in wrong:
        file.write_text("".join(each))
        assert run("import", str(file), "--store", str(other)) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"dsh-actors: error: {file}")
    assert not other.exists()


@pytest.mark.usefixtures("path")
def test_a_child_alone_comes_in_as_a_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "e.jsonl", tmp_path / "other.db"
    assert run("export", "s-2", "-o", str(file)) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("import", str(file), "--store", str(other)) == 0
    assert "its parent s-1 is not in the store" in capsys.readouterr().err
    with SqliteReader(other) as reader:
        found = reader.load("s-2").header
    assert (found.parent, found.root, found.depth) == (None, "s-2", 1)
    assert run("export", "s-2", "-o", str(file)) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_fork_goes_its_own_way(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fork", "s-1", "--at", "1") == 0
    made = capsys.readouterr().out.strip()
    with SqliteReader(path) as reader:
        log = reader.load(made)
    assert (log.header.forked_from, len(log.events)) == ("s-1", 1)
    assert run("fork", "s-1", "--at", "2") == 2
    assert "inside a turn" in capsys.readouterr().err


def test_a_tree_is_removed_but_not_what_somebody_holds(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SqliteStore(path, holder="other-system") as store:
        store.create(header("s-9"))
        store.flush()
        assert run("rm", "s-9", "s-1", "--yes") == 1
        captured = capsys.readouterr()
        assert "other-system" in captured.err
        assert "removed s-1 and 1 below it" in captured.err
        assert list(contents(path)) == ["s-9"]


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, 2), (b"y\n", 0, 0)])
def test_on_a_terminal_it_is_asked_first(
    tmp_path: Path, path: Path, answer: bytes, code: int, left: int
) -> None:
    class Verb(Terminal):
        command: ClassVar = VERB

    verb = Verb(tmp_path, "sessions", "rm", "s-1")
    try:
        assert "agent-s-1, completed, 3 events and 1 session below it" in verb.until("[y/N]")
        verb.type(answer)
        assert verb.end()[0] == code
    finally:
        verb.hang_up()
    assert len(contents(path)) == left


def test_a_damaged_session_is_marked_and_shown(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET data = x'00' WHERE seq = 1 AND type = 'turn/start'")
    database.close()
    assert run("show", "s-1") == 0
    shown = capsys.readouterr().out
    assert "damaged: event 1" in shown
    assert "turn/end" in shown
    assert run("show", "s-1", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["damage"]) == 1
    assert run("list", "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert run("export", "s-1") == 0
    assert "s-1 is damaged, what can be read is exported" in capsys.readouterr().err


@pytest.mark.usefixtures("path")
def test_the_log_of_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["logs", "s-2"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "custom/finding" in text
    assert call(["logs", "s-1", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["seq"] for event in events] == [0, 1, 2]
    assert events[0]["data"]["body"]["odd"][4] is None


@pytest.fixture
def follower(path: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*VERB, "logs", "-f", "s-9"],
        env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def live(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        store.create(header("s-9"))
        store.flush()
        yield store


def test_a_log_is_followed_to_the_end_of_its_session(
    live: SqliteStore, follower: subprocess.Popen[str]
) -> None:
    assert follower.stdout is not None
    for number in range(3):
        live.append("s-9", "custom/step", encode({"number": number}))
        read_until(follower.stdout, f"number={number}")
    live.append("s-9", "agent/ended", encode({"outcome": "completed"}))
    live.set_status("s-9", "completed")
    out, err = follower.communicate(timeout=PATIENCE)
    assert "agent/ended" in out
    assert (follower.returncode, err) == (0, "")


def test_to_follow_ends_when_nobody_is_left_to_write(
    live: SqliteStore, follower: subprocess.Popen[str]
) -> None:
    assert follower.stdout is not None
    live.append("s-9", "custom/step", encode({"number": 1}))
    read_until(follower.stdout, "number=1")
    live.close()
    _, err = follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 0
    assert "nobody works on session s-9 any more" in err


def test_ctrl_c_ends_the_following(live: SqliteStore, follower: subprocess.Popen[str]) -> None:
    assert follower.stdout is not None
    live.append("s-9", "custom/step", encode({"number": 1}))
    read_until(follower.stdout, "number=1")
    os.kill(follower.pid, signal.SIGINT)
    _, err = follower.communicate(timeout=PATIENCE)
    assert follower.returncode == 130
    assert err.strip() == ""
