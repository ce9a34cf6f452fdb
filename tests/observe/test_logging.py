from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dsh_actors.observe import logging
from dsh_actors.observe.display import display_text

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def fresh_level(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(logging.VARIABLE, raising=False)
    logging._threshold = None
    yield
    logging._threshold = None
    logging._as_json = False


def test_warnings_are_written_and_infos_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.get_logger("dsh_actors.x")
    log.info("quiet")
    log.warning("something happened", agent="a/1", text="two words")
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.endswith("dsh_actors.x: something happened agent=a/1 text='two words'")
    assert " warning " in line


def test_the_level_comes_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(logging.VARIABLE, "debug:json")
    logging.get_logger("m").bind(agent="a").debug("hello", n=1)
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "hello"
    assert (line["agent"], line["n"], line["logger"], line["level"]) == ("a", 1, "m", "debug")


def test_a_wrong_level_is_reported_once_and_ignored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(logging.VARIABLE, "loud")
    log = logging.get_logger("m")
    log.info("no")
    log.warning("yes")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "DSH_ACTORS_LOG is ignored" in lines[0]
    assert "'loud'" in lines[0]


def test_an_exception_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError("red \x1b[31m")
    except RuntimeError:
        logging.get_logger("m").exception("it broke")
    text = capsys.readouterr().err
    assert "Traceback (most recent call last):\n" in text
    assert "RuntimeError: red \\x1b[31m" in text
    assert "\x1b" not in text


def test_a_closed_stderr_loses_the_line_and_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = logging.dropped_lines()
    monkeypatch.setattr(sys, "stderr", None)
    logging.get_logger("m").error("nobody hears this")
    assert logging.dropped_lines() == before + 1


def test_structlog_is_imported_only_for_a_line_that_is_written() -> None:
    code = (
        "import sys\n"
        "from dsh_actors.observe.logging import get_logger\n"
        "log = get_logger('m')\n"
        "log.info('nothing')\n"
        "assert 'structlog' not in sys.modules\n"
        "log.error('something')\n"
        "assert 'structlog' in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "something" in run.stderr


@pytest.mark.behaviour(177)
@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text, naïve, 日本語, 👩‍👩‍👧", "plain text, naïve, 日本語, 👩‍👩‍👧"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),
        ("\udcff", "\\udcff"),
        (42, "42"),
    ],
)
def test_display_text_shows_controls_as_text(raw: object, shown: str) -> None:
    assert display_text(raw) == shown


def test_display_text_may_keep_lines() -> None:
    assert display_text("a\n\tb\x1b[m", multiline=True) == "a\n\tb\\x1b[m"
