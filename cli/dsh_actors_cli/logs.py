"""``dsh-actors logs``: the events of one session, and those that come."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option, store_option
from dsh_actors_cli.render.events import event_text, readable
from dsh_actors_cli.session_verbs import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dsh_actors.sessions import Event, SqliteReader

__all__ = ["logs"]

_EPILOG = """\b
Examples:
  dsh-actors logs s-20260101-120000
  dsh-actors logs -f s-20260101-120000
  dsh-actors logs s-20260101-120000 --json | jq 'select(.type == "turn/end")'
"""
# Seconds between two looks at the store.
_EVERY = 0.2
# How long a session that is said to be live may be without a holder: between two systems, say.
_ORPHANED_AFTER = 1.0


@click.command(epilog=_EPILOG)
@click.argument("session_id", metavar="SESSION")
@click.option("-f", "--follow", is_flag=True, help="Go on until the session ends.")
@json_option
@store_option
def logs(session_id: str, follow: bool, as_json: bool, store: Path | None) -> int:
    """Print the events of SESSION, an id that may be cut short, one line for each.

    With --json each line is an object. With -f new events are printed as they are stored,
    until the agent of the session has ended.
    """
    show = _as_json() if as_json else _as_text()
    with open_reader(store) as reader:
        found = reader.resolve(session_id)
        shown = _show_from(reader, found, 0, show)
        if follow:
            _follow(reader, found, shown, show)
    return exits.DONE


def _show_from(
    reader: SqliteReader, session_id: str, start: int, show: Callable[[Event], Iterator[str]]
) -> int:
    """Print the events from number `start` on, and return the number of the next one."""
    events: Sequence[Event]
    if start == 0:
        log = reader.load(session_id)
        events = log.events
        for problem in log.damage:
            output.print_warning(f"session {session_id} is damaged: {problem}")
    else:
        events = reader.events_from(session_id, start)
    for event in events:
        for line in show(readable(event)):
            click.echo(line)
        start = event.seq + 1
    sys.stdout.flush()
    return start


def _follow(
    reader: SqliteReader, session_id: str, shown: int, show: Callable[[Event], Iterator[str]]
) -> None:
    from dsh_actors.sessions.events import ACTIVE

    orphaned: float | None = None
    while True:
        head = reader.log(session_id)
        if head.next_seq > shown:
            shown = _show_from(reader, session_id, shown, show)
        elif head.status != ACTIVE:
            return
        elif reader.holder_of(session_id) is not None:
            orphaned = None
        elif orphaned is None:
            orphaned = time.monotonic()
        elif time.monotonic() - orphaned > _ORPHANED_AFTER:
            output.print_warning(
                f"nobody works on session {session_id} any more, though it has not ended: its "
                f"system is gone; 'dsh-actors resume {session_id}' goes on with it"
            )
            return
        time.sleep(_EVERY)


def _as_json() -> Callable[[Event], Iterator[str]]:
    ascii_only = sys.stdout.isatty()

    def show(event: Event) -> Iterator[str]:
        record: dict[str, Any] = {
            "seq": event.seq,
            "time": event.time,
            "type": event.type,
            "data": event.data,
        }
        yield output.to_json(record, ascii_only=ascii_only)

    return show


def _as_text() -> Callable[[Event], Iterator[str]]:
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.style import Style, wants_colour

    style = Style(wants_colour(sys.stdout))
    day = ""

    def show(event: Event) -> Iterator[str]:
        nonlocal day
        moment = time.localtime(event.time)
        today = time.strftime("%Y-%m-%d", moment)
        if today != day:
            day = today
            yield style(today, "bold")
        clock = f"{time.strftime('%H:%M:%S', moment)}.{int(event.time % 1 * 1000):03d}"
        told, block = event_text(event.data)
        kind = style(f"{display_text(event.type):<16}", "cyan")
        yield f"{style(clock, 'dim')}  {kind}  {told}".rstrip()
        for line in block:
            yield style(f"{'':12}    {line}", "dim")

    return show
