"""What one worker process may use, and how much memory it does use."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from dsh_actors.errors import UsageError

CPU_MARGIN = 2
"""Seconds of CPU time between SIGXCPU and the SIGKILL of the kernel, for one that handles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """What each worker process may use. None limits nothing.

    Attributes:
        memory_soft: resident bytes above which a worker is given no new agents. It is ended when
            the agents that it has are gone; another one takes its place at once.
        memory_hard: resident bytes above which a worker is killed. Memory is looked at with each
            heartbeat, and every 5 seconds where these are off.
        cpu_seconds: CPU time in whole seconds after which a worker is ended with SIGXCPU. Holds
            for each process that it starts, too.
        open_files: how many descriptors a worker may have open. Holds for each process that it
            starts, too.
    """

    memory_soft: int | None = None
    memory_hard: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("memory_soft", 1), ("memory_hard", 1), ("cpu_seconds", 1), ("open_files", 32),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is None:
                continue
            if type(value) is not int or value < least:
                raise UsageError(f"{name} must be a whole number of at least {least}, not {value}")
        if self.memory_soft and self.memory_hard and self.memory_soft > self.memory_hard:
            raise UsageError("memory_soft must not be above memory_hard")

    @property
    def of_the_kernel(self) -> list[int | None] | None:
        """CPU seconds and open files, as :func:`apply` takes them; None if neither is limited."""
        if self.cpu_seconds is None and self.open_files is None:
            return None
        return [self.cpu_seconds, self.open_files]


NO_LIMITS = WorkerLimits()


def apply(limits: list[int | None] | None) -> None:
    """Limit this process, and what it starts from now on. A limit is never raised by this."""
    if limits is None:
        return
    import resource

    cpu_seconds, open_files = limits
    if cpu_seconds is not None:
        _lower(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + CPU_MARGIN)
    if open_files is not None:
        _lower(resource.RLIMIT_NOFILE, open_files, open_files)


def _lower(which: int, soft: int, hard: int) -> None:
    import resource

    now = resource.getrlimit(which)[1]
    if now != resource.RLIM_INFINITY:
        hard = min(hard, now)
    resource.setrlimit(which, (min(soft, hard), hard))


def resident(pid: int) -> int | None:
    """The resident bytes of a process, or None if it is gone or cannot be looked at."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):  # gone
            return None
    import psutil

    try:
        bytes: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    return bytes


def in_words(bytes: int) -> str:
    """A size for people: ``2.1 GiB``."""
    size, units = float(bytes), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}" if units[0] != "bytes" else f"{bytes} bytes"
