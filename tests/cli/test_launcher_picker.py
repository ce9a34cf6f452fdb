"""The list to choose a session from."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from cli_runs import PATIENCE, RUN, dsh, environment
from test_launcher import log_of, told, tree
from test_terminal import Terminal, home

import dsh_actors as dsh_library
from dsh_actors.errors import StoreError
from dsh_actors.sessions import MemoryStore, SessionHeader, SqliteReader, SqliteStore
from dsh_actors.slots import LaunchIdentity, Slots
from dsh_actors_cli.keyboard import Keyboard
from dsh_actors_cli.pickable import Choice, choices
from dsh_actors_cli.picker import Picker
from dsh_actors_cli.render.style import Style, cell_width

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["home"]

NOW = 1_000_000.0


def header(id: str, parent: str | None = None) -> SessionHeader:
    return SessionHeader(id, f"agent of {id}", "system", parent or id, parent, 0, "m:f", NOW)


def choice(id: str, refusal: str = "", agent: str = "census") -> Choice:
    return Choice(id, agent, NOW - 7200, "completed", ("persisted",), refusal)


def shown(picker: Picker, columns: int = 80, lines: int = 24) -> list[str]:
    frame = picker.frame(columns, lines, Style(False))
    assert len(frame) <= lines
    assert all(cell_width(line) <= columns for line in frame)
    return frame


# -- the query ----------------------------------------------------------------------------------


@pytest.mark.behaviour(179)
def test_a_session_is_marked_as_current_live_and_persisted(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    slots = Slots({"a": LaunchIdentity("s-mine", resume=False)})
    bound = {identity.id for identity in slots.identities.values()}
    with SqliteStore(path) as store:
        store.create(header("s-ended"))
        store.set_status("s-ended", "completed")
        with dsh_library.ActorSystem(store=store, slots=slots) as system:
            from dsh_actors.config import AgentSpec, TreeSpec

            spec = TreeSpec("t", agents=(AgentSpec("a", f"{__file__}:echo"),))
            (handle,) = system.start_tree(spec)
            other = system.create(echo, id="b").agent
            assert handle.agent.ask(1).result(timeout=PATIENCE) == 1
            assert other.ask(1).result(timeout=PATIENCE) == 1
            live = {node.session for node in system.tree()}
            store.flush()
            with SqliteReader(path) as reader:
                found = {one.id: one for one in choices(reader, current=bound, live=live)}
            assert other.session_id is not None
            assert found["s-mine"].marks == ("current", "live", "persisted")
            assert found[other.session_id].marks == ("live", "persisted")
            assert found["s-ended"].marks == ("persisted",)
            assert {one.refusal for one in found.values()} == {""}


@dsh_library.behaviour
def echo(turn: dsh_library.Turn, message: Any) -> Any:
    return message


@pytest.mark.behaviour(179)
def test_the_session_of_another_process_is_only_persisted(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    script = (
        "import sys; from dsh_actors.sessions import SqliteStore, SessionHeader\n"
        "store = SqliteStore(sys.argv[1], holder='theirs')\n"
        "store.create(SessionHeader('s-1', 'a', 's', 's-1', None, 0, 'm:f', 1.0))\n"
        "store.flush(); print('there', flush=True); sys.stdin.read(); store.close()\n"
    )
    other = subprocess.Popen(
        [*RUN[:1], "-c", script, str(path)], env=environment(tmp_path), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        with SqliteReader(path) as reader:
            (one,) = choices(reader)
        assert one.marks == ("persisted",)
        assert one.refusal.startswith(f"in use by theirs, process {other.pid} on ")
    finally:
        other.communicate(timeout=PATIENCE)
    with SqliteReader(path) as reader:
        assert choices(reader)[0].refusal == ""


def test_only_roots_are_listed_newest_first() -> None:
    with MemoryStore() as store:
        for id, parent in (("s-1", None), ("s-1-child", "s-1"), ("s-2", None)):
            store.create(header(id, parent))
        store.flush()
        assert [one.id for one in choices(store)] == ["s-2", "s-1"]


# -- what it shows and what keys do -------------------------------------------------------------


def test_it_fits_a_small_terminal_and_follows_the_cursor() -> None:
    picker = Picker([choice(f"s-20261130-211342-{n:08}") for n in range(200)], NOW)
    assert "200 of 200" in shown(picker)[0]
    assert any("❯ s-20261130-211342-00000000 census" in line for line in shown(picker))
    assert "2 h completed persisted" in shown(picker)[2]
    picker.press("end")
    assert shown(picker)[-3].startswith("❯ s-20261130-211342-00000199")
    for key in ("up", "up", "down", "page up", "page down"):
        picker.press(key)
    assert "❯ s-20261130-211342-00000198" in "\n".join(shown(picker))
    picker.press("home")
    picker.press("up")
    assert "❯ s-20261130-211342-00000000" in "\n".join(shown(picker))
    for columns, lines in ((20, 6), (40, 3), (10, 24), (300, 100)):
        shown(picker, columns, lines)


def test_typing_filters() -> None:
    picker = Picker([choice("s-1", agent="Census"), choice("s-2", agent="review")], NOW)
    for key in "rev s-":
        picker.press(key)
    assert "1 of 2" in shown(picker)[0]
    assert "❯ s-2" in shown(picker)[2]
    picker.press("x")
    assert "no session matches" in shown(picker)[2]
    assert picker.press("enter") == "go on"
    picker.press("backspace")
    assert picker.press("enter") == "chosen"
    assert picker.chosen is not None
    assert picker.chosen.id == "s-2"
    picker.press("clear")
    assert "2 of 2" in shown(picker)[0]


def test_what_cannot_be_read_is_there_with_the_reason_and_cannot_be_chosen() -> None:
    picker = Picker([choice("s-1", "damaged: its header was changed"), choice("s-2")], NOW)
    assert "damaged: its header was changed" in "\n".join(shown(picker))
    dim = picker.frame(80, 24, Style(True))[2]
    assert dim.startswith("\x1b[2m❯ s-1")
    assert picker.press("enter") == "go on"
    assert "s-1 cannot be resumed: damaged" in "\n".join(shown(picker))
    picker.press("down")
    assert "damaged" not in "\n".join(shown(picker))
    assert picker.press("enter") == "chosen"


def test_nothing_in_a_session_can_act_on_the_terminal() -> None:
    hostile = Choice("s\x1b[2J", "a\x07", NOW, "\x1b]0;x", ("persisted",), "why\x1b[m")
    picker = Picker([hostile], NOW, "")
    picker.press("\x1b")
    for text in (*shown(picker), *shown(Picker([], NOW, "bad\x1b[2J"))):
        assert not re.search(r"[\x00-\x1f]", text)


def test_what_cannot_be_resumed_is_found_out_in_the_list(tmp_path: Path) -> None:
    import sqlite3

    from dsh_actors_cli.resume import _refusal

    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store:
        for id in ("s-1", "s-2"):
            store.create(header(id))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE sessions SET policy = x'c1' WHERE id = 's-1'")
    connection.commit()
    connection.close()
    with SqliteReader(path) as reader:
        found = choices(reader)
    picker = Picker(found, NOW, refuse=lambda one: _refusal(one, path))
    assert [one.id for one in found] == ["s-2", "s-1"]
    assert picker.press("enter") == "go on"
    assert "it was not started by 'dsh-actors run'" in picker.notice
    picker.press("down")
    assert picker.press("enter") == "go on"
    assert "damaged" in picker.notice


@pytest.mark.behaviour(178)
def test_a_store_that_cannot_list_is_told_in_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dsh_actors_cli import keyboard, resume

    class Fake:
        frames: ClassVar[list[str]] = []

        @classmethod
        def opened(cls) -> Any:
            from contextlib import nullcontext

            return nullcontext(cls())

        def size(self) -> os.terminal_size:
            return os.terminal_size((80, 24))

        def draw(self, lines: list[str]) -> None:
            self.frames.append("\n".join(lines))

        def key(self, _on_resize: Any) -> str:
            return "enter" if len(self.frames) == 1 else "escape"

    def fail(*_: Any) -> Any:
        raise StoreError("the disk is gone")

    path = tmp_path / "sessions.db"
    SqliteStore(path).close()
    monkeypatch.setattr(keyboard, "Keyboard", Fake)
    monkeypatch.setattr(SqliteReader, "list", fail)
    assert resume._pick(path) == (None, "the disk is gone")
    assert len(Fake.frames) == 2
    assert all("the sessions cannot be listed: the disk is gone" in one for one in Fake.frames)


# -- the terminal -------------------------------------------------------------------------------


def test_keys_are_read_however_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    controller, terminal = pty.openpty()
    saved = os.dup(0), os.dup(2)
    os.dup2(reading, 0)
    os.dup2(terminal, 2)
    try:
        keyboard = Keyboard()

        def keys(*chunks: bytes) -> list[str]:
            for chunk in chunks:
                os.write(writing, chunk)
            os.write(writing, b"\x04")
            found = []
            while (key := keyboard.key(lambda: None)) != "interrupt":
                found.append(key)
            return found

        assert keys(b"\x1b[A\x1bOB\x1b[5~\x1b[6~", b"\r") == [
            "up", "down", "page up", "page down", "enter"
        ]  # fmt: skip
        assert keys(b"a\xc3", b"\xa9\xe2\x9c\x93\xf0\x9f\x98\x80\x7f") == [
            "a", "é", "✓", "😀", "backspace"
        ]  # fmt: skip
        assert keys(b"\x1b[1;5Cb\xff") == ["unknown", "b", "\ufffd"]
        os.write(writing, b"\x1b")
        assert keyboard.key(lambda: None) == "escape"
        os.close(writing)
        assert keyboard.key(lambda: None) == "interrupt"
    finally:
        for descriptor, place in zip(saved, (0, 2), strict=True):
            os.dup2(descriptor, place)
        for descriptor in (*saved, reading, controller, terminal):
            os.close(descriptor)


class ResumeTerminal(Terminal):
    command: ClassVar = [*RUN[:-1], "resume"]


@pytest.fixture
def chooser(home: Path) -> Any:
    run = ResumeTerminal(home)
    yield run
    if run.process.poll() is None:
        run.process.kill()
    run.hang_up()
    run.process.communicate()


def attributes(terminal: Terminal) -> Any:
    return termios.tcgetattr(terminal.controller)


def test_a_session_is_chosen_and_resumed_in_place(home: Path, tmp_path: Path) -> None:
    path = tree(home, "id: a, behaviour: '!tell', prompt: 1")
    sessions = [told(home, "run", path)["session_id"] for _ in range(2)]
    listed = dsh("resume", home=home)
    assert listed.returncode == 2
    assert f"give an ID; the newest: {sessions[1]}, {sessions[0]};" in listed.stderr
    run = ResumeTerminal(home)
    before = attributes(run)
    try:
        run.until("2 of 2")
        assert f"❯ {sessions[1]}" in run.seen
        run.type(b"\x1b[B")
        run.until(f"❯ {sessions[0]}")
        run.type(b"\r")
        code, out = run.end()
    finally:
        run.hang_up()
    assert code == 0, run.seen
    assert f'"session_id": "{sessions[0]}"' in out
    given_back = run.seen.index("\x1b[?25h\x1b[?1049l")
    assert run.seen.index(f"dsh-actors run {path} --resume {sessions[0]}") > given_back
    assert before is not None
    assert [e.type for e in log_of(home, sessions[0]).events].count("agent/resumed") == 1


@pytest.mark.parametrize("how", ["Ctrl-C", "Esc", "SIGTERM"])
def test_the_terminal_is_given_back(chooser: ResumeTerminal, how: str) -> None:
    before = attributes(chooser)
    chooser.until("  there are no sessions yet")
    assert attributes(chooser) != before
    if how == "SIGTERM":
        chooser.process.terminate()
    else:
        chooser.type(b"\x03" if how == "Ctrl-C" else b"\x1b")
    deadline = time.monotonic() + PATIENCE
    chooser.until("\x1b[?1049l")
    while attributes(chooser) != before:
        assert time.monotonic() < deadline
    code, _ = chooser.end()
    assert code == (143 if how == "SIGTERM" else 130)
    assert "Traceback" not in chooser.seen
