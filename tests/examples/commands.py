"""Runs the one command of an example, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def _run(arguments: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "DSH_ACTORS_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=environment,
        cwd=home,  # not the project's folder: the examples must not depend on it
    )


def worker_pids(report: dict[str, Any]) -> set[int]:
    """The worker processes that a result's receipt names."""
    processes = report["receipt"]["processes"]
    return {process["pid"] for process in processes if process["kind"] == "worker"}
