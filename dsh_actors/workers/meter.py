"""The meter of an agent in a worker: its supervisor grants each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.workers import frames

if TYPE_CHECKING:
    from collections.abc import Callable


class GrantedTurns:
    """Asks for one turn at a time. What was granted and not used is kept for the next message.

    Parameters:
        key: the agent, as the supervisor knows it.
        send: sends a frame.
    """

    __slots__ = ("_asked", "_granted", "_key", "_send", "_wanted")

    def __init__(self, key: int, send: Callable[[list[Any]], None]) -> None:
        self._key = key
        self._send = send
        self._granted: bool | None = None  # None: not known
        self._asked = False
        self._wanted = False

    def may_begin(self) -> bool:
        """Whether a turn was granted."""
        if self._granted is None:
            self._wanted = not self._asked
        return bool(self._granted)

    def refuses(self) -> bool:
        """Whether the supervisor said no. That counts once: the next time it is asked again."""
        refused = self._granted is False
        if refused:
            self._granted = None
        return refused

    def begin(self) -> None:
        """Use what was granted."""
        self._granted = None

    def ask(self) -> None:
        """Ask the supervisor, if there is something to ask that was not asked yet."""
        if self._wanted:
            self._wanted, self._asked = False, True
            self._send([frames.TURN_WANTED, self._key])

    def answered(self, granted: bool, waiting: bool) -> None:
        """The supervisor's word. With the lock held.

        Parameters:
            granted: whether a turn may start.
            waiting: whether there still is something to start it for.
        """
        self._asked = False
        self._granted = granted if granted or waiting else None
