"""What only a launcher knows, given to a system before anything from configuration is mounted.

Which session each configured agent is bound to, and the line that is printed at the exit, are
facts of one invocation. They are no configuration keys, so that no overlay can drop or change
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NO_SLOTS", "LaunchIdentity", "Slots"]


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
            is not possible, and in every worker.
        launch: how the system was launched, as plain data. It is kept in the header of each root
            session, so that the session can be resumed from there.
    """

    identities: Mapping[str, LaunchIdentity] = field(default_factory=dict)
    exit_line: str | None = None
    hand_over: Callable[[str], NoReturn] | None = None
    launch: Mapping[str, Any] | None = None

    def to_plain(self) -> dict[str, Any] | None:
        """Return what travels to a worker, as plain data; None if there is nothing."""
        if not self.identities and self.exit_line is None and self.launch is None:
            return None
        return {
            "identities": {key: [each.id, each.resume] for key, each in self.identities.items()},
            "exit_line": self.exit_line,
            "launch": dict(self.launch) if self.launch is not None else None,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any] | None) -> Slots:
        """Return the slots in a worker."""
        if data is None:
            return NO_SLOTS
        identities = {key: LaunchIdentity(*each) for key, each in data["identities"].items()}
        return cls(identities, data["exit_line"], launch=data["launch"])


NO_SLOTS = Slots()
"""Those of a system that nobody has launched: an embedded one."""
