"""The command, from the outside."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

LAUNCH = f"""\
version: 1
name: launch
agents:
  - id: echo
    behaviour: {ROOT / "benchmarks" / "behaviours.py"}:echo
    isolation: pool
    prompt: 1
"""


def _command() -> list[str]:
    """The installed command of this environment, or the module if it is not installed."""
    installed = Path(sys.executable).with_name("dsh-actors")
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "dsh_actors_cli"]


def _environment(home: Path) -> dict[str, str]:
    """An environment with a home and compiled modules of its own.

    An installed package is compiled once; a source tree may be forbidden to be.
    """
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    paths = [str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONPYCACHEPREFIX": str(home / "compiled"),
        "DSH_ACTORS_HOME": str(home / "home"),
    }


def _launch(tree: Path, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    with subprocess.Popen(
        [*_command(), "run", str(tree), "--output-format", "stream-json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        answered = 0.0
        for line in process.stdout:
            if not answered and json.loads(line)["type"] in ("turn/end", "result"):
                answered = time.perf_counter() - start
        problem = process.stderr.read()
    if process.returncode or not answered:
        raise RuntimeError(problem or f"exit status {process.returncode}")
    return answered


def launch(n: int) -> dict[str, float]:
    """Milliseconds from the start of the command to the answer of an agent in a worker."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree.yaml")
        tree.write_text(LAUNCH)
        environment = _environment(Path(folder))
        _launch(tree, environment)  # compiles the modules
        return {"ms": statistics.median(_launch(tree, environment) for _ in range(n)) * 1e3}


def census(n: int) -> dict[str, float]:
    """Seconds for the code census of the standard library with *n* workers."""
    tree = ROOT / "examples" / "code_census" / "tree.yaml"
    options = ["--workers", str(n), "--output-format", "json"]
    with tempfile.TemporaryDirectory() as home:
        start = time.perf_counter()
        done = subprocess.run(
            [*_command(), "run", str(tree), *options],
            env=_environment(Path(home)),
            capture_output=True,
            text=True,
            check=False,
        )
        taken = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {"seconds": taken}
