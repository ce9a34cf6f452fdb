"""The one builder of the command that resumes a session, and what shells and parsers make of it."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsh_actors.errors import UsageError
from dsh_actors.observe.display import display_text
from dsh_actors.sessions import SessionHeader
from dsh_actors_cli.app import cli
from dsh_actors_cli.arguments import (
    Options,
    launch_record,
    recorded_options,
    resume_arguments,
    shell_line,
)
from dsh_actors_cli.exit_line import exit_line, write_exit_line
from dsh_actors_cli.hand_over import resumption
from dsh_actors_cli.render.style import Style
from dsh_actors_cli.run import parse_run

ID = "s-20261130-211342-4f7k2a9c"

# What can stand in an argument: everything but NUL, also bytes that are no UTF-8.
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
words = st.one_of(text, st.binary().map(lambda b: os.fsdecode(b.replace(b"\0", b"\x01"))))
names = words.filter(bool)
options = st.builds(
    Options,
    tree=names,
    config=st.lists(names, max_size=3).map(tuple),
    settings=st.lists(st.builds("{}={}".format, st.just("key"), text), max_size=3).map(tuple),
    workers=st.none() | st.integers(1, 10**9),
    form=st.sampled_from(["text", "json", "stream-json"]),
    timeout=st.none() | st.floats(1e-300, 1e300),
    store=st.none() | names.map(lambda name: Path(f"/not there/{name}")),
)


@pytest.mark.behaviour(173)
@given(options=options, prompt=st.none() | text)
@example(options=Options("-x.yaml", config=("--no-store",), settings=("-a=--",)), prompt="--help")
@example(options=Options("t.yaml", timeout=1e-07), prompt=None)
def test_what_is_parsed_is_what_was_asked_for_but_for_the_prompt(
    options: Options, prompt: str | None
) -> None:
    program, verb, *rest = resume_arguments(replace(options, prompt=prompt), ID)
    assert (program, verb) == ("dsh-actors", "run")
    assert parse_run(rest) == replace(options, resume=ID)


@settings(max_examples=20)
@given(st.lists(words, max_size=50))
@example(["a'b", "\x1b]0;x\x07", "$HOME", "\\", "a\nb", "\x0012"[1:], "\u202e", "~", "*", ""])
def test_a_shell_reads_the_words_of_the_line(words: list[str]) -> None:
    script = f"printf '%s\\0' x {shell_line(words)}"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    assert printed.split(b"\0")[1:-1] == [os.fsencode(word) for word in words]


@pytest.mark.behaviour(177)
@given(options)
def test_nothing_in_the_line_can_act_on_a_terminal(options: Options) -> None:
    line = exit_line(options, ID)
    assert display_text(line) == line


@pytest.mark.behaviour(174)
@given(options=options.map(lambda o: replace(o, store=None)), store=st.sampled_from([None, "/s"]))
def test_the_exit_line_and_the_hand_over_are_the_same_command(
    options: Options, store: str | None
) -> None:
    options = replace(options, store=Path(store) if store is not None else None)
    built = resume_arguments(options, ID)
    assert exit_line(options, ID) == f"to resume: {shell_line(built)}"
    words, folder = resumption(header(launch=launch_record(options)), options.store)
    assert words == built
    assert folder == os.getcwd()


def header(parent: str | None = None, **options: Any) -> SessionHeader:
    return SessionHeader(ID, "a", "system", ID, parent, 0, "m:f", 1.0, options=options)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (None, "was not started by 'dsh-actors run'"),
        ({"cwd": "/"}, "its 'tree'"),
        ({"cwd": "/", "tree": ["t"]}, "its 'tree' is ['t']"),
        ({"cwd": "/", "tree": "t", "set": "a=b"}, "its 'set'"),
        ({"cwd": "/", "tree": "t", "workers": True}, "its 'workers'"),
        ({"cwd": "/", "tree": "t", "timeout": "1"}, "its 'timeout'"),
        ({"cwd": "/", "tree": "t", "output-format": "xml"}, "its 'output-format'"),
        ({"tree": "t"}, "its 'cwd' is None"),
        ({"cwd": "/not/there", "tree": "t"}, "/not/there is not there any more"),
    ],
)
def test_a_record_that_does_not_say_how_it_was_run_is_refused(record: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)) as error:
        resumption(header(launch=record), None)
    assert f"dsh-actors run TREE --resume {ID}" in str(error.value)


def test_the_session_of_a_child_names_its_root() -> None:
    with pytest.raises(UsageError, match=f"child, 'a'.*dsh-actors resume {ID}"):
        resumption(header("s-parent"), None)


def test_a_record_is_plain_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dsh_actors import codec

    monkeypatch.chdir(tmp_path)
    asked = Options("t.yaml", "prompt", ("c",), ("a=b",), 3, "json", 1.5)
    record = codec.decode(codec.encode(launch_record(asked)))
    assert record["cwd"] == str(tmp_path)
    assert recorded_options(record, None) == replace(asked, prompt=None)


@pytest.mark.behaviour(177)
def test_a_launcher_cannot_paint_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr("sys.stderr", printed)
    write_exit_line("\x1b[31mred\x1b[0m \x07", Style(True))
    assert printed.getvalue() == "\x1b[2m\\x1b[31mred\\x1b[0m \\x07\x1b[0m\n"


@pytest.mark.behaviour(170)
def test_without_the_slot_nothing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr("sys.stderr", printed)
    write_exit_line(None, Style(True))
    assert printed.getvalue() == ""


@pytest.mark.behaviour(176)
def test_only_run_resumes_by_an_option() -> None:
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        command = cli.get_command(context, verb)
        assert command is not None
        named = command.commands if isinstance(command, click.Group) else {verb: command}
        for name, each in named.items():
            takes = any("--resume" in option.opts for option in each.params)
            assert takes == (name == "run"), f"{verb} {name}"


@pytest.mark.behaviour(176)
@pytest.mark.parametrize("verb", ["check", "doctor", "sessions", "resume"])
def test_no_other_verb_takes_it(verb: str) -> None:
    with pytest.raises(click.NoSuchOption):
        cli.main([verb, "--resume", ID], standalone_mode=False)


def test_the_words_are_those_of_the_invocation() -> None:
    asked = Options(
        "my tree.yaml", "again", ("c.yaml",), ("a=b c",), 2, "json", 300.0, Path("/tmp/s.db")
    )
    line = shell_line(resume_arguments(asked, ID))
    assert shlex.split(line) == [
        *("dsh-actors", "run", "my tree.yaml", "--resume", ID, "--config", "c.yaml"),
        *("--set", "a=b c", "--workers", "2", "--output-format", "json", "--timeout", "300"),
        *("--store", "/tmp/s.db"),
    ]
