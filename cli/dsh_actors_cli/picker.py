"""The list to choose a session from: what it shows, and what each key does. Draws nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dsh_actors.observe.display import display_text
from dsh_actors_cli.render.style import clip, pad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh_actors_cli.pickable import Choice
    from dsh_actors_cli.render.style import Style

__all__ = ["Picker"]

_ID = 26
_AGE = 6
_STATUS = 9
_MARKS = 26  # current · live · persisted
_HELP = "↑↓ choose   type to filter   Enter resume   Esc leave"
# The heading, the filter, and two lines below the list.
_AROUND = 5
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Picker:
    """The state of the list.

    Parameters:
        choices: the sessions, newest first.
        now: Unix seconds.
        problem: why the sessions cannot be listed; empty if they can.
        refuse: asked of the one that is to be resumed: why it cannot be; empty if it can.

    Attributes:
        chosen: the session that was chosen, once one was.
        notice: what to say about the last key; cleared by the next one.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        now: float,
        problem: str = "",
        refuse: Callable[[Choice], str] = lambda choice: choice.refusal,
    ) -> None:
        self.chosen: Choice | None = None
        self.notice = ""
        self._all, self._now, self._problem = list(choices), now, problem
        self._refuse = refuse
        self._query = ""
        self._shown = self._all
        self._cursor = self._top = 0
        self._page = 10

    def press(self, key: str) -> Literal["go on", "chosen", "left"]:
        """Act on a key.

        Parameters:
            key: its name, e.g. ``up`` or ``enter``; or the text that it types.
        """
        self.notice = ""
        if key in ("escape", "interrupt"):
            return "left"
        if key == "enter":
            return self._choose()
        steps = {
            "up": -1, "down": 1, "page up": -self._page, "page down": self._page,
            "home": -len(self._shown), "end": len(self._shown),
        }  # fmt: skip
        if key in steps:
            self._cursor = max(0, min(len(self._shown) - 1, self._cursor + steps[key]))
        elif key == "backspace":
            self._filter(self._query[:-1])
        elif key == "clear":
            self._filter("")
        elif key.isprintable() and len(key) == 1:
            self._filter(self._query + key)
        return "go on"

    def _choose(self) -> Literal["go on", "chosen"]:
        if not self._shown:
            return "go on"
        choice = self._shown[self._cursor]
        refusal = choice.refusal or self._refuse(choice)
        if refusal:
            self.notice = f"{choice.id} cannot be resumed: {refusal}"
            return "go on"
        self.chosen = choice
        return "chosen"

    def _filter(self, query: str) -> None:
        self._query = query
        words = query.casefold().split()
        self._shown = [one for one in self._all if all(w in _searched(one) for w in words)]
        self._cursor = self._top = 0

    def frame(self, columns: int, lines: int, style: Style) -> list[str]:
        """Return what is shown, in lines that fit a terminal of this size.

        Parameters:
            columns: of the terminal.
            lines: of the terminal.
            style: how to paint.
        """
        self._page = room = max(1, lines - _AROUND)
        self._top = max(self._cursor - room + 1, min(self._top, self._cursor))
        rows = self._shown[self._top : self._top + room]
        count = f"{len(self._shown)} of {len(self._all)}"
        title = pad(clip("Resume a session", columns - len(count) - 1), columns - len(count))
        frame = [
            f"{style(title, 'bold')}{style(count, 'dim')}",
            clip(f"> {display_text(self._query)}▏", columns),
            *(self._row(self._top + at, row, columns, style) for at, row in enumerate(rows)),
        ]
        if not rows:
            frame.append(style(clip(f"  {self._empty()}", columns), "yellow"))
        below = self.notice or self._about()
        frame.append(style(clip(display_text(below), columns), "yellow"))
        frame.append(style(clip(_HELP, columns), "dim"))
        return frame[:lines]

    def _empty(self) -> str:
        if self._problem:
            return display_text(f"the sessions cannot be listed: {self._problem}")
        return "no session matches" if self._all else "there are no sessions yet"

    def _about(self) -> str:
        if not self._shown:
            return ""
        return self._shown[self._cursor].refusal

    def _row(self, at: int, choice: Choice, columns: int, style: Style) -> str:
        agent = max(8, columns - 2 - _ID - _AGE - _STATUS - _MARKS - 4)
        cells = (
            pad(clip(display_text(choice.id), _ID), _ID),
            pad(clip(display_text(choice.agent), agent), agent),
            pad(_ago(self._now - choice.created) if choice.created else "", _AGE, right=True),
            pad(clip(display_text(choice.status), _STATUS), _STATUS),
            " · ".join(choice.marks),
        )
        chosen = at == self._cursor
        text = clip(f"{'❯' if chosen else ' '} {' '.join(cells)}", columns)
        if choice.refusal:
            return style(text, "dim")
        return style(text, "bold", "cyan") if chosen else text


def _searched(choice: Choice) -> str:
    return " ".join((choice.id, choice.agent, choice.status, *choice.marks)).casefold()


def _ago(seconds: float) -> str:
    if seconds < _MINUTE:
        return "now"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h"
    return f"{seconds // _DAY:.0f} d"
