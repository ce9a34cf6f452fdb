"""Why work is cancelled, and how an agent can end. Plain strings, since they travel in frames."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Cause: TypeAlias = Literal["user", "parent", "disposed", "deadline", "budget", "hook"]
"""Why an activity was cancelled. The first cause of an activity wins."""

Outcome: TypeAlias = Literal["completed", "aborted", "failed", "lost"]
"""How an agent ended.

``completed``: its last turn completed, or it was stopped while it was quiet. ``aborted``: a stop
or a cancel ended work that was running or accepted. ``failed``: its behaviour raised.
``lost``: its worker process ended under it.
"""

TurnReason: TypeAlias = Literal["completed", "aborted", "blocked", "error", "limit", "interrupted"]
"""Why a turn ended, as written in ``turn/end``."""

CAUSES: Final[frozenset[str]] = frozenset(
    ("user", "parent", "disposed", "deadline", "budget", "hook")
)
OUTCOMES: Final[tuple[Outcome, ...]] = ("completed", "aborted", "failed", "lost")
EMITTED: Final[frozenset[str]] = frozenset(("user", "parent"))
"""The causes that are announced by a ``cancel_requested`` event (decision D3)."""
