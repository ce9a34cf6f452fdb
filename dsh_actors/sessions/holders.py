"""Which process is behind an open store, and whether the one behind another still lives.

A pid alone is never an identity: it is given to another process later, it means something else
in another container, and ``exec`` keeps it while everything else in the process is replaced. So a
holder is a pid with its start time, within one boot and one set of namespaces, and an image, which
is drawn anew whenever a process loads this module.

Ages within one boot are taken from the monotonic clock. It is the same for all processes, no
change of the clock moves it, and it stands still while the machine sleeps, in which nobody can
beat. Holders of another boot or namespace can only be judged by the wall clock; there a heartbeat
from the future is as bad as an old one, since a living holder corrects it within a third of its
``ttl``. Either way a wrong judgement costs the loser its lease and never lets two write: every
takeover is fenced (see ``lease``).
"""

from __future__ import annotations

import os
import sys
from functools import cache
from time import localtime, monotonic, strftime, time
from typing import TYPE_CHECKING, NamedTuple

from dsh_actors.errors import Holder
from dsh_actors.processes.identity import ProcessId, is_running, start_time

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COLUMNS", "Place", "Row", "Standing", "describe", "here", "judge", "new_row"]

COLUMNS = "key, name, host, boot, pid, pid_started, image, started, heartbeat, uptime, ttl, fence"
"""The columns of the table ``holders``, in the order of ``Row``."""

_IMAGE = os.urandom(8).hex()


class Row(NamedTuple):
    """A row of ``holders``.

    Parameters:
        key: never used twice.
        name: of the system that works there.
        host: the machine's name.
        boot: in which boot and namespaces ``pid``, ``pid_started`` and ``uptime`` mean something.
        pid: its process.
        pid_started: the start time that goes with the pid, as in ``ProcessId``.
        image: what runs in that process; another one after an ``exec``.
        started: when it opened the store, in Unix seconds.
        heartbeat: when it last showed that it is alive, in Unix seconds.
        uptime: the same in monotonic seconds.
        ttl: seconds after which it may be taken for hung; it beats three times as often.
        fence: how many sessions were taken from it.
    """

    key: int | None
    name: str
    host: str
    boot: str
    pid: int
    pid_started: float
    image: str
    started: float
    heartbeat: float
    uptime: float
    ttl: float
    fence: int

    @property
    def public(self) -> Holder:
        """What users see of it."""
        return Holder(self.name, self.host, self.pid, self.started, self.heartbeat)


class Place(NamedTuple):
    """Where this process runs; see ``Row``."""

    host: str
    boot: str
    pid: int
    image: str


class Standing:
    """How a holder is doing."""

    ALIVE = "alive"
    HUNG = "hung"
    """There, as far as is known, but without a heartbeat for its ``ttl``: stopped, or stuck."""
    DEAD = "dead"


def here() -> Place:
    """Return where this process runs."""
    return Place(os.uname().nodename, _boot(), os.getpid(), _IMAGE)


@cache
def _boot() -> str:
    """The boot, and the namespaces in which pids and monotonic time are counted."""
    if sys.platform != "linux":
        return os.uname().nodename  # start times count from the epoch there and tell boots apart
    with open("/proc/sys/kernel/random/boot_id") as file:
        parts = [file.read().strip()]
    for space in ("pid", "time"):
        try:
            parts.append(os.readlink(f"/proc/self/ns/{space}"))
        except OSError:
            parts.append(space)  # a kernel without such namespaces has one for everybody
    return " ".join(parts)


def new_row(name: str, ttl: float) -> Row:
    """Return the row of a store that this process opens now; its key is not given yet."""
    place = here()
    return Row(
        None,
        name,
        place.host,
        place.boot,
        place.pid,
        start_time(place.pid) or 0.0,
        place.image,
        time(),
        time(),
        monotonic(),
        ttl,
        0,
    )


def judge(
    row: Row,
    place: Place,
    *,
    uptime: float,
    now: float,
    running: Callable[[ProcessId], bool] = is_running,
) -> str:
    """Tell how a holder is doing: one of ``Standing``.

    Parameters:
        row: the holder.
        place: where we are.
        uptime: monotonic seconds now.
        now: Unix seconds now.
        running: whether a process of this boot is there and no zombie.
    """
    if row.boot == place.boot:
        if row.pid == place.pid and row.image != place.image:
            return Standing.DEAD  # a former holder of our pid, or what we were before an exec
        try:
            if not running(ProcessId(row.pid, row.pid_started)):
                return Standing.DEAD
        except PermissionError:
            pass  # /proc may hide the processes of others; then the heartbeat has to tell
        return Standing.HUNG if uptime - row.uptime > row.ttl else Standing.ALIVE
    if row.host == place.host and row.boot.split()[0] != place.boot.split()[0]:
        # A write-ahead log is shared memory, so all who use a store at a time run on one kernel.
        return Standing.DEAD
    return Standing.HUNG if abs(now - row.heartbeat) > row.ttl else Standing.ALIVE


def describe(holder: Holder) -> str:
    """Return a holder in words, for errors."""
    since = strftime("%Y-%m-%d %H:%M:%S", localtime(holder.started))
    return f"{holder.name} (pid {holder.pid} on {holder.host}, since {since})"
