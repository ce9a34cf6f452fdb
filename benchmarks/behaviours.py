"""The behaviours of the agents that are measured; workers import them from here."""

from __future__ import annotations

from typing import Any

import dsh_actors as dsh

__all__ = ["echo"]


@dsh.behaviour
def echo(turn: dsh.Turn, message: Any) -> Any:
    """Answer with what came."""
    return message
