"""The command ``dsh-actors``: finds the verb, and turns every error into one line.

The verbs are modules that are imported when they are called, so that ``--help`` and the start
of a run pay for nothing else.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from dsh_actors_cli import exits, output

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["call", "cli", "nearest"]

PROGRAM = "dsh-actors"

# verb: (module, attribute, one line of help). The help stands here as well as in the module,
# because the list of verbs must not import them.
_VERBS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Run a tree of agents and print its result."),
    "resume": ("resume", "resume", "Go on with a session as it was run."),
    "check": ("check", "check", "Check a tree file and show the tree as it would run."),
    "config": ("config", "config", "Show what is in force for a tree, and where it comes from."),
    "schema": ("schema", "schema", "Print the JSON Schema of a tree file."),
    "ps": ("ps", "ps", "List the running systems."),
    "tree": ("tree", "tree", "Show the agents of a running system."),
    "attach": ("attach", "attach", "Look on at a run, and end as it ends."),
    "send": ("send", "send", "Send a message to a running agent."),
    "interrupt": ("send", "interrupt", "Interrupt the turn of an agent."),
    "cancel": ("send", "cancel", "Cancel the work of an agent and of those below it."),
    "stop": ("stop", "stop", "Stop an agent and all below it."),
    "drain": ("stop", "drain", "End every agent of a system."),
    "shutdown": ("stop", "shutdown", "End a system."),
    "sessions": ("sessions", "sessions", "List, show, move, fork and remove stored sessions."),
    "logs": ("logs", "logs", "Print the events of a session, and follow it."),
    "doctor": ("doctor", "doctor", "Check that this machine can run agents."),
}

_EPILOG = """\b
Examples:
  dsh-actors run tree.yaml
  dsh-actors run tree.yaml "Review the last commit" --workers 4
  dsh-actors run tree.yaml --set root=src --output-format json | jq .result
  dsh-actors resume
  dsh-actors check tree.yaml
  dsh-actors run tree.yaml --detach
  dsh-actors tree --watch
  dsh-actors send reviewer "Look at the tests as well" --wait
  dsh-actors sessions list

\b
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 124 time-out,
129 terminal closed, 130 Ctrl-C, 143 terminated.

\b
Shell completion (bash; zsh and fish alike):
  eval "$(_DSH_ACTORS_COMPLETE=bash_source dsh-actors)"
"""


class _Verbs(click.Group):
    """The group of verbs, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, attribute, _ = _VERBS[cmd_name]
        command = getattr(importlib.import_module(f"dsh_actors_cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if verb not in _VERBS and not verb.startswith("-"):
            ctx.fail(f"there is no verb {verb!r}{nearest(verb, _VERBS)}")
        return super().resolve_command(ctx, args)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` with the known name nearest to `word`, or the list of them."""
    import difflib

    names = list(known)
    found = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else f"; there are {', '.join(names)}"


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"{PROGRAM} {version('dsh-actors')}")
        ctx.exit()


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
    subcommand_metavar="VERB [ARGS]...",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Run supervised trees of agents in worker processes.

    Ctrl-C stops the whole tree and says how each part ended; a second one exits at once.
    """


def call(arguments: list[str]) -> int:
    """Run the verb that `arguments` name, and return the exit code."""
    try:
        code = cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.DONE
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message(), err=True)
        return exits.USAGE
    except click.ClickException as error:
        return output.print_error(_one_line(error), exits.USAGE)
    except (KeyboardInterrupt, click.Abort):
        return exits.INTERRUPTED
    except BrokenPipeError:
        output.discard_stdout()
        return exits.FAILED
    except OSError as error:
        return output.print_error(str(error), exits.FAILED)
    except Exception as error:
        from dsh_actors.errors import DshActorsError

        if not isinstance(error, DshActorsError) or os.environ.get("DSH_ACTORS_LOG") == "debug":
            raise
        code = exits.USAGE if output.is_user_error(error) else exits.FAILED
        return output.print_error(str(error), code)


def _one_line(error: click.ClickException) -> str:
    """Return click's message with the command to ask for help, in one line."""
    message = " ".join(error.format_message().split()).rstrip(".")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    return f"{message}; see {context.command_path} --help"
