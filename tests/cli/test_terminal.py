"""The command on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

import psutil
import pytest
from cli_runs import PATIENCE, RUN, assert_nothing_left, environment, processes_of, tree_file

from dsh_actors_cli.render.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Terminal:
    """A run whose controlling terminal is ours; stdout is a pipe, as in ``run ... | less``."""

    command: ClassVar = RUN
    shows_stdout = False

    def __init__(self, home: Path, *arguments: str, **variables: str) -> None:
        self.controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.seen = ""
        self.process = subprocess.Popen(
            [*self.command, *arguments],
            stdin=terminal,
            stdout=terminal if self.shows_stdout else subprocess.PIPE,
            stderr=terminal,
            text=True,
            env=environment(home, TERM="xterm-256color") | variables,
            cwd=home,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)

    def until(self, word: str) -> str:
        """Read until `word` is there; return all that has been seen."""
        deadline = monotonic() + PATIENCE
        while word not in self.seen:
            readable, _, _ = select.select([self.controller], [], [], deadline - monotonic())
            assert readable, f"{word!r} does not come after {self.seen!r}"
            self.read()
        return self.seen

    def read(self) -> bool:
        try:
            chunk = os.read(self.controller, 65536)
        except OSError:  # EIO: the other side has been closed
            return False
        self.seen += chunk.decode("utf-8", "replace")
        return bool(chunk)

    def type(self, keys: bytes) -> None:
        os.write(self.controller, keys)

    def end(self) -> tuple[int, str]:
        """Read to the end; return the exit code and stdout."""
        while self.controller >= 0 and self.read():
            pass
        stdout, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, stdout or ""

    def hang_up(self) -> None:
        if self.controller >= 0:
            os.close(self.controller)
            self.controller = -1


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert_nothing_left(tmp_path)


@pytest.fixture
def start(home: Path) -> Iterator[type[Terminal]]:
    started: list[Terminal] = []

    class Kept(Terminal):
        def __init__(self, *arguments: str, **variables: str) -> None:
            super().__init__(home, *arguments, **variables)
            started.append(self)

    yield Kept
    for terminal in started:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.hang_up()
        terminal.process.communicate()


def steps(home: Path, count: int = 20) -> str:
    return str(tree_file(home, f"id: a, behaviour: '@steps', isolation: pool, prompt: {count}"))


def after_the_frame(text: str) -> str:
    """What is left on the screen: all behind the last erasure."""
    return text.rpartition("\x1b[J")[2]


@pytest.mark.behaviour(170)
def test_a_live_tree_is_shown_and_taken_away(start: type[Terminal], home: Path) -> None:
    run = start(steps(home, 40))
    run.until("step 3")
    assert "pid " in run.until("━")
    assert run.end() == (0, "all steps\n")
    left = after_the_frame(run.seen)
    assert left.count("session s-") == 1
    assert left.splitlines()[0].startswith("\x1b[32mdone\x1b[0m in ")
    assert left.splitlines()[-2].startswith("session s-")
    assert left.splitlines()[-1].startswith("\x1b[2mto resume: dsh-actors run ")


def test_no_color_leaves_the_tree_without_colours(start: type[Terminal], home: Path) -> None:
    run = start(steps(home), NO_COLOR="1")
    run.until("step 1")
    assert run.end()[0] == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", run.seen)


def test_a_dumb_terminal_gets_plain_lines(start: type[Terminal], home: Path) -> None:
    run = start(steps(home), TERM="dumb")
    assert run.end() == (0, "all steps\n")
    assert "\x1b" not in run.seen
    assert "a: started" in run.seen


def test_colours_can_be_forced(home: Path) -> None:
    done = subprocess.run(
        [*RUN, steps(home, 2)],
        capture_output=True,
        text=True,
        env=environment(home, FORCE_COLOR="1"),
        timeout=PATIENCE,
        check=True,
    )
    assert "\x1b[32mdone" in done.stderr
    assert done.stdout == "all steps\n"


@pytest.mark.parametrize("isolation", ["inline", "own"])
def test_no_untrusted_text_reaches_the_terminal_raw(
    start: type[Terminal], home: Path, isolation: str
) -> None:
    tree = tree_file(home, f"id: a, behaviour: '@hostile', isolation: {isolation}, prompt: 1")
    run = start(str(tree))
    run.until("\\x1b]0;print\\x07")
    run.until("\\x1b]0;note\\x07")
    assert run.end() == (0, "\x1b]0;result\x07\n")  # a pipe gets the result as it is
    assert "\x1b]" not in run.seen
    assert "\x07" not in run.seen


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_ctrl_c_stops_the_tree_and_leaves_the_receipt(
    start: type[Terminal], home: Path, isolation: str
) -> None:
    tree = tree_file(home, f"id: a, behaviour: '@wait', isolation: {isolation}, prompt: 1")
    run = start(str(tree))
    run.until("working")
    run.type(b"\x03")
    assert run.end() == (130, "")
    left = after_the_frame(run.seen)
    assert "\x1b[33maborted\x1b[0m" in left
    assert "survivors" in left
    assert left.splitlines()[-2].startswith("session s-")
    assert left.splitlines()[-1].startswith("\x1b[2mto resume: dsh-actors run ")


def test_a_second_ctrl_c_exits_at_once(start: type[Terminal], home: Path) -> None:
    tree = tree_file(home, "id: a, behaviour: '@spin', isolation: own, prompt: 1", grace="60s")
    run = start(str(tree))
    run.until("working")
    run.type(b"\x03")
    run.until("press Ctrl-C again")
    run.type(b"\x03")
    assert run.end()[0] == 130
    assert run.seen.count("to resume: ") == 1
    assert after_the_frame(run.seen).startswith("\x1b[2mto resume: dsh-actors run ")


def test_a_terminal_that_takes_no_output_holds_up_nothing_but_what_is_shown(
    start: type[Terminal], home: Path
) -> None:
    run = start(str(tree_file(home, "id: a, behaviour: '@wait', isolation: own, prompt: 1")))
    run.until("working")
    run.type(b"\x13")  # Ctrl-S: from here on, every write to the terminal waits
    os.kill(run.process.pid, signal.SIGTERM)
    worker = [p for p in processes_of(home) if p.pid != run.process.pid]
    _, alive = psutil.wait_procs(worker, timeout=5)
    assert not alive
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.process.wait(PATIENCE) == 143


def test_a_closed_terminal_stops_the_tree(start: type[Terminal], home: Path) -> None:
    run = start(str(tree_file(home, "id: a, behaviour: '@wait', isolation: own, prompt: 1")))
    run.until("working")
    run.hang_up()
    assert run.process.wait(PATIENCE) == 129


def test_the_screen_shows_what_is_printed_above_the_frame() -> None:
    controller, terminal = pty.openpty()
    saved = os.dup(1), os.dup(2)
    os.dup2(terminal, 2)
    try:
        screen = Screen()
        os.write(2, b"one\ntw")
        assert screen.size().columns == 80
        screen.draw(["frame 1", "frame 2"])
        os.write(2, b"o\x1b[2J\nno end")
        screen.close()
    finally:
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (terminal, *saved):
            os.close(descriptor)
    seen = b""
    while True:
        try:
            chunk = os.read(controller, 4096)
        except OSError:
            break
        seen += chunk
    os.close(controller)
    text = seen.decode()
    assert "\rframe 1\x1b[K\r\n\rframe 2\x1b[K\r\n" in text
    assert "\x1b[2A\r" in text  # the end is written over the frame
    assert text.index("one") < text.index("two\\x1b[2J") < text.index("no end")
    assert "\x1b[2J" not in text
