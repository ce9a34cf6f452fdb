"""Ends a worker process with everything that it started, and says how each process ended.

Which processes belong to a worker is known in two ways: they are its descendants, or they carry
its mark in their environment. The first finds what has scrubbed its environment; the second finds
what lost its parent (a worker is a subreaper, so that happens only once the worker is dead).

A signal goes to a process, not to a pid: its start time is compared once a pidfd holds the process
fast, so that a number that was given out again is never hit. Ending is a loop, since a process can
start others while it is being ended: all are stopped first, and once no new ones appear, killed.
"ended" means seen gone, or seen as a zombie; that a signal was sent proves nothing.
"""

from __future__ import annotations

import os
import select
import signal
from time import monotonic
from typing import TYPE_CHECKING, Literal, NamedTuple

from dsh_actors.processes.identity import (
    LINUX,
    MARKER,
    ProcessId,
    is_running,
    parse_stat,
    start_of,
    state_and_start,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Ended",
    "ProcessId",
    "end_own_descendants",
    "end_tree",
    "kill_tree_now",
    "marked",
    "tree_of",
]

_VARIABLE = b"\0" + MARKER.encode() + b"="
_PAUSE = 0.005  # seconds between two looks, where the system has no pidfd to wait for
_MAX_ROUNDS = 100  # of stopping what has appeared; a bound that a fork loop cannot reach


class Ended(NamedTuple):
    """One process that was running when its tree was ended.

    ``ended`` says how: ``exited`` by itself, ``terminated`` after TERM, ``killed`` after KILL, or
    ``alive``: it could not be ended in the given time, or may not be signalled by this user.
    """

    pid: int
    kind: Literal["worker", "shell"]
    ended: Literal["exited", "terminated", "killed", "alive"]
    signal: str | None


class _Row(NamedTuple):
    id: ProcessId
    parent: int
    zombie: bool


# -- Which processes --------------------------------------------------------------------------


def tree_of(pid: int) -> list[ProcessId]:
    """The running descendants of a process, parents before their children.

    Parameters:
        pid: the process id of the root, which is not among them.
    """
    return [row.id for row in _descendants(pid, _table()) if not row.zombie]


def marked(marker: str) -> list[ProcessId]:
    """The running processes that carry a mark in their environment.

    Parameters:
        marker: the mark as given to `dsh_actors.workers.process.start_worker`, or the first of
            its fields (``system`` finds ``system:1:abc``, but not ``system2:1``).
    """
    return [row.id for row in _table() if not row.zombie and _has_mark(row.id.pid, marker)]


def _table() -> list[_Row]:
    """All processes, in one pass."""
    if not LINUX:
        return _table_by_psutil()
    rows = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                fields = parse_stat(file.read())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended between the listing and the look
        identity = ProcessId(int(entry), start_of(fields))
        rows.append(_Row(identity, int(fields[1]), fields[0] in b"ZX"))
    return rows


def _table_by_psutil() -> list[_Row]:
    import psutil

    rows = []
    for process in psutil.process_iter(["ppid", "create_time", "status"]):
        info = process.info
        identity = ProcessId(process.pid, info["create_time"])
        rows.append(_Row(identity, info["ppid"] or 0, info["status"] == psutil.STATUS_ZOMBIE))
    return rows


def _descendants(pid: int, table: list[_Row]) -> list[_Row]:
    children: dict[int, list[_Row]] = {}
    for row in table:
        children.setdefault(row.parent, []).append(row)
    found: list[_Row] = []
    parents = [pid]
    for parent in parents:
        rows = children.get(parent, ())
        found += rows
        parents += [row.id.pid for row in rows if row.id.pid != parent]
    return found


def _has_mark(pid: int, marker: str) -> bool:
    value = _mark_of(pid) if LINUX else _mark_by_psutil(pid)
    return any(mark == marker or mark.startswith(f"{marker}:") for mark in value.split(";"))


def _mark_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = b"\0" + file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""  # gone, or of another user, whom we could not signal either
    _, _, rest = environment.partition(_VARIABLE)
    return os.fsdecode(rest.partition(b"\0")[0])


def _mark_by_psutil(pid: int) -> str:
    import psutil

    try:
        return str(psutil.Process(pid).environ().get(MARKER, ""))
    except (psutil.Error, OSError, SystemError):
        return ""


def _family(root: ProcessId, marker: str) -> list[ProcessId]:
    """The root and everything that belongs to it, as far as it runs now, parents first.

    This process is never among them.
    """
    table = _table()
    is_there = any(row.id == root for row in table)
    rows = [row for row in table if row.id == root]
    rows += _descendants(root.pid, table) if is_there else []
    rows += [row for row in table if _has_mark(row.id.pid, marker)]
    mine = os.getpid()
    return list(dict.fromkeys(row.id for row in rows if not row.zombie and row.id.pid != mine))


# -- Signals and waiting ----------------------------------------------------------------------


def _signal(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to this very process; return whether it was there to get it."""
    try:
        if not hasattr(os, "pidfd_open"):
            if not is_running(process):
                return False
            os.kill(process.pid, number)
            return True
        held = os.pidfd_open(process.pid)
        try:
            if not is_running(process):
                return False
            signal.pidfd_send_signal(held, number)
        finally:
            os.close(held)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _wait_gone(processes: Iterable[ProcessId], deadline: float) -> list[ProcessId]:
    """Wait until none of these runs; return those that still do at the deadline."""
    running = []
    for process in processes:
        while is_running(process):
            left = deadline - monotonic()
            if left <= 0:
                running.append(process)
                break
            _wait_for_change(process, left)
    return running


def _wait_for_change(process: ProcessId, timeout: float) -> None:
    if not hasattr(os, "pidfd_open"):
        import time

        time.sleep(min(timeout, _PAUSE))
        return
    try:
        held = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if is_running(process):
            poll = select.poll()
            poll.register(held, select.POLLIN)
            poll.poll(max(1, int(timeout * 1000)))
    finally:
        os.close(held)


def _reap(process: ProcessId) -> None:
    """Take the status of an orphan that came to this process because it is a subreaper."""
    if state_and_start(process.pid) == ("Z", process.start_time):
        try:
            os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:
            return  # it is the child of another process, which has not reaped it yet


# -- Ending -----------------------------------------------------------------------------------


def end_tree(root: ProcessId, *, marker: str, grace: float, kill_wait: float) -> list[Ended]:
    """End a worker and all that it started: TERM, wait, KILL, wait until they are gone.

    The exit status of the worker itself is left for `WorkerProcess.wait`.

    Parameters:
        root: the worker. It may be dead already: what it left behind is found by the mark.
        marker: its mark.
        grace: how long to wait after TERM, in seconds.
        kill_wait: how long to wait after KILL, in seconds.

    Returns:
        Every process that was running, and how it ended.
    """
    return _Ending(root, marker).run(grace, kill_wait)


def kill_tree_now(root: ProcessId, *, marker: str, kill_wait: float = 2.0) -> list[Ended]:
    """As `end_tree`, but with KILL at once."""
    return _Ending(root, marker).run(None, kill_wait)


def end_own_descendants(marker: str, *, kill_wait: float = 1.0, reap: bool = True) -> list[Ended]:
    """Kill all that this process started, itself excepted, which shall exit right afterwards.

    If other threads here start processes faster than they can be ended, a forked helper kills
    this process, and then the rest; in that case this does not return.

    Parameters:
        marker: the mark of this process.
        kill_wait: how long to wait for their end, in seconds.
        reap: whether the status of those that are children of this process is taken; a caller
            that wants it for itself says False.

    Returns:
        Every process that was running, and how it ended.
    """
    me = ProcessId.of(os.getpid())
    assert me is not None
    ending = _Ending(me, marker)
    ended = ending.run(None, kill_wait, reap=reap)
    if any(process.ended == "alive" for process in ended) or ending.members():
        _finish_from_outside(me, marker, kill_wait)
    return ended


def _finish_from_outside(parent: ProcessId, marker: str, kill_wait: float) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it is meant, threads or not
        child = os.fork()
    if child:
        signal.pause()  # for the KILL
        return
    try:
        _signal(parent, signal.SIGKILL)
        _Ending(parent, marker).run(None, kill_wait)
    finally:
        os._exit(0)


class _Ending:
    """The ending of one tree: who was there, and the last signal that each one got."""

    def __init__(self, root: ProcessId, marker: str) -> None:
        self._root, self._marker = root, marker
        self._signals: dict[ProcessId, signal.Signals | None] = {}
        self._alive: list[ProcessId] = []

    def run(self, grace: float | None, kill_wait: float, *, reap: bool = True) -> list[Ended]:
        if grace is not None:
            self._terminate(grace)
        self._kill(kill_wait)
        for process in self._signals if reap else ():
            if process != self._root:  # whose status belongs to its `WorkerProcess`
                _reap(process)
        return [self._report(process) for process in self._signals]

    def members(self) -> list[ProcessId]:
        """Who belongs to the tree and runs now, those that were seen before included."""
        found = dict.fromkeys(_family(self._root, self._marker))
        for process in self._signals:
            if process not in found and is_running(process):
                found[process] = None
        return list(found)

    def _terminate(self, grace: float) -> None:
        deadline = monotonic() + grace
        members = self.members()
        for process in members:
            self._send(process, signal.SIGTERM)
        for process in members:
            _signal(process, signal.SIGCONT)  # a stopped process would not notice
        _wait_gone(members, deadline)

    def _kill(self, kill_wait: float) -> None:
        deadline = monotonic() + kill_wait
        while True:
            for process in self._stop_all():
                self._send(process, signal.SIGKILL)
            self._alive = _wait_gone(self._signals, deadline)
            late = [process for process in self.members() if process not in self._alive]
            if not late:
                return
            if monotonic() >= deadline:
                self._signals.update(dict.fromkeys(late))
                self._alive += late
                return

    def _stop_all(self) -> list[ProcessId]:
        """Stop every member, parents first, until no new one appears; return them all."""
        stopped: set[ProcessId] = set()
        for _ in range(_MAX_ROUNDS):
            members = self.members()
            fresh = [process for process in members if process not in stopped]
            if not fresh:
                break
            for process in fresh:
                self._signals.setdefault(process, None)
                _signal(process, signal.SIGSTOP)
            stopped.update(fresh)
        return members

    def _send(self, process: ProcessId, number: signal.Signals) -> None:
        self._signals.setdefault(process, None)
        if _signal(process, number):
            self._signals[process] = number

    def _report(self, process: ProcessId) -> Ended:
        number = self._signals[process]
        kind: Literal["worker", "shell"] = "worker" if process == self._root else "shell"
        name = None if number is None else number.name
        if process in self._alive:
            return Ended(process.pid, kind, "alive", name)
        if number is None:
            return Ended(process.pid, kind, "exited", None)
        killed = number == signal.SIGKILL
        return Ended(process.pid, kind, "killed" if killed else "terminated", name)
