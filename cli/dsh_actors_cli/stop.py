"""``dsh-actors stop|drain|shutdown``: an end in order, with its receipt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.duration import seconds_option
from dsh_actors_cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh_actors.control import ControlClient

__all__ = ["drain", "shutdown", "stop"]

_grace_option = click.option(
    "--grace",
    metavar="DURATION",
    callback=seconds_option,
    help="How long agents may take to end before force, e.g. 30s; as default as the tree says.",
)


@click.command()
@click.argument("agent")
@_grace_option
@json_option
def stop(agent: str, grace: float | None, as_json: bool) -> int:
    """Stop AGENT and all below it, for good, and print how each ended.

    AGENT is SYSTEM/AGENT, or the id of the agent if only one running system has it.
    """
    from dsh_actors_cli.remote import find_agent

    with find_agent(agent) as remote:
        told = _end(remote.client, remote.system, "stop", agent=remote.agent, grace=grace)
    return _tell(told, remote.name, as_json)


@click.command()
@click.argument("system", required=False)
@_grace_option
@json_option
def drain(system: str | None, grace: float | None, as_json: bool) -> int:
    """End every agent of SYSTEM, children first, and let nothing new begin there.

    SYSTEM is an id that may be cut short; nothing if only one runs. A run whose agents have all
    ended ends as well.
    """
    return _end_system(system, "drain", grace, as_json)


@click.command()
@click.argument("system", required=False)
@_grace_option
@json_option
def shutdown(system: str | None, grace: float | None, as_json: bool) -> int:
    """End SYSTEM: stop its agents, end its workers, and print what became of each.

    SYSTEM is an id that may be cut short; nothing if only one runs.
    """
    return _end_system(system, "shutdown", grace, as_json)


def _end_system(system: str | None, verb: str, grace: float | None, as_json: bool) -> int:
    from dsh_actors.control import ControlClient
    from dsh_actors_cli.remote import find_system

    found = find_system(system)
    with ControlClient.connect(found.path) as client:
        told = _end(client, found.id, verb, grace=grace)
    return _tell(told, found.id, as_json)


def _end(client: ControlClient, system: str, verb: str, **fields: Any) -> Mapping[str, Any] | None:
    """Return the receipt; None if the system was gone before it could give one."""
    from dsh_actors.errors import ControlError

    try:
        receipt: Mapping[str, Any] = client.call(verb, **fields)
    except ControlError as error:
        if error.type_name != "ConnectionLost":
            raise
        return None
    except KeyboardInterrupt:
        output.print_warning(f"the stop goes on in system {system}; nobody waits for it here")
        raise
    return receipt


def _tell(receipt: Mapping[str, Any] | None, name: str, as_json: bool) -> int:
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.receipt import receipt_lines
    from dsh_actors_cli.render.style import Style, wants_colour

    if receipt is None:
        return output.print_error(
            f"{name} was gone before it could say how its agents ended", exits.FAILED
        )
    if as_json:
        click.echo(output.to_json(receipt, ascii_only=sys.stdout.isatty()))
    else:
        style = Style(wants_colour(sys.stderr))
        ended = "stopped, but not all of it" if receipt["survivors"] else "ended"
        click.echo(f"{style(display_text(name), 'bold')}: {ended}", err=True)
        for line in receipt_lines(receipt, style):
            click.echo(line, err=True)
    return exits.FAILED if receipt["survivors"] else exits.DONE
