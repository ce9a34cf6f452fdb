"""The entry point of ``dsh-actors``: what must happen before anything else is imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dsh_actors_cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]


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
    from dsh_actors_cli.app import call

    sys.exit(call(given))
