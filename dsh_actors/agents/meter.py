"""Whether an agent with a budget may start a turn, as its actor asks it."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Counts the turns of one agent. All but :meth:`ask` is called with the host's lock held."""

    def may_begin(self) -> bool:
        """Whether a turn may start now."""

    def refuses(self) -> bool:
        """After :meth:`may_begin` said no: whether that is final, and not just unknown yet."""

    def begin(self) -> None:
        """A turn starts, as :meth:`may_begin` has allowed."""

    def ask(self) -> None:
        """Find out what is not known, without waiting for it; the agent is rung then."""
