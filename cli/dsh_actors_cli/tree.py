"""``dsh-actors tree``: the agents of a running system, once or as they change."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.control import ControlClient, RunningSystem

__all__ = ["tree"]

_EPILOG = """\b
Examples:
  dsh-actors tree
  dsh-actors tree census --watch
  dsh-actors tree --json | jq '.agents[].status'

\b
--watch goes on until the system ends. On a terminal the tree is redrawn in place; elsewhere it
is printed anew when it has changed.
"""
# Seconds between two looks, where they are printed one below the other.
_EVERY = 1.0


@click.command(epilog=_EPILOG)
@click.argument("system", required=False)
@click.option("--watch", is_flag=True, help="Go on until the system ends.")
@json_option
def tree(system: str | None, watch: bool, as_json: bool) -> int:
    """Show the live agents of SYSTEM: an id that may be cut short; nothing if only one runs."""
    from dsh_actors.control import ControlClient
    from dsh_actors_cli.remote import find_system

    found = find_system(system)
    if watch and not as_json and _is_terminal():
        return _watch_live(found)
    with ControlClient.connect(found.path) as client:
        show = _as_json if as_json else _as_text()
        if watch:
            return _watch_plainly(client, show)
        show(client.call("tree"))
    return exits.DONE


def _is_terminal() -> bool:
    from dsh_actors_cli.render.reporter import wants_live_tree

    # The frame goes to stderr, which must be the terminal that the user looks at.
    return wants_live_tree() and os.isatty(1)


def _as_json(told: Mapping[str, Any]) -> None:
    click.echo(output.to_json(told, ascii_only=sys.stdout.isatty()))


def _as_text() -> Callable[[Mapping[str, Any]], None]:
    import shutil

    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.snapshot import snapshot_lines
    from dsh_actors_cli.render.style import Style, wants_colour

    style = Style(wants_colour(sys.stdout))

    def show(told: Mapping[str, Any]) -> None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        facts = style(f"pid {told['pid']}", "dim")
        click.echo(f"{style(display_text(told['system']), 'bold')}  {facts}")
        for line in snapshot_lines(told["agents"], time.time(), style, width):
            click.echo(line)

    return show


def _watch_plainly(client: ControlClient, show: Callable[[Mapping[str, Any]], None]) -> int:
    from dsh_actors.errors import ControlError

    last: Any = None
    while True:
        try:
            told = client.call("tree")
        except ControlError as error:
            if error.type_name != "ConnectionLost":
                raise
            return exits.DONE
        if told != last:
            if last is not None and show is not _as_json:
                click.echo()
            show(told)
            sys.stdout.flush()
            last = told
        time.sleep(_EVERY)


def _watch_live(system: RunningSystem) -> int:
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.viewer import Viewer

    with Viewer(system) as viewer:
        viewer.await_end()
    click.echo(f"system {display_text(system.id)} has ended", err=True)
    return exits.DONE
