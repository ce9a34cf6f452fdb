"""The thread that tells people how the run goes.

The main thread never writes to the terminal while the run lasts: a terminal that is stopped
with Ctrl-S must hold up what is shown and nothing else.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from time import monotonic
from typing import TYPE_CHECKING, Any

from dsh_actors_cli.render.ledger import Ledger
from dsh_actors_cli.render.plain import PlainLines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dsh_actors.system import TreeNode
    from dsh_actors_cli.render.screen import Screen
    from dsh_actors_cli.render.style import Style

__all__ = ["Reporter", "make_reporter", "wants_live_tree"]

# Runs that are over sooner than this show no tree, and pay nothing for one. A tree file that
# turns out to be wrong is found out within that time, and gives its error alone.
_FIRST_AFTER = 0.4
_EVERY = 0.125
# A large tree takes long to draw: this share of the time at most goes into drawing.
_SHARE = 0.1


def wants_live_tree() -> bool:
    """Return whether stderr is a terminal on which a frame can be drawn."""
    return os.isatty(2) and os.environ.get("TERM", "") not in ("", "dumb")


class Reporter:
    """Shows the events and the tree of one system on stderr.

    Parameters:
        title: the name of the tree.
        named: the agents of the tree file.
        started: the moment that the run began, on the monotonic clock.
        style: how to paint.
        screen: the terminal, if there is to be a live tree; the reporter closes it.
        on_hang_up: called when nobody can read stderr any more.
        sessions: those that the roots are bound to, by the agent's id; that of the run first.
    """

    def __init__(
        self,
        title: str,
        named: Collection[str],
        started: float,
        style: Style,
        *,
        screen: Screen | None,
        on_hang_up: Callable[[], None],
        sessions: Mapping[str, str] | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.style = style
        self._title, self._named, self._started = title, named, started
        self._screen = screen
        self._plain = PlainLines(named, style, started, sessions)
        self._session = next(iter((sessions or {}).values()), "")
        self._on_hang_up = on_hang_up
        self._tree: Callable[[], Sequence[TreeNode]] = list
        self._notice = ""
        self._told_notice = ""
        self._awake = threading.Event()
        self._closing = False
        self._quiet = False
        self._thread = threading.Thread(target=self._run, name="dsh-report", daemon=True)

    def start(self, tree: Callable[[], Sequence[TreeNode]]) -> None:
        """Begin to show.

        Parameters:
            tree: gives the living agents.
        """
        self._tree = tree
        self._thread.start()

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take an event of the system; from any thread, without waiting."""
        self.ledger.hear(event)

    def notify(self, notice: str) -> None:
        """Show a line at once, and as long as the run lasts."""
        self._notice = notice
        self._awake.set()

    def discard(self) -> None:
        """Show nothing more, not even what has been heard: the run did not really begin."""
        self._quiet = True

    def leave(self, line: str) -> None:
        """Write a last line, in a hurry: the process ends without an orderly end of the run.

        Parameters:
            line: the text, painted.
        """
        self._quiet = True
        try:
            if self._screen is not None and not self._closing:
                self._screen.leave(line)
            else:
                self._write([line])
        except OSError:
            return  # the terminal is gone, and so will be this process

    def close(self, timeout: float) -> None:
        """Show the last lines and give the terminal back.

        Parameters:
            timeout: seconds to wait for a terminal that does not take them.
        """
        if self._closing:
            return
        self._closing = True
        self._awake.set()
        if self._thread.ident is None:
            self._finish()
        else:
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = _FIRST_AFTER
        try:
            while not self._closing:
                self._awake.wait(pause)
                self._awake.clear()
                began = monotonic()
                if not self._closing:
                    self._show()
                pause = max(_EVERY, (monotonic() - began) / _SHARE)
        except OSError:
            self._on_hang_up()
        self._finish()

    def _finish(self) -> None:
        try:
            events = self.ledger.digest()
            if self._screen is not None:
                self._screen.close()
            elif not self._quiet:
                self._write(self._plain.lines(events, last=True))
        except OSError:
            self._on_hang_up()

    def _show(self) -> None:
        if self._screen is not None:
            self._draw(self._screen)
            return
        lines = self._plain.lines(self.ledger.digest())
        if self._notice != self._told_notice:
            self._told_notice = self._notice
            lines.append(self.style(self._notice, "yellow"))
        self._write(lines)

    def _draw(self, screen: Screen) -> None:
        from dsh_actors_cli.render.live import Frame, draw_frame, make_console

        self.ledger.digest()
        size = screen.size()
        frame = Frame(
            self._title,
            monotonic() - self._started,
            time.time(),
            self._tree(),
            self.ledger.ended,
            self._named,
            self.ledger.progress,
            self._notice,
            self.ledger.restarts,
            self._session,
        )
        screen.draw(draw_frame(frame, make_console(size.columns, size.lines, self.style.colour)))

    @staticmethod
    def _write(lines: Sequence[str]) -> None:
        if lines:
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()


def make_reporter(
    title: str,
    named: Collection[str],
    started: float,
    on_hang_up: Callable[[], None],
    sessions: Mapping[str, str],
) -> Reporter:
    """Return what shows a run on the stderr of this process; see `Reporter`."""
    from dsh_actors_cli.render.style import Style, wants_colour

    style = Style(wants_colour(sys.stderr))  # before stderr becomes a pipe
    screen = None
    if wants_live_tree():
        from dsh_actors_cli.render.screen import Screen

        screen = Screen()
    return Reporter(
        title, named, started, style, screen=screen, on_hang_up=on_hang_up, sessions=sessions
    )
