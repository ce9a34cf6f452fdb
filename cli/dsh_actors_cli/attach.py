"""``dsh-actors attach``: looks on at a run of another process, and ends as it ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh_actors.control import RunningSystem
    from dsh_actors_cli.output import ResultStream
    from dsh_actors_cli.telling import Format

__all__ = ["attach"]

_EPILOG = """\b
Examples:
  dsh-actors attach
  dsh-actors attach census-4711-a1b2c3d4 --output-format json

\b
The exit code is that of the run. Ctrl-C leaves the run alone and exits with 130.
"""


@click.command(epilog=_EPILOG)
@click.argument("system", required=False)
@click.option(
    "--output-format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How stdout tells the result.",
)
def attach(system: str | None, form: Format) -> int:
    """Show the run SYSTEM as if it had been started here, and print its result when it ends.

    SYSTEM is an id that may be cut short; nothing if only one runs. Of a detached run that has
    ended already, the result is printed.
    """
    from dsh_actors.errors import UsageError
    from dsh_actors_cli.remote import find_system
    from dsh_actors_cli.runs import find_record

    try:
        found = find_system(system)
    except UsageError:
        record = None if system is None else find_record(system)
        if record is None:
            raise
        return _tell(record, form, output.claim_stdout())
    return _attend(found, form)


def _attend(system: RunningSystem, form: Format) -> int:
    from dsh_actors.control import ControlClient
    from dsh_actors.errors import ControlError
    from dsh_actors_cli.runs import file_of, find_record
    from dsh_actors_cli.viewer import Viewer

    record: Mapping[str, Any] | None
    stdout = output.claim_stdout()  # before the viewer takes the terminal
    try:
        with ControlClient.connect(system.path) as client, Viewer(system):
            record = client.call("result")
    except ControlError as error:
        if error.type_name not in ("ConnectionLost", "NoSystem"):
            raise
        record = find_record(system.id)  # it has just ended
    except KeyboardInterrupt:
        from shlex import quote

        from dsh_actors.observe.display import display_text

        name = display_text(quote(system.id))
        click.echo(f"detached; the run goes on: dsh-actors attach {name}", err=True)
        return exits.INTERRUPTED
    if record is None:
        log = file_of(system.id, "log")
        where = f"; its log: {log}" if log.exists() else ""
        return output.print_error(
            f"system {system.id} has ended without a result{where}", exits.FAILED
        )
    return _tell(record, form, stdout)


def _tell(record: Mapping[str, Any], form: Format, stdout: ResultStream) -> int:
    """Print what a run came to, as the run itself would, and return its exit code."""
    from dsh_actors_cli.render.style import Style, wants_colour
    from dsh_actors_cli.runs import outcome_of
    from dsh_actors_cli.telling import write_end, write_result

    code = int(record["exit_code"])
    if record["outcome"] is None:
        return output.print_error(str(record["error"]), code)
    outcome = outcome_of(record)
    try:
        write_result(stdout, outcome, form, Style(stdout.isatty() and wants_colour(sys.stderr)))
        stdout.close()
    except output.OutputClosedError:
        return code or exits.FAILED
    write_end(outcome, Style(wants_colour(sys.stderr)), look="")
    return code
