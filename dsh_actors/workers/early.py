"""A worker that starts before its system is made, while the program still reads its files.

For the command: a worker takes about as long to start as a tree file to read, and a machine has
more than one processor. Only what is needed to start a process is imported here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from dsh_actors.workers.process import start_worker

if TYPE_CHECKING:
    from dsh_actors.workers.process import WorkerProcess

TARGET = "dsh_actors.workers.host:serve"
"""What a worker process runs."""

FIRST = 1
"""The number of the early worker in its system."""


class EarlyWorker(NamedTuple):
    """A worker that no system has taken over yet, and the mark that its system is to use."""

    process: WorkerProcess
    marker: str


_waiting: EarlyWorker | None = None


def start_early() -> None:
    """Start one shared worker for the next system that this program makes.

    If none is made, the worker ends with this program.

    Raises:
        WorkerStartError: the process cannot be started.
    """
    global _waiting
    if _waiting is None:
        marker = f"early-{os.getpid()}-{os.urandom(4).hex()}"
        process = start_worker(
            TARGET, {"worker": FIRST}, name=worker_name(FIRST), marker=f"{marker}:{FIRST}"
        )
        _waiting = EarlyWorker(process, marker)


def take_early() -> EarlyWorker | None:
    """The early worker, if there is one that nobody has taken."""
    global _waiting
    taken, _waiting = _waiting, None
    return taken


def worker_name(number: int) -> str:
    """The name of the worker with this number in its system."""
    return f"dsh-worker-{number}"
