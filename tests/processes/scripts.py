"""Scripts that tests run in a process of their own, as users run theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def environment() -> dict[str, str]:
    """An environment in which a script finds the package and the tests' behaviours."""
    path = os.pathsep.join((str(ROOT), str(TESTS)))
    return {**os.environ, "PYTHONPATH": path}


def start(script: Path, *args: str) -> subprocess.Popen[str]:
    """Start a script; its stdout and stderr are pipes."""
    return subprocess.Popen(
        [sys.executable, str(script), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def run(folder: Path, text: str, *args: str) -> Any:
    """Run a script to its end.

    Returns:
        The completed process.
    """
    script = folder / "script.py"
    script.write_text(text)
    process = start(script, *args)
    try:
        out, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the script hangs; it said: {out}\n{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
