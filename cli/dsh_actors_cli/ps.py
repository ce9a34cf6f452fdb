"""``dsh-actors ps``: the systems that run here."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option

if TYPE_CHECKING:
    from dsh_actors.control import RunningSystem

__all__ = ["ps"]

_EPILOG = """\b
Examples:
  dsh-actors ps
  dsh-actors ps --json | jq -r '.[].id'
"""
# How long a system may take to say how many agents it has, in seconds.
_PATIENCE = 2.0


@click.command(epilog=_EPILOG)
@json_option
def ps(as_json: bool) -> int:
    """List your running systems, with the number of their agents and of those at work."""
    from dsh_actors.control import running_systems

    found = [_facts(system) for system in running_systems()]
    if as_json:
        click.echo(output.to_json(found, ascii_only=sys.stdout.isatty()))
        return exits.DONE
    if not found:
        click.echo("no system is running; 'dsh-actors run TREE --detach' starts one", err=True)
        return exits.DONE
    for line in _lines(found):
        click.echo(line)
    return exits.DONE


def _facts(system: RunningSystem) -> dict[str, Any]:
    """Return what is told of one system; of one that does not answer, less."""
    from dsh_actors.control import ControlClient
    from dsh_actors.errors import ControlError
    from dsh_actors_cli.remote import nodes_of

    facts: dict[str, Any] = {
        "id": system.id,
        "name": system.name,
        "pid": system.pid,
        "started": system.started,
        "agents": None,
        "running": None,
    }
    try:
        with ControlClient.connect(system.path, timeout=_PATIENCE) as client:
            nodes = list(nodes_of(client.call("tree")["agents"]))
    except ControlError as error:
        output.print_warning(f"system {system.id} does not answer: {error}")
        return facts
    facts["agents"] = len(nodes)
    facts["running"] = sum(node["status"] == "running" for node in nodes)
    return facts


def _lines(found: list[dict[str, Any]]) -> list[str]:
    import shutil

    from dsh_actors_cli.duration import show_duration
    from dsh_actors_cli.render.result import table
    from dsh_actors_cli.render.style import Style, wants_colour

    now = time.time()
    rows = [
        {
            "system": facts["id"],
            "name": facts["name"],
            "pid": facts["pid"],
            "up": show_duration(max(0.0, now - facts["started"])),
            "agents": facts["agents"],
            "running": facts["running"],
        }
        for facts in found
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    style = Style(wants_colour(sys.stdout))
    return table(rows, width=width, style=style, most=len(rows), whole=("system",))
