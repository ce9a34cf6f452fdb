"""``dsh-actors send|interrupt|cancel``: a word to one running agent."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option

if TYPE_CHECKING:
    from dsh_actors.errors import ControlError
    from dsh_actors_cli.remote import Remote

__all__ = ["cancel", "interrupt", "send"]

_SEND_EPILOG = """\b
Examples:
  dsh-actors send reviewer "Look at the tests as well"
  dsh-actors send census-4711-a1b2c3d4/reviewer "Stop at ten" --steer
  dsh-actors send reviewer '{"path": "src"}' --data --wait --json | jq .result
  git diff | dsh-actors send reviewer -
"""


@click.command(epilog=_SEND_EPILOG)
@click.argument("agent")
@click.argument("text")
@click.option("--steer", "kind", flag_value="steer", help="For the next step of its turn.")
@click.option("--inject", "kind", flag_value="inject", help="To be known, without starting a turn.")
@click.option("--data", is_flag=True, help="TEXT is JSON, and the message is what it says.")
@click.option("--wait", is_flag=True, help="Wait for the result, and print it.")
@json_option
def send(agent: str, text: str, kind: str | None, data: bool, wait: bool, as_json: bool) -> int:
    """Send TEXT to AGENT, for a turn of its own unless told otherwise; '-' is stdin.

    AGENT is SYSTEM/AGENT, or the id of the agent if only one running system has it. Without
    --wait the verb returns when the message is accepted, which means that it is stored.
    """
    from dsh_actors.errors import ControlError
    from dsh_actors_cli.remote import find_agent

    if wait and kind == "inject":
        raise click.UsageError("a message that is injected has no result; leave out --wait")
    body = _body(text, data)
    with find_agent(agent) as remote:
        try:
            told = remote.client.call(
                "send", agent=remote.agent, kind=kind or "follow-up", body=body, wait=wait
            )
        except ControlError as error:
            return _refused(error, remote, wait)
        except KeyboardInterrupt:
            if wait:
                output.print_warning(
                    f"{remote.name} works on it still; 'dsh-actors interrupt {remote.name}' "
                    "ends its turn"
                )
            raise
    if as_json:
        told = {"system": remote.system, "agent": remote.agent, **told}
        click.echo(output.to_json(told, ascii_only=sys.stdout.isatty()))
    elif wait:
        _print_result(told["result"])
    else:
        _say(f"{remote.name} has accepted it, as message {told['message']}")
    return exits.DONE


@click.command()
@click.argument("agent")
@json_option
def interrupt(agent: str, as_json: bool) -> int:
    """Interrupt the turn of AGENT; it goes on with its next message.

    AGENT is SYSTEM/AGENT, or the id of the agent if only one running system has it.
    """
    from dsh_actors_cli.remote import find_agent

    with find_agent(agent) as remote:
        remote.client.call("interrupt", agent=remote.agent)
    _report(remote, "interrupted", as_json)
    return exits.DONE


@click.command()
@click.argument("agent")
@click.option("--only", is_flag=True, help="Leave alone what is below it.")
@json_option
def cancel(agent: str, only: bool, as_json: bool) -> int:
    """Cancel the work of AGENT and of all below it, and empty their inboxes. All live on.

    AGENT is SYSTEM/AGENT, or the id of the agent if only one running system has it.
    """
    from dsh_actors_cli.remote import find_agent

    with find_agent(agent) as remote:
        remote.client.call("cancel", agent=remote.agent, tree=not only)
    _report(remote, "cancelled" if only else "cancelled, with all below it", as_json)
    return exits.DONE


def _body(text: str, data: bool) -> Any:
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin: byte {error.start} is not UTF-8") from None
    if not data:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"TEXT is not JSON: {error}; leave out --data") from None


def _refused(error: ControlError, remote: Remote, wait: bool) -> int:
    """Say why there is no result, or why the message was not accepted."""
    message = str(error)
    details = error.details if isinstance(error.details, dict) else {}
    if error.type_name == "AgentFailed" and details.get("type"):
        message = f"{remote.name} has failed: {message}"
    elif error.type_name == "ConnectionLost" and wait:
        message = f"system {remote.system} has ended before {remote.agent} gave a result"
    return output.print_error(message, exits.FAILED)


def _print_result(value: Any) -> None:
    import shutil

    from dsh_actors_cli.render.result import render_result
    from dsh_actors_cli.render.style import Style, wants_colour

    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = render_result(value, width=width, style=Style(wants_colour(sys.stdout)))
    else:
        text = render_result(value)
    if value is not None:
        click.echo(text)


def _report(remote: Remote, done: str, as_json: bool) -> None:
    if as_json:
        told = {"system": remote.system, "agent": remote.agent, "done": done.partition(",")[0]}
        click.echo(output.to_json(told, ascii_only=sys.stdout.isatty()))
    else:
        _say(f"{remote.name}: {done}")


def _say(text: str) -> None:
    from dsh_actors.observe.display import display_text

    click.echo(display_text(text), err=True)
