"""``dsh-actors doctor``: whether this machine can run agents, and what to do if not."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import json_option, store_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dsh_actors.agents.turn import Turn

__all__ = ["Finding", "doctor", "examine"]

_EPILOG = """\b
Examples:
  dsh-actors doctor
  dsh-actors doctor --json

\b
Exit codes: 0 all is well or there are only warnings, 1 something fails.
"""
_OLDEST_PYTHON = (3, 11)
_PACKAGES = (
    *("dsh-actors", "pykka", "psutil", "msgpack", "click", "structlog", "PyYAML", "pydantic"),
    "rich",
)
# Each worker costs a handful of descriptors in the launching process.
_FEW_DESCRIPTORS = 256
_WORKER_PATIENCE = 20.0
_PR_GET_PDEATHSIG, _PR_GET_CHILD_SUBREAPER = 2, 37


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination.

    Attributes:
        name: what was looked at.
        state: ``ok``; ``warn`` if something works less well; ``fail`` if agents cannot run.
        text: what was found.
        advice: what to do about it; empty if nothing.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    advice: str = ""


@click.command(epilog=_EPILOG)
@json_option
@store_option
def doctor(as_json: bool, store: Path | None) -> int:
    """Check that this machine can run agents, and say what to do where it cannot."""
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.style import Style, wants_colour

    findings: list[Finding] = []
    style = Style(wants_colour(sys.stdout))
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for finding in examine(store):
        findings.append(finding)
        if not as_json:
            state = style(f"{finding.state:<4}", colours[finding.state])
            advice = f"; {finding.advice}" if finding.advice else ""
            click.echo(f"{state}  {finding.name:<17}  {display_text(finding.text + advice)}")
    if as_json:
        click.echo(output.to_json([asdict(f) for f in findings], ascii_only=True))
    return exits.FAILED if any(f.state == "fail" for f in findings) else exits.DONE


def examine(store: Path | None = None) -> Iterator[Finding]:
    """Yield the findings, each as soon as it is known.

    Parameters:
        store: the session store to look at; None for the default one.
    """
    checks: tuple[Callable[[], Finding], ...] = (
        _python,
        _platform,
        _packages,
        _descriptors,
        _orphans,
        _process_identity,
        lambda: _folder("state folder", store),
        lambda: _store(store),
        _terminal,
        _worker,
    )
    for check in checks:
        yield check()


def _python() -> Finding:
    text = f"{sys.version.split()[0]} ({sys.implementation.name}) at {sys.executable}"
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("python", "fail", text, "install Python 3.11 or newer")
    if not sys.executable:
        return Finding("python", "fail", text, "workers need sys.executable; start python itself")
    return Finding("python", "ok", text)


def _platform() -> Finding:
    import platform

    text = f"{platform.platform()}, {os.cpu_count()} cores"
    if sys.platform == "linux":
        return Finding("platform", "ok", text)
    if os.name == "posix":
        return Finding("platform", "warn", text, "tested on Linux; ends of orphans are less exact")
    return Finding("platform", "fail", text, "use Linux, macOS or WSL")


def _packages() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    found: list[str] = []
    missing: list[str] = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    text = ", ".join(found)
    if missing == ["dsh-actors"]:
        return Finding("packages", "warn", text, "dsh-actors runs from source: pip install -e .")
    if missing:
        return Finding("packages", "fail", text, f"pip install {' '.join(missing)}")
    return Finding("packages", "ok", text)


def _descriptors() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} at a time (the hard limit is {hard})"
    if soft < _FEW_DESCRIPTORS:
        return Finding("open files", "warn", text, "raise it: ulimit -n 1024")
    return Finding("open files", "ok", text)


def _orphans() -> Finding:
    """Look for the two services of the kernel that end and collect what a dead parent leaves."""
    if sys.platform != "linux":
        return Finding("orphans", "warn", "no prctl", "workers still end by EOF on their link")
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.c_int()
    missing = [
        name
        for name, code in (
            ("parent-death signal", _PR_GET_PDEATHSIG),
            ("subreaper", _PR_GET_CHILD_SUBREAPER),
        )
        if libc.prctl(code, ctypes.byref(answer), 0, 0, 0) != 0
    ]
    if missing:
        text = f"no {' and no '.join(missing)}"
        return Finding("orphans", "warn", text, "workers still end by EOF on their link")
    return Finding("orphans", "ok", "parent-death signal and subreaper are there")


def _process_identity() -> Finding:
    pidfd_open = getattr(os, "pidfd_open", None)
    fallback = "processes are told apart by pid and start time"
    if pidfd_open is None:
        return Finding("pidfd", "warn", f"not in this Python or kernel; {fallback}")
    try:
        os.close(pidfd_open(os.getpid()))
    except OSError as error:
        return Finding("pidfd", "warn", f"{error.strerror}; {fallback}")
    return Finding("pidfd", "ok", "there")


def _folder(name: str, store: Path | None) -> Finding:
    """Check that the folder of the store can be written and is nobody else's business."""
    from dsh_actors.errors import StoreError
    from dsh_actors.sessions import default_store_path

    advice = "set DSH_ACTORS_HOME to a folder of yours"
    try:
        folder = (store or default_store_path()).absolute().parent
    except StoreError as error:
        return Finding(name, "fail", str(error))
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(name, "fail", f"{there} cannot be written", advice)
    if there != folder:
        return Finding(name, "ok", f"{folder} will be made at the first run")
    status = folder.stat()
    if store is None and status.st_uid != os.geteuid():
        return Finding(name, "warn", f"{folder} belongs to user {status.st_uid}", advice)
    if store is None and status.st_mode & 0o077:
        text = f"{folder} is open to other users (mode {status.st_mode & 0o777:o})"
        return Finding(name, "warn", text, f"chmod 700 {folder}")
    return Finding(name, "ok", f"{folder} (mode {status.st_mode & 0o777:o})")


def _store(store: Path | None) -> Finding:
    from dsh_actors.errors import StoreError
    from dsh_actors.sessions import SqliteReader, default_store_path

    try:
        path = store or default_store_path()
        if not path.exists():
            return Finding("session store", "ok", f"{path} will be made at the first run")
        with SqliteReader(path) as reader:
            problems = reader.check()
            count = len(reader.list())
            broken = reader.is_copy
    except StoreError as error:
        return Finding("session store", "fail", str(error), "move the file away to start anew")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        if broken:
            text = f"{path} is damaged: {problems[0]}{more}"
            advice = "the next run keeps it aside and goes on with what can be read"
            return Finding("session store", "fail", text, advice)
        text = f"{path}: {count} sessions; something was lost: {problems[0]}{more}"
        advice = "'dsh-actors sessions list' shows the damaged ones, 'sessions rm' removes them"
        return Finding("session store", "warn", text, advice)
    size = path.stat().st_size / 1e6
    return Finding("session store", "ok", f"{path}: {count} sessions, {size:.1f} MB, sound")


def _terminal() -> Finding:
    from dsh_actors_cli.render.reporter import wants_live_tree
    from dsh_actors_cli.render.style import wants_colour

    term = os.environ.get("TERM") or "unset"
    colour = "with" if wants_colour(sys.stderr) else "without"
    shown = "a live tree" if wants_live_tree() else "plain lines"
    encoding = (getattr(sys.stderr, "encoding", "") or "").lower()
    text = f"TERM={term}, {encoding}: {shown} {colour} colours"
    if "utf" not in encoding:
        return Finding("terminal", "warn", text, "set a UTF-8 locale, e.g. LANG=C.UTF-8")
    return Finding("terminal", "ok", text)


def _worker() -> Finding:
    """Start a system with one worker, ask an agent in it, and stop it."""
    from time import monotonic

    from dsh_actors.system import ActorSystem

    began = monotonic()
    try:
        with ActorSystem(workers=1, name="doctor") as system:
            handle = system.create("dsh_actors_cli.doctor:answer", id="patient", isolation="pool")
            pid = handle.agent.ask("pid").result(timeout=_WORKER_PATIENCE)
            answered = monotonic() - began
            receipt = system.shutdown().result(timeout=_WORKER_PATIENCE).to_dict()
    except Exception as error:  # whatever it is, it is the finding
        text = f"{type(error).__name__}: {error}"
        return Finding("worker process", "fail", text, "DSH_ACTORS_LOG=debug shows more")
    text = f"pid {pid} answered after {answered * 1000:.0f} ms"
    if receipt["survivors"]:
        return Finding("worker process", "fail", f"{text}, but did not end")
    return Finding("worker process", "ok", f"{text}, and ended")


def answer(_turn: Turn, _message: Any) -> int:
    """Be the behaviour of the agent that `doctor` asks: say which process this is."""
    return os.getpid()
