"""Which process is meant: a pid alone may have been given to another process since."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

__all__ = ["MARKER", "ProcessId", "is_running", "start_time", "state_and_start"]

MARKER = "DSH_ACTORS_WORKER"
"""The environment variable that marks a worker and what it starts; nested marks join by ``;``."""

LINUX = sys.platform == "linux"
_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessId(NamedTuple):
    """A process, for good: its pid, and its start time, which no later holder of the pid has.

    ``start_time`` is in seconds; since boot on Linux, which no change of the clock moves, and
    since the epoch elsewhere.
    """

    pid: int
    start_time: float

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has this pid now, or None if there is none."""
        started = start_time(pid)
        return None if started is None else cls(pid, started)


def start_time(pid: int) -> float | None:
    """When the process with this pid started (see `ProcessId`), or None if there is none."""
    found = state_and_start(pid)
    return None if found is None else found[1]


def state_and_start(pid: int) -> tuple[str, float] | None:
    """The state of a process as one letter (``Z`` for a zombie) and its start time, or None."""
    if not LINUX:
        return _ask_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = parse_stat(file.read())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), start_of(fields)


def parse_stat(text: bytes) -> list[bytes]:
    """The fields of ``/proc/<pid>/stat`` from the state on (the name may hold anything)."""
    return text[text.rindex(b")") + 2 :].split()


def start_of(fields: list[bytes]) -> float:
    """The start time in such fields."""
    return int(fields[19]) / _TICKS


def _ask_psutil(pid: int) -> tuple[str, float] | None:
    import psutil

    try:
        process = psutil.Process(pid)
        state = "Z" if process.status() == psutil.STATUS_ZOMBIE else "R"
        return state, process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_running(process: ProcessId) -> bool:
    """Whether this very process is there and not yet a zombie."""
    found = state_and_start(process.pid)
    return found is not None and found[1] == process.start_time and found[0] not in "ZX"
