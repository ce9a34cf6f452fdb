"""``dsh-actors resume``: goes on with a session as it was run, in this process's place."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import store_option

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_actors.sessions import SqliteReader
    from dsh_actors_cli.pickable import Choice

__all__ = ["resume"]

_EPILOG = """\b
Examples:
  dsh-actors resume
  dsh-actors resume s-20260101-120000

\b
The session's tree file and options are those that it was run with. To give others, or a
new prompt: dsh-actors run TREE --resume ID [PROMPT]
"""
# How many ids are named where there is no list to choose from.
_NAMED = 3


@click.command(epilog=_EPILOG)
@click.argument("session_id", metavar="[ID]", required=False)
@store_option
def resume(session_id: str | None, store: Path | None) -> int:
    """Resume the session ID, or one that is chosen from a list.

    ID may be cut short as long as it is the only such one.
    """
    if session_id is not None:
        with _open(store) as reader:
            return _resume(reader, reader.resolve(session_id), store)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"there is no terminal to choose on; give an ID{_newest(store)}")
    chosen, problem = _pick(store)
    if problem:
        return output.print_error(problem, exits.FAILED)
    if chosen is None:
        return exits.INTERRUPTED
    with _open(store) as reader:
        return _resume(reader, chosen.id, store)


def _resume(reader: SqliteReader, session_id: str, store: Path | None) -> NoReturn:
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.arguments import shell_line
    from dsh_actors_cli.hand_over import replace_process, resumption

    header = reader.load(session_id).header
    words, folder = resumption(header, store.absolute() if store is not None else None)
    reader.close()
    line = shell_line(words)
    if folder != os.getcwd():
        line = f"cd {shell_line([folder])} && {line}"
    click.echo(display_text(line), err=True)
    replace_process(words, folder)


def _open(store: Path | None) -> SqliteReader:
    from dsh_actors.errors import SessionNotFound
    from dsh_actors.sessions import SqliteReader, default_store_path

    path = store or default_store_path()
    if store is None and not path.exists():
        raise SessionNotFound("there are no sessions yet; 'dsh-actors run TREE' makes some")
    return SqliteReader(path)


def _newest(store: Path | None) -> str:
    from dsh_actors.errors import StoreError
    from dsh_actors_cli.pickable import choices

    try:
        with _open(store) as reader:
            found = [choice.id for choice in choices(reader) if not choice.refusal]
    except StoreError as error:
        return f": {error}"
    if not found:
        return "; there are no sessions to resume"
    more = " and older ones" if len(found) > _NAMED else ""
    return f"; the newest: {', '.join(found[:_NAMED])}{more}"


def _refusal(choice: Choice, store: Path | None) -> str:
    """Return why the session cannot be resumed, as its header says; empty if it can."""
    from dsh_actors.errors import DshActorsError
    from dsh_actors_cli.hand_over import resumption

    try:
        with _open(store) as reader:
            resumption(reader.load(choice.id).header, store)
    except DshActorsError as error:
        return str(error)
    return ""


def _pick(store: Path | None) -> tuple[Choice | None, str]:
    """Return what was chosen, if anything was, and why nothing could be, if so."""
    from dsh_actors.errors import SessionNotFound, StoreError
    from dsh_actors_cli.keyboard import Keyboard
    from dsh_actors_cli.pickable import choices
    from dsh_actors_cli.picker import Picker
    from dsh_actors_cli.render.style import Style, wants_colour

    problem = ""
    found: list[Choice] = []
    try:
        with _open(store) as reader:
            found = choices(reader)
    except SessionNotFound:
        found = []  # there is no store yet
    except StoreError as error:
        problem = str(error)
    picker = Picker(found, time.time(), problem, lambda choice: _refusal(choice, store))
    style = Style(wants_colour(sys.stderr))
    with Keyboard.opened() as keyboard:

        def draw() -> None:
            keyboard.draw(picker.frame(*keyboard.size(), style))

        while True:
            draw()
            if picker.press(keyboard.key(draw)) != "go on":
                return picker.chosen, problem
