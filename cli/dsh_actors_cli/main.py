"""The entry point of ``dsh-actors``: what must happen before anything else is imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dsh_actors_cli import exits, output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]


def _start_a_worker_early(arguments: list[str]) -> None:
    """Start a worker while the command is still being understood, if the tree will want one.

    Not on a terminal, where everything that writes to it goes through the live tree first. A
    worker that nobody takes over, since the command is wrong after all, ends with this process.
    """
    if "--help" in arguments or "--detach" in arguments or sys.stderr.isatty():
        return
    for argument in arguments[1:]:
        try:
            with open(argument, "rb") as file:
                text = file.read(1 << 20)
        except (OSError, ValueError):
            continue  # no file: an option, or what is said about it later
        if b"pool" in text:
            from dsh_actors.errors import WorkerStartError
            from dsh_actors.workers.early import start_early

            try:
                start_early()
            except WorkerStartError:
                return  # the run will meet it again, and say so in its place
        return


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its code.

    Parameters:
        arguments: the arguments behind the name of the command; those of the process as default.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    output.open_standard_descriptors()
    if given[:1] == ["run"]:
        # From the first moment on, so that no process or thread is ever started without them.
        from dsh_actors_cli import signals

        signals.install()
        _start_a_worker_early(given)
    try:
        from dsh_actors_cli.app import call

        code = call(given)
    except KeyboardInterrupt:  # while the command is still being imported
        code = exits.INTERRUPTED
    sys.exit(code)
