"""What a piece of code left running: threads, actors, processes, file descriptors.

    before = snapshot()
    ...
    assert not leaks_since(before)

Each leak is one line (a thread's with its current stack below it) that names the culprit.
Nothing is exempted by its name. What is meant to outlive a test, such as the threads of the
process-wide dispatcher, is ended before anything is compared; ``add_release_hook`` adds more.

Processes are found in three ways, so that none escapes: as descendants, as zombies not yet
waited for, and, if they were orphaned or left the session, by the mark that ``mark_children``
puts into the environment of this process.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Snapshot", "add_release_hook", "leaks_since", "mark_children", "snapshot"]

MARK: Final = "DSH_ACTORS_TEST_RUN"
_POLL: Final = 0.005

_release_hooks: list[Callable[[], object]] = []


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What ran at one moment; compare with a later one through ``leaks_since``."""

    threads: frozenset[threading.Thread]
    idents: frozenset[int]
    actors: frozenset[str]
    pids: frozenset[int]
    descriptors: frozenset[tuple[int, str]]


def add_release_hook(hook: Callable[[], object]) -> None:
    """Call *hook* before each comparison, to end what is shared and meant to live on.

    Parameters:
        hook: called without arguments, on the thread that compares; it must leave what it
            ended able to start again on the next use.
    """
    if hook not in _release_hooks:
        _release_hooks.append(hook)


def mark_children() -> str:
    """Mark this process's environment, so that its orphaned descendants are recognised.

    Returns:
        The mark, unique to this process; a second call returns the same.
    """
    token = os.environ.get(MARK, "")
    if not token.startswith(f"{os.getpid()}-"):  # an inherited mark is the parent's
        token = os.environ[MARK] = f"{os.getpid()}-{time.time_ns()}"
    return token


def snapshot() -> Snapshot:
    """Record what runs now; well under a millisecond on Linux."""
    return Snapshot(
        threads=frozenset(threading.enumerate()),
        idents=frozenset(sys._current_frames()),
        actors=frozenset(_live_actors()),
        pids=frozenset(_all_pids()),
        descriptors=frozenset(_open_descriptors()),
    )


def leaks_since(before: Snapshot, *, timeout: float = 2.0) -> list[str]:
    """Name what runs now and did not run at *before*.

    Parameters:
        before: the earlier snapshot.
        timeout: how long, in seconds, to let things that are just ending end.

    Returns:
        One text per leak; an empty list if all is clean.
    """
    if not list(_compare(before)):
        return []
    gc.collect()  # a socket or file in a reference cycle is closed by its finaliser
    deadline = time.monotonic() + timeout
    while found := list(_compare(before)):
        if time.monotonic() >= deadline:
            return found
        time.sleep(_POLL)
    return []


def _compare(before: Snapshot) -> Iterator[str]:
    _release_default_dispatcher()
    for hook in _release_hooks:
        hook()
    yield from _leaked_threads(before)
    yield from _leaked_actors(before)
    yield from _leaked_processes(before)
    yield from _leaked_descriptors(before)


# --- threads


def _leaked_threads(before: Snapshot) -> Iterator[str]:
    frames = sys._current_frames()
    known: set[int | None] = set()
    for thread in threading.enumerate():
        known.add(thread.ident)
        # A thread that Python only adopted stays listed for ever; it lives while it has a frame.
        if thread not in before.threads and thread.ident in frames:
            yield _thread_text(repr(thread.name), frames[thread.ident])
    for ident, frame in frames.items():
        if ident not in known and ident not in before.idents:
            yield _thread_text(f"without a Thread object, ident {ident}", frame)


def _thread_text(name: str, frame: Any) -> str:
    stack = "".join(traceback.format_stack(frame)).rstrip()
    return f"thread {name}, now at:\n{stack}"


# --- actors


def _live_actors() -> Iterator[str]:
    pykka = sys.modules.get("pykka")
    if pykka is not None:
        for ref in pykka.ActorRegistry.get_all():
            yield f"{ref.actor_class.__name__} ({ref.actor_urn})"
    # A pooled actor may be running and yet not registered with Pykka.
    registry = sys.modules.get("dsh_actors.actors.registry")
    if registry is not None:
        for actor in registry.live_actors():
            yield f"{type(actor).__name__} ({actor.actor_urn})"


def _leaked_actors(before: Snapshot) -> Iterator[str]:
    for actor in dict.fromkeys(_live_actors()):
        if actor not in before.actors:
            yield f"actor {actor} still registered"


# --- processes


def _leaked_processes(before: Snapshot) -> Iterator[str]:
    if not os.path.isdir("/proc/self/fd"):
        yield from _leaked_children(before)
        return
    tracker = _resource_tracker()[0]
    token = os.environ.get(MARK)
    for pid in _all_pids():
        if pid in before.pids or pid == tracker:
            continue
        stat = _process_stat(pid)
        if stat is not None and (_descends(pid) or _is_marked(pid, token)):
            yield _process_text(pid, stat[0], _command_line(pid))


def _process_text(pid: int, state: str, command: str) -> str:
    zombie = ", ended but not waited for" if state == "Z" else ""
    return f"process {pid}{zombie}: {command}"


def _all_pids() -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        import psutil  # no /proc on this system

        yield from (child.pid for child in psutil.Process().children(recursive=True))
        return
    for name in names:
        if name.isdigit():
            yield int(name)


def _process_stat(pid: int) -> tuple[str, int] | None:
    """The state letter and the parent's pid; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1])


def _descends(pid: int) -> bool:
    """Whether *pid* is a descendant of this process."""
    own = os.getpid()
    while pid > 1:
        stat = _process_stat(pid)
        if stat is None:
            return False
        pid = stat[1]
        if pid == own:
            return True
    return False


def _is_marked(pid: int, token: str | None) -> bool:
    if token is None:
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={token}".encode() in file.read().split(b"\0")
    except OSError:  # gone, or of another user and so not ours
        return False


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
        if words != [b""]:
            return b" ".join(words).decode(errors="replace")
        with open(f"/proc/{pid}/comm") as comm:
            return f"[{comm.read().strip()}]"
    except OSError:
        return "(gone meanwhile)"


def _leaked_children(before: Snapshot) -> Iterator[str]:
    """The portable form, for systems without /proc."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        if child.pid not in before.pids and child.pid != _resource_tracker()[0]:
            try:
                state = "Z" if child.status() == psutil.STATUS_ZOMBIE else ""
                command = " ".join(child.cmdline()) if not state else child.name()
            except psutil.NoSuchProcess:
                continue
            yield _process_text(child.pid, state, command)


def _resource_tracker() -> tuple[int | None, int | None]:
    """Pid and descriptor of multiprocessing's own helper.

    One of it per interpreter starts with the first ``spawn`` and lives as long as the
    interpreter, by design of the standard library. It is told by its identity.
    """
    module = sys.modules.get("multiprocessing.resource_tracker")
    tracker = getattr(module, "_resource_tracker", None)
    return getattr(tracker, "_pid", None), getattr(tracker, "_fd", None)


# --- file descriptors


def _open_descriptors() -> Iterator[tuple[int, str]]:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}") if folder.startswith("/proc") else name
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
        yield int(name), target


def _leaked_descriptors(before: Snapshot) -> Iterator[str]:
    tracker = _resource_tracker()[1]
    for descriptor, target in _open_descriptors():
        if (descriptor, target) in before.descriptors or descriptor == tracker:
            continue
        kind = " (an event loop or selector left open)" if "eventpoll" in target else ""
        yield f"file descriptor {descriptor}: {target}{kind}"


# --- shared things


def _release_default_dispatcher() -> None:
    """End the threads of the process-wide dispatcher, unless an actor still uses it.

    With an actor on it they stay, and are named beside that actor.
    """
    module = sys.modules.get("dsh_actors.actors.dispatcher")
    if module is None:
        return
    dispatcher = module._default
    if dispatcher is None or dispatcher.closed or dispatcher.forked:
        return
    if not any(actor.dispatcher is dispatcher for actor in module.live_actors()):
        dispatcher.shutdown(timeout=1.0)
