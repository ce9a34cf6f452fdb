"""``dsh-actors sessions list|show``: what the store holds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option, store_option
from dsh_actors_cli.render.events import event_text, readable
from dsh_actors_cli.session_verbs import (
    export_session,
    fork_session,
    import_sessions,
    remove_sessions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from dsh_actors.errors import Holder
    from dsh_actors.sessions import Event, SessionHeader, SessionInfo, SqliteReader
    from dsh_actors_cli.render.style import Style

__all__ = ["sessions"]

_EPILOG = """\b
Examples:
  dsh-actors sessions list
  dsh-actors sessions list --all --limit 100
  dsh-actors sessions list --json | jq '.[] | select(.status == "failed") | .id'
  dsh-actors sessions show s-20260101-120000
  dsh-actors sessions export --tree s-20260101-120000 > sessions.jsonl
  dsh-actors sessions import sessions.jsonl
  dsh-actors sessions fork s-20260101-120000 --at 12
  dsh-actors sessions rm s-20260101-120000
"""
# The first rows of a long list, when it is for people; --limit and --json show more.
_ROWS = 20
# What a narrow terminal does not show, the least needed first.
_SPARE = ("behaviour", "took", "events", "created", "agents")


@click.group(epilog=_EPILOG)
def sessions() -> None:
    """List, show, move, fork and remove the stored sessions of agents.

    Each agent keeps a session: the log of its prompts, turns and results. An ID may be cut
    short as long as it is the only such one.
    """


for _verb in (export_session, import_sessions, fork_session, remove_sessions):
    sessions.add_command(_verb)


@sessions.command("list", epilog=_EPILOG)
@click.option("--all", "show_all", is_flag=True, help="Show the sessions of children as well.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show the newest N.")
@json_option
@store_option
def list_sessions(show_all: bool, limit: int | None, as_json: bool, store: Path | None) -> int:
    """List the sessions, newest first.

    One line for each tree that ran, with the number of its agents; with --all or --json, one
    for each agent. A session is interrupted if its agent has not ended and no living system
    works on it.
    """
    with _open(store, may_be_missing=True) as reader:
        found = [] if reader.missing else reader.get.list(limit=limit if as_json else None)
        holders = {} if reader.missing else reader.get.holders()
    if as_json:
        data = [_info_data(info, holders.get(info.id)) for info in found]
        click.echo(output.to_json(data, ascii_only=_on_terminal()))
        return exits.DONE
    if not found:
        click.echo("there are no sessions yet; 'dsh-actors run TREE' makes some", err=True)
        return exits.DONE
    rows = found if show_all else [info for info in found if info.parent is None]
    shown = rows[: limit or _ROWS]
    for line in _list_lines(shown, Counter(info.root for info in found), holders):
        click.echo(line)
    if len(shown) < len(rows):
        click.echo(f"... and {len(rows) - len(shown)} older; see --limit", err=True)
    return exits.DONE


@sessions.command("show", short_help="Show a session and its events.", epilog=_EPILOG)
@click.argument("session_id", metavar="ID")
@json_option
@store_option
def show_session(session_id: str, as_json: bool, store: Path | None) -> int:
    """Show the session ID, which may be cut short as long as it is the only such one."""
    with _open(store) as reader:
        header, stored, damage = reader.get.load(reader.get.resolve(session_id))
        info, *below = reader.get.family(header.id)
        holder = reader.get.holder_of(header.id)
    events = [readable(event) for event in stored]
    children = [child for child in below if child.parent == header.id]
    if as_json:
        data = {
            **_plain(header),
            "status": info.status,
            "holder": None if holder is None else holder._asdict(),
            "damage": list(damage),
            "children": [child.id for child in children],
            "events": [_plain(event) for event in events],
        }
        click.echo(output.to_json(data, ascii_only=_on_terminal()))
        return exits.DONE
    facts = _facts(header, info, children, holder)
    for line in _session_lines(header, facts, damage, events):
        click.echo(line)
    return exits.DONE


class _Reader:
    """The store, opened for reading; or nothing, if there is no store yet."""

    def __init__(self, reader: SqliteReader | None) -> None:
        self._reader = reader

    @property
    def missing(self) -> bool:
        return self._reader is None

    @property
    def get(self) -> SqliteReader:
        assert self._reader is not None
        return self._reader

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()


def _open(store: Path | None, *, may_be_missing: bool = False) -> _Reader:
    from dsh_actors.sessions import SqliteReader, default_store_path

    path = store or default_store_path()
    if store is None and may_be_missing and not path.exists():
        return _Reader(None)
    return _Reader(SqliteReader(path))


def _plain(record: Any) -> dict[str, Any]:
    from dataclasses import fields

    return {field.name: getattr(record, field.name) for field in fields(record)}


def _info_data(info: SessionInfo, holder: Holder | None) -> dict[str, Any]:
    return {**_plain(info), "holder": None if holder is None else holder._asdict()}


def _status(info: SessionInfo, holder: Holder | None) -> str:
    from dsh_actors.sessions import ACTIVE

    status = "interrupted" if info.status == ACTIVE and holder is None else info.status
    return f"{status}, damaged" if info.damaged else status


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _style() -> Style:
    from dsh_actors_cli.render.style import Style, wants_colour

    return Style(wants_colour(sys.stdout))


def _list_lines(
    infos: Sequence[SessionInfo], sizes: Counter[str], holders: Mapping[str, Holder]
) -> list[str]:
    from dsh_actors_cli.render.result import table
    from dsh_actors_cli.render.style import cell_width

    rows: list[dict[str, Any]] = [
        {
            "id": info.id,
            "agent": info.agent_id,
            "status": _status(info, holders.get(info.id)),
            "created": _moment(info.created),
            "took": _took(info),
            "events": info.events,
            "agents": sizes[info.root] if info.parent is None else None,
            "behaviour": info.behaviour,
        }
        for info in infos
    ]
    width = _columns() if _on_terminal() else None
    if width is not None:
        for spare in _SPARE:
            if max(map(cell_width, table(rows, most=len(rows)))) <= width:
                break
            for row in rows:
                del row[spare]
    return table(rows, width=width, style=_style(), most=len(rows), whole=("id",))


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _took(info: SessionInfo) -> str:
    from dsh_actors_cli.duration import show_duration

    return show_duration(max(0.0, info.ended - info.created)) if info.ended is not None else "-"


def _facts(
    header: SessionHeader,
    info: SessionInfo,
    children: Sequence[SessionInfo],
    holder: Holder | None,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "session": header.id,
        "agent": header.agent_id,
        "status": _status(info, holder),
        "behaviour": header.behaviour,
        "created": _moment(header.created),
        "system": header.system_id,
    }
    if holder is not None:
        facts["held by"] = f"{holder.name}, process {holder.pid} on {holder.host}"
    if header.parent is not None:
        facts |= {"parent": header.parent, "depth": header.depth}
    if header.forked_from is not None:
        facts["forked from"] = f"{header.forked_from}, {header.forked_at} events"
    if children:
        counts = Counter(child.status for child in children)
        facts["children"] = ", ".join(f"{count} {name}" for name, count in counts.items())
    return facts


def _session_lines(
    header: SessionHeader, facts: dict[str, Any], damage: Sequence[str], events: Sequence[Event]
) -> Iterator[str]:
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.result import render_result

    yield render_result(facts, width=10_000, style=_style())
    style = _style()
    for problem in damage:
        yield style(display_text(f"damaged: {problem}"), "red")
    yield ""
    places = len(str(len(events)))
    for event in events:
        head = f"{event.seq:>{places}}  {event.time - header.created:+8.3f}s"
        kind = style(f"{display_text(event.type):<16}", "cyan")
        told, block = event_text(event.data)
        yield f"{style(head, 'dim')}  {kind}  {told}".rstrip()
        for line in block:
            yield style(f"{'':{places}}    {line}", "dim")
