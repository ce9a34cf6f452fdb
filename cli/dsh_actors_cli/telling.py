"""How the result and the end of a run are told, by the run itself and by who attaches to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from dsh_actors_cli import output

if TYPE_CHECKING:
    from dsh_actors_cli.outcome import Outcome
    from dsh_actors_cli.output import ResultStream
    from dsh_actors_cli.render.style import Style

__all__ = ["Format", "write_end", "write_result"]

Format = Literal["text", "json", "stream-json"]


def write_result(stdout: ResultStream, outcome: Outcome, form: Format, style: Style) -> None:
    """Write the result to stdout.

    Parameters:
        stdout: where it goes.
        outcome: of the run.
        form: ``text``, or else an object of JSON on a line.
        style: how to paint on a terminal.

    Raises:
        OutputClosedError: the reader has gone away.
        OSError: it cannot be written.
    """
    if form != "text":
        from dsh_actors_cli.outcome import result_object

        stdout.write_line(output.to_json(result_object(outcome), ascii_only=stdout.isatty()))
        return
    from dsh_actors_cli.render.result import render_result

    value = outcome.verdict.result
    if value is None:
        return
    if stdout.isatty():
        text = render_result(value, width=stdout.columns(), style=style)
    else:
        text = render_result(value)
    stdout.write_line(text)


def write_end(outcome: Outcome, style: Style, *, look: str) -> None:
    """Write the error, the receipt and the session to stderr, as far as somebody reads it."""
    from dsh_actors_cli.render.receipt import end_lines

    try:
        for line in end_lines(outcome, style, look=look):
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        output.discard_stderr()
