"""``dsh-actors run``: what it takes from the command line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli.duration import seconds_option
from dsh_actors_cli.options import config_option, resolve_from_here, set_option, store_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh_actors_cli.arguments import Options

__all__ = ["parse_run", "run"]

_EPILOG = """\b
Examples:
  dsh-actors run tree.yaml
  dsh-actors run tree.yaml "Which modules are the most complex?"
  git diff | dsh-actors run review.yaml --prompt-file -
  dsh-actors run tree.yaml --set root=src --workers 4 --timeout 5m
  dsh-actors run tree.yaml --output-format json > result.json
  dsh-actors run tree.yaml --detach
  dsh-actors run tree.yaml --resume s-20260101-120000 "And the others?"

\b
The result goes to stdout; progress, logs and the receipt go to stderr. NO_COLOR,
FORCE_COLOR and TERM=dumb are honoured. Ctrl-C stops the tree and prints how each part
ended; a second one exits at once.
"""


@click.command(epilog=_EPILOG)
@click.argument("tree", type=click.Path())
@click.argument("prompt", required=False)
@click.option(
    "--prompt-file",
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="Read the prompt from a file, or from stdin with '-'.",
)
@config_option
@set_option
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many worker processes agents with isolation 'pool' share.",
)
@click.option(
    "--output-format",
    "form",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="How stdout tells the result; stream-json also tells each event.",
)
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=seconds_option,
    help="Stop the run after this long, e.g. 90s or 5m, and exit with 124.",
)
@store_option
@click.option("--no-store", is_flag=True, help="Store no sessions.")
@click.option(
    "--resume",
    "resume",
    metavar="ID",
    help="Go on with a session instead of starting a new one. PROMPT is what it is asked next; "
    "without one, the run does what was accepted and not done. ID may be cut short.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background: return when the tree has started, and print how to reach it.",
)
def run(tree: str, prompt: str | None, prompt_file: str | None, **options: Any) -> int:
    """Run the agents of TREE and print the result of its roots.

    PROMPT is a text that replaces the prompt in the file. One root with a prompt gives its
    result as it is, several give an object by id.
    """
    from dsh_actors_cli.launch import run_tree

    if prompt is not None and prompt_file is not None:
        raise click.UsageError("give PROMPT or --prompt-file, not both")
    if options["no_store"] and options["store"] is not None:
        raise click.UsageError("give --store or --no-store, not both")
    if options["no_store"] and options["resume"] is not None:
        raise click.UsageError(
            "--resume goes on with a stored session, and --no-store has none; leave one out"
        )
    if prompt_file is not None:
        prompt = _read_prompt(prompt_file)
    resolve_from_here()
    asked = _options(tree=tree, prompt=prompt, **options)
    if options["detach"]:
        from dsh_actors_cli.detach import start_detached

        return start_detached(asked)
    return run_tree(asked)


def parse_run(arguments: Sequence[str]) -> Options:
    """Return what a command line for a run asks for, without running it.

    Parameters:
        arguments: those behind ``run``.

    Raises:
        click.ClickException: they are wrong.
    """
    return _options(**run.make_context("run", list(arguments)).params)


def _options(*, tree: str, prompt: str | None, **options: Any) -> Options:
    from dsh_actors_cli.arguments import Options

    return Options(
        tree=tree,
        prompt=prompt,
        config=options["config"],
        settings=options["settings"],
        workers=options["workers"],
        form=options["form"],
        timeout=options["timeout"],
        store=options["store"],
        keep=not options["no_store"],
        resume=options["resume"],
    )


def _read_prompt(name: str) -> str:
    """Return the text of a file, or of stdin, where a signal ends the waiting."""
    try:
        data = _read_stdin() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise click.UsageError(f"--prompt-file {name}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"--prompt-file {name}: byte {error.start} is not UTF-8; store it as UTF-8"
        ) from None


def _read_stdin() -> bytes:
    import select

    from dsh_actors_cli import signals

    watch, waker = signals.install(), signals.Waker()
    watch.attend(waker.wake, lambda: None)
    descriptor = sys.stdin.fileno()
    data = bytearray()
    while True:
        readable, _, _ = select.select([descriptor, waker], [], [])
        if watch.cause is not None:
            sys.exit(watch.cause.code)
        if descriptor in readable:
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return bytes(data)
            data += chunk
