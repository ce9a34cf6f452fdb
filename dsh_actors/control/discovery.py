"""Which systems run here, and what is left of those that do not any more.

Beside each socket lies a file that says whose it is. It is written before the socket appears,
and a socket appears under its name only once somebody listens on it. So a refused connection, or
an owner that is gone, proves that nobody will ever answer there.
"""

from __future__ import annotations

import json
import os
import re
import socket
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors.control.folder import check_folder, runtime_dir
from dsh_actors.errors import ControlError
from dsh_actors.processes.identity import ProcessId, is_running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Record", "RunningSystem", "find_system", "remove_record", "running_systems"]

_PROBE = 1.0  # seconds for a system that has to be asked who it is
_UNFINISHED_FOR = 60.0  # seconds after which nobody is still at it
_UNFINISHED = re.compile(r"\.(\d+)-([\d.]+)-[0-9a-f]+\.tmp")


class RunningSystem(NamedTuple):
    """A system that can be reached.

    Parameters:
        id: of the system.
        pid: its process.
        name: of the system, as it was given.
        started: when its socket was opened, in Unix seconds.
        path: of its socket.
    """

    id: str
    pid: int
    name: str
    started: float
    path: Path


class Record(NamedTuple):
    """What the file beside a socket says.

    Parameters:
        id: of the system.
        name: of the system.
        pid: its process.
        pid_started: the start time that goes with the pid, as in ``ProcessId``.
        place: the host, the boot and the namespace in which the pid means something.
        started: when the socket was opened, in Unix seconds.
    """

    id: str
    name: str
    pid: int
    pid_started: float
    place: str
    started: float

    @classmethod
    def of_this_process(cls, id: str, name: str, started: float) -> Record:
        """The record of a system of this process."""
        pid = os.getpid()
        process = ProcessId.of(pid)
        return cls(id, name, pid, process.start_time if process else 0.0, here(), started)

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """Read one; None if there is none, or none that makes sense."""
        try:
            found = json.loads(path.read_bytes())
            record = cls(**{name: found[name] for name in cls._fields})
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        wanted = (str, str, int, float | int, str, float | int)
        if not all(isinstance(v, kind) for v, kind in zip(record, wanted, strict=True)):
            return None
        return record

    def write(self, path: Path) -> None:
        """Write it, so that it is never seen in part."""
        temporary = path.with_name(temporary_name(self))
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(self._asdict(), file)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @property
    def is_gone(self) -> bool:
        """Whether the process has certainly ended. That of another machine or container may not."""
        return self.place == here() and not is_running(ProcessId(self.pid, self.pid_started))


def here() -> str:
    """The host, boot and namespace in which this process has its pid."""
    from dsh_actors.sessions.holders import here as place

    host, boot, *_ = place()
    return f"{host} {boot}"


def temporary_name(record: Record) -> str:
    """A name for something unfinished, which tells whose it is."""
    return f".{record.pid}-{record.pid_started}-{os.urandom(4).hex()}.tmp"


def record_path(path: Path) -> Path:
    """Where the record of a socket is."""
    return path.with_suffix(".json")


def remove_record(path: Path) -> None:
    """Remove a socket and its record, in this order."""
    path.unlink(missing_ok=True)
    record_path(path).unlink(missing_ok=True)


def running_systems(folder: Path | None = None) -> list[RunningSystem]:
    """List the running systems of this user, the newest last.

    Sockets of systems that have ended without a chance to remove them are removed on the way.

    Parameters:
        folder: where to look; None for `runtime_dir`.

    Raises:
        ControlError: the folder is not private, so that nothing in it can be believed.
    """
    folder = folder if folder is not None else runtime_dir()
    if not check_folder(folder):
        return []
    found = []
    for path in _entries(folder):
        if path.suffix == ".sock":
            system = _look_at(path)
            if system is not None:
                found.append(system)
        else:
            _clean(path)
    return sorted(found, key=lambda system: (system.started, system.id))


def _entries(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(folder), reverse=True)  # a socket before its record
    except FileNotFoundError:
        return
    for name in names:
        if not name.startswith(".") or _UNFINISHED.fullmatch(name):
            yield folder / name


def _look_at(path: Path) -> RunningSystem | None:
    record = Record.read(record_path(path))
    if (record is not None and record.is_gone) or not _listens(path):
        remove_record(path)
        return None
    if record is not None:
        return RunningSystem(record.id, record.pid, record.name, float(record.started), path)
    return _ask(path)


def _listens(path: Path) -> bool:
    """Whether somebody listens there, be it with a full queue."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _ask(path: Path) -> RunningSystem | None:
    """A system whose record is lost has to say itself what it is."""
    from dsh_actors.control.client import ControlClient

    try:
        with ControlClient.connect(path, timeout=_PROBE) as client:
            hello: dict[str, Any] = client.hello
    except ControlError:
        return None
    return RunningSystem(hello["system"], hello["pid"], hello["name"], hello["started"], path)


def _clean(path: Path) -> None:
    """Remove a record without a socket, or something unfinished, if its process is gone."""
    unfinished = _UNFINISHED.fullmatch(path.name)
    if unfinished is not None:
        owner = ProcessId(int(unfinished[1]), float(unfinished[2]))
        gone = not is_running(owner) and _is_old(path)  # it may be at work in another container
    elif path.suffix == ".json":
        record = Record.read(path)
        gone = record is not None and record.is_gone and not path.with_suffix(".sock").exists()
    else:
        gone = False
    if gone:
        path.unlink(missing_ok=True)


def _is_old(path: Path) -> bool:
    try:
        return time() - path.stat().st_mtime > _UNFINISHED_FOR
    except FileNotFoundError:
        return False


def find_system(wanted: str | None, folder: Path | None = None) -> RunningSystem:
    """Return the running system with this id, or the only one whose id begins so.

    Parameters:
        wanted: an id or the beginning of one; None for the only system that runs.
        folder: where to look; None for `runtime_dir`.

    Raises:
        ControlError: there is none, or more than one.
    """
    systems = running_systems(folder)
    if not systems:
        raise ControlError(
            "no system is running here; start one: dsh-actors run TREE --detach"
            if wanted is None
            else f"no system {wanted!r} is running here, nor any other",
            type_name="NoSystem",
        )
    names = ", ".join(system.id for system in systems)
    fitting = [s for s in systems if wanted is None or s.id.startswith(wanted)]
    exact = [system for system in fitting if system.id == wanted]
    if len(exact) == 1 or len(fitting) == 1:
        return (exact or fitting)[0]
    if not fitting:
        raise ControlError(
            f"no system {wanted!r} is running; these are: {names}", type_name="NoSystem"
        )
    what = "several systems are running" if wanted is None else f"several begin with {wanted!r}"
    names = ", ".join(system.id for system in fitting)
    raise ControlError(f"{what}, say which: {names}", type_name="NoSystem")
