"""Named points of an agent's life that a test can hold or delay, in workers too.

At each of them the runtime looks whether :data:`plan` is None, and does no more: outside of tests
it always is. What sets it is ``dsh_actors.testing.gates``. The points of a disposal are not even
looked at: that module wraps the steps.
"""

from __future__ import annotations

from typing import Final, Protocol

POINTS: Final = (
    "prepared",  # a creation is checked and about to enter; its thread waits
    "entered",  # visible, but not told to anybody; the creating thread waits
    "announced",  # told to all; the creating thread waits, and has its handle next
    "claimed",  # a turn has its batch and is about to run; where the agent lives
    "cancelled",  # of a disposal; and in a worker, when it has set the tokens of a cancel
    "children-awaited",  # of a disposal, as are those that follow
    "idle",
    "flushed",
    "captured",
    "handle-disposed",  # and in a worker, when the stop hook has run
    "removed",
    "notified",
    "released",
    "settled",
)
"""All points, in the order in which an agent reaches them."""


class Plan(Protocol):
    """What happens at the points."""

    def reach(self, point: str, agent: str) -> None:
        """An agent has come to a point; returns when it may go on."""

    def address(self) -> str:
        """Where worker processes ask, as the path of a unix socket."""


plan: Plan | None = None
"""What happens at the points of this process; None, and nothing does, outside of tests."""


class AskingPlan:
    """The plan of a worker process: whoever started it decides, point by point.

    Parameters:
        path: the unix socket of the other side.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def reach(self, point: str, agent: str) -> None:
        """Ask, and wait for the word. If nobody is there any more, go on."""
        import socket

        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(self._path)
                asking.sendall(f"{point}\n{agent}\n".encode())
                asking.shutdown(socket.SHUT_WR)
                asking.recv(1)
            except OSError:
                return  # the test is over, or its process is gone

    def address(self) -> str:
        """The same for whatever this process starts."""
        return self._path
