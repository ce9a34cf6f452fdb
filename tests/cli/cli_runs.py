"""Runs the command as a user would: in a process of its own, with its own folder."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import IO, Any

import psutil

PATIENCE = 30.0
"""Seconds after which something hangs."""

BEHAVIOURS = Path(__file__).with_name("cli_behaviours.py")

RUN = [sys.executable, "-m", "dsh_actors_cli", "run"]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a command, with nothing in it that decides about colours."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    return {
        **kept,
        "DSH_ACTORS_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }


def tree_file(folder: Path, *agents: str, grace: str = "1s") -> Path:
    """Write a tree file with these agents, in YAML's flow style, and return its path.

    ``@name`` stands for a behaviour of ``cli_behaviours``.
    """
    path = folder / "tree.yaml"
    items = [agent.replace("@", f"{BEHAVIOURS}:") for agent in agents]
    lines = "".join(f"  - {{{item}}}\n" for item in items)
    path.write_text(
        f"version: 1\nsystem: {{workers: 2, stop_grace: {grace}}}\nagents:\n{lines}",
        encoding="utf-8",
    )
    return path


def dsh(*arguments: str | Path, home: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "dsh_actors_cli", *map(str, arguments)],
        stdin=options.pop("stdin", None if "input" in options else subprocess.DEVNULL),
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        env=environment(home),
        cwd=home,
        check=False,
        **options,
    )


def read_until(stream: IO[str], word: str) -> str:
    """Read lines until one holds `word`; return them all."""
    seen = ""
    deadline = monotonic() + PATIENCE
    while word not in seen:
        readable, _, _ = select.select([stream], [], [], deadline - monotonic())
        assert readable, f"{word!r} does not come after {seen!r}"
        line = os.read(stream.fileno(), 1).decode("utf-8", "replace")
        assert line, f"it ended without {word!r}: {seen!r}"
        seen += line
    return seen


def processes_of(home: Path) -> list[psutil.Process]:
    """The processes that work for a command with this folder, the command itself as well."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DSH_ACTORS_HOME") == str(home):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def assert_nothing_left(home: Path) -> None:
    """Fail if a process of the command is still there after two seconds."""
    _, alive = psutil.wait_procs(processes_of(home), timeout=2)
    assert not alive
