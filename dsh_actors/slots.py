"""What only a launcher knows, given to a system before anything from configuration is mounted.

Which session each configured agent is bound to, and the line that is printed at the exit, are
facts of one invocation. They are no configuration keys, so that no overlay can drop or change
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LaunchIdentity", "Slots"]


@dataclass(frozen=True, slots=True)
class LaunchIdentity:
    """The session that a configured agent is bound to.

    Parameters:
        id: the session's id.
        resume: whether its log is loaded and continued. If it is not, the agent is created fresh
            under exactly that id.
    """

    id: str
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of one launch. Each is independent of the others.

    Parameters:
        identities: by the id of the configured agent; the others keep their own.
        exit_line: printed once when the terminal has been given back; None prints nothing.
        hand_over: replaces this process by one that resumes the given session; None where that
            is not possible.
    """

    identities: Mapping[str, LaunchIdentity] = field(default_factory=dict)
    exit_line: str | None = None
    hand_over: Callable[[str], NoReturn] | None = None
