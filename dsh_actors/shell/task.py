"""A command that was started, as others see it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dsh_actors.shell.output import Captured

__all__ = ["End", "ShellResult", "ShellTask"]

End = Literal["exited", "terminated", "killed"]


@dataclass(frozen=True, slots=True)
class ShellTask:
    """A command that was started. Whose it is only :meth:`ShellExecutor.owner_of` says.

    Attributes:
        id: unique in its executor, and never used again.
        command: what runs, as one line.
        pid: the process of the command.
        background: whether nobody waits for it.
        running: whether it, or anything that it has started, still runs.
        started: when it was started, in Unix seconds.
    """

    id: str
    command: str
    pid: int
    background: bool
    running: bool
    started: float


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command ended. A status that is not 0, and a time-out, are results and no errors.

    Attributes:
        task: its id.
        exit_code: the status of the command itself; None if a signal ended it.
        signal: the name of that signal, or None.
        timed_out: whether it was ended because its time was over.
        ended: ``exited`` by itself, ``terminated`` after a TERM or ``killed`` after a KILL; of
            the command and of everything that it had started, the hardest.
        output: what it wrote, stdout and stderr in the order of writing.
        duration: seconds from its start until nothing of it was left.
        killed: the processes that had to be killed.
        problem: what went wrong beside the command itself, such as a full disk; or None.
    """

    task: str
    exit_code: int | None
    signal: str | None
    timed_out: bool
    ended: End
    output: Captured
    duration: float
    killed: tuple[int, ...] = ()
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it exited by itself with the status 0."""
        return self.exit_code == 0 and self.ended == "exited"

    @property
    def text(self) -> str:
        """What it wrote, as text, with a line that says what is missing in the middle."""
        return self.output.text()
