"""``dsh-actors sessions export|import|fork|rm``: sessions go out, come in, branch and go."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option, store_option
from dsh_actors_cli.render.receipt import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dsh_actors.sessions import SessionHeader, SqliteReader, SqliteStore
    from dsh_actors_cli.portable import PortableSession

__all__ = ["export_session", "fork_session", "import_sessions", "remove_sessions"]

# What an import waits for the disk, in seconds, before it says that it cannot write.
_PATIENCE = 60.0


@click.command("export", short_help="Write a session as lines of JSON.")
@click.argument("session_id", metavar="ID")
@click.option("--tree", "whole", is_flag=True, help="Export the sessions below it as well.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE, which must not exist yet, instead of stdout.",
)
@store_option
def export_session(session_id: str, whole: bool, target: Path | None, store: Path | None) -> int:
    """Write the session ID as lines of JSON that 'sessions import' reads.

    The file holds all that the session does: prompts, results and arguments, in plain text.
    """
    from dsh_actors_cli.portable import to_lines

    with open_reader(store) as reader:
        found = reader.resolve(session_id)
        ids = [info.id for info in reader.family(found)] if whole else [found]
        lines = to_lines(_loaded(reader, ids), time.time())
        if target is None:
            for line in lines:
                click.echo(line)
            return exits.DONE
        with _new_file(target) as file:
            for line in lines:
                file.write(f"{line}\n")
    click.echo(f"exported {plural(len(ids), 'session')} to {_shown(target)}", err=True)
    return exits.DONE


@click.command("import", short_help="Read sessions that were exported.")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--new-ids", is_flag=True, help="Give the sessions new ids, to have them twice.")
@json_option
@store_option
def import_sessions(file: str, new_ids: bool, as_json: bool, store: Path | None) -> int:
    """Read the sessions in FILE, which 'sessions export' has written; '-' is stdin.

    The whole file is checked before anything is stored. A session that the store has already
    is an error, unless --new-ids is given.
    """
    from dsh_actors.sessions import new_session_id
    from dsh_actors_cli.portable import from_lines, renamed

    name = "stdin" if file == "-" else file
    sessions = from_lines(_read_lines(file, name), name)
    names = {session.header.id: session.header.id for session in sessions}
    if new_ids:
        sessions, names = renamed(sessions, new_session_id)
    with open_store(store) as target:
        _store_all(target, sessions, name)
    if as_json:
        click.echo(output.to_json([{"id": new, "was": old} for old, new in names.items()]))
        return exits.DONE
    for session, old in zip(sessions, names, strict=True):
        header = session.header
        was = f", was {_shown(old)}" if old != header.id else ""
        click.echo(
            f"{_shown(header.id)}  {_shown(header.agent_id)}, {_shown(session.status)}, "
            f"{plural(len(session.events), 'event')}{was}"
        )
    return exits.DONE


@click.command("fork", short_help="Begin a new session with the events of another one.")
@click.argument("session_id", metavar="ID")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="N",
    help="Take the first N events only; as default all of them.",
)
@json_option
@store_option
def fork_session(session_id: str, at: int | None, as_json: bool, store: Path | None) -> int:
    """Begin a new session with the events of ID, and print the new one's id.

    Both go their own ways from there; 'dsh-actors resume' continues either.
    """
    with open_store(store, must_exist=True) as target:
        source = target.resolve(session_id)
        made = target.fork(source, at=at)
        events = len(target.load(made).events)
    if as_json:
        click.echo(output.to_json({"id": made, "forked_from": source, "events": events}))
    else:
        click.echo(made)
    return exits.DONE


@click.command("rm", short_help="Remove sessions, with all those below them.")
@click.argument("session_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@json_option
@store_option
def remove_sessions(
    session_ids: Sequence[str], yes: bool, as_json: bool, store: Path | None
) -> int:
    """Remove the sessions ID..., each with all those below it, for good.

    A session that somebody works on is refused, and named with its holder.
    """
    with open_store(store, must_exist=True) as target:
        ids = list(dict.fromkeys(target.resolve(given) for given in session_ids))
        if not yes and sys.stdin.isatty():
            _ask(target, ids)
        removed: dict[str, int] = {}
        failed = _remove_each(target, ids, removed)
    if as_json:
        click.echo(output.to_json({"removed": removed}))
    else:
        for id, count in removed.items():
            below = f" and {count - 1} below it" if count > 1 else ""
            click.echo(f"removed {_shown(id)}{below}", err=True)
    return failed


def _remove_each(store: SqliteStore, ids: Sequence[str], removed: dict[str, int]) -> int:
    """Remove what can be; print an error for each of the others; return the exit code."""
    from dsh_actors.errors import SessionNotFound, StoreError

    code = exits.DONE
    for id in ids:
        try:
            removed[id] = store.delete(id)
        except SessionNotFound:
            continue  # it went with its parent, which was named before it
        except StoreError as error:
            code = output.print_error(str(error), exits.FAILED)
    return code


def _ask(store: SqliteStore, ids: Sequence[str]) -> None:
    for id in ids:
        info, *below = store.family(id)
        more = f" and {plural(len(below), 'session')} below it" if below else ""
        click.echo(
            f"{_shown(info.id)}  {_shown(info.agent_id)}, {_shown(info.status)}, "
            f"{plural(info.events, 'event')}{more}",
            err=True,
        )
    if not click.confirm("Remove for good?", err=True):
        raise click.Abort


def _shown(text: object) -> str:
    from dsh_actors.observe.display import display_text

    return display_text(text)


@contextmanager
def open_reader(store: Path | None) -> Iterator[SqliteReader]:
    """Open the store to read it, for as long as the block lasts."""
    from dsh_actors.sessions import SqliteReader, default_store_path

    reader = SqliteReader(store or default_store_path())
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def open_store(store: Path | None, *, must_exist: bool = False) -> Iterator[SqliteStore]:
    """Open the store to write to it, for as long as the block lasts.

    Parameters:
        store: its path; None for the default one.
        must_exist: whether it may not be made, since there would be nothing in it.
    """
    from dsh_actors.errors import StoreError
    from dsh_actors.sessions import SqliteStore, default_store_path

    path = store or default_store_path()
    if must_exist and not path.exists():
        raise StoreError(f"{path}: there is no session store; 'dsh-actors run TREE' makes one")
    opened = SqliteStore(path)
    try:
        yield opened
    finally:
        opened.close(_PATIENCE)


def _loaded(reader: SqliteReader, ids: Sequence[str]) -> Iterator[PortableSession]:
    from dsh_actors_cli.portable import PortableSession

    statuses = {info.id: info.status for id in ids for info in reader.family(id)[:1]}
    for id in ids:
        header, events, damage = reader.stored(id)
        if damage:
            output.print_warning(
                f"session {id} is damaged, what can be read is exported: {'; '.join(damage[:3])}"
            )
        yield PortableSession(header, statuses[id], events, tuple(damage))


@contextmanager
def _new_file(target: Path) -> Iterator[IO[str]]:
    """Write a new private file that appears under its name only once it is whole."""
    if target.exists():
        raise click.UsageError(f"{target}: it exists already; give another name or remove it")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yield file
        os.link(part, target)  # unlike a rename, it never replaces what came meanwhile
    finally:
        part.unlink()


def _read_lines(file: str, name: str) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8").split("\n")
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{name}: byte {error.start} is not UTF-8: this is no export"
        ) from None


def _store_all(store: SqliteStore, sessions: Sequence[PortableSession], name: str) -> None:
    """Store all the sessions, or, if one cannot be stored, none."""
    from dsh_actors.errors import StoreError

    known = {info.id for info in store.list()}
    for session in sessions:
        if session.header.id in known:
            raise StoreError(
                f"{name}: session {session.header.id!r} is in the store {store.path} already; "
                "--new-ids imports it under another id"
            )
    ours = {session.header.id for session in sessions}
    store.bring_in(
        (_rooted(session, known | ours), session.events, session.status) for session in sessions
    )


def _rooted(session: PortableSession, known: set[str]) -> SessionHeader:
    """Return the header; as that of a root, if its parent is neither here nor in the store."""
    from dataclasses import replace

    header = session.header
    if header.parent is None or header.parent in known:
        return header
    output.print_warning(
        f"session {header.id} stands alone: its parent {header.parent} is not in the store"
    )
    return replace(header, parent=None, root=header.id)
