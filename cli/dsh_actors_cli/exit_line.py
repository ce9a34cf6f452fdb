"""The line at the very end of a run: how to go on with its session.

The launcher knows it before anything starts. Whoever had the terminal prints it, once, after the
terminal has been given back, and waits for nothing from then on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dsh_actors_cli import output
from dsh_actors_cli.arguments import resume_arguments, shell_line

if TYPE_CHECKING:
    from dsh_actors_cli.arguments import Options
    from dsh_actors_cli.render.style import Style

__all__ = ["exit_line", "look_command", "shown_exit_line", "write_exit_line"]


def exit_line(options: Options, session_id: str) -> str:
    """Return the line for a session, as plain text."""
    return f"to resume: {shell_line(resume_arguments(options, session_id))}"


def look_command(options: Options, session_id: str) -> str:
    """Return the command that shows a session, as it can be typed; empty if there is none."""
    if not session_id:
        return ""
    words = ["dsh-actors", "sessions", "show", session_id]
    if options.store is not None:
        words += ["--store", str(options.store)]
    return shell_line(words)


def shown_exit_line(line: str, style: Style) -> str:
    """Return the line as it is printed.

    Parameters:
        line: what the launcher has provided. It is only text: whatever could act on the terminal
            is shown as an escape, and the colours are ours.
        style: how to paint.
    """
    from dsh_actors.observe.display import display_text

    return style(display_text(line), "dim")


def write_exit_line(line: str | None, style: Style) -> None:
    """Print the line to stderr, as far as somebody reads it; None prints nothing."""
    if line is None:
        return
    try:
        sys.stderr.write(f"{shown_exit_line(line, style)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        output.discard_stderr()
