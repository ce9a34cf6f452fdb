"""Runs the one command of an example, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"

TIMEOUT = 120.0
"""Seconds after which the command hangs."""


def run_script(script: Path, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python script, with its own folder for what the library stores."""
    return _run([str(script), *arguments], home)


def run_tree(tree: str, *options: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run ``dsh-actors run`` on a tree file of the examples."""
    arguments = ["-m", "dsh_actors_cli", "run", str(EXAMPLES / tree), *options]
    return _run(arguments, home)


def run_tree_json(tree: str, *options: str, home: Path) -> tuple[int, dict[str, Any]]:
    """Run a tree; return the exit code and the result object."""
    done = run_tree(tree, *options, "--output-format", "json", home=home)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


@contextmanager
def streaming_tree(tree: str, *options: str, home: Path) -> Iterator[Iterator[dict[str, Any]]]:
    """Run a tree in the background; give its events as they happen, the result as the last."""
    arguments = ["-m", "dsh_actors_cli", "run", str(EXAMPLES / tree), *options]
    with subprocess.Popen(
        [sys.executable, *arguments, "--output-format", "stream-json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(home),
        cwd=home,
    ) as process:
        assert process.stdout is not None
        try:
            yield map(json.loads, process.stdout)
        finally:
            process.terminate()  # of no effect on one that has ended


def _run(arguments: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=_environment(home),
        cwd=home,  # not the project's folder: the examples must not depend on it
    )


def _environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "DSH_ACTORS_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def worker_pids(report: dict[str, Any]) -> set[int]:
    """The worker processes that a result's receipt names."""
    processes = report["receipt"]["processes"]
    return {process["pid"] for process in processes if process["kind"] == "worker"}
