"""Run measurements in fresh processes, ours and the peers' in turn, and take medians."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Figures", "Measure", "measure"]

ROOT = Path(__file__).resolve().parent.parent
TIME_LIMIT = 120.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One function that measures.

    Parameters:
        label: whose figure it is.
        reference: ``module:function`` below ``benchmarks``.
        n: how much it does.
        quick: the same with ``--quick``.
        metric: which of its figures counts here.
    """

    label: str
    reference: str
    n: int
    quick: int
    metric: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What the repetitions of one measurement gave.

    Parameters:
        samples: by metric, one value per repetition.
        problem: why there is none, or an empty text.
    """

    samples: dict[str, list[float]]
    problem: str = ""

    def median(self, metric: str) -> float | None:
        """The median of a metric, or None without samples."""
        values = self.samples.get(metric)
        return statistics.median(values) if values else None


def measure(works: list[tuple[str, int]], repetitions: int) -> dict[tuple[str, int], Figures]:
    """Take turns, so that what else happens on the machine touches all of them alike.

    Parameters:
        works: reference and n of each measurement.
        repetitions: how often to run each.

    Returns:
        The figures of each.
    """
    found = {work: Figures({}) for work in dict.fromkeys(works)}
    for _ in range(repetitions):
        for work, figures in found.items():
            if figures.problem:
                continue
            outcome = _once(*work)
            if isinstance(outcome, str):
                found[work] = Figures({}, outcome)
                continue
            for metric, value in outcome.items():
                figures.samples.setdefault(metric, []).append(value)
    return found


def _once(reference: str, n: int) -> dict[str, float] | str:
    """The figures of one run in a process of its own, or what is wrong with it."""
    command = [sys.executable, "-m", "benchmarks.one", f"benchmarks.{reference}", str(n)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIME_LIMIT:.0f} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"failed: {lines[-1] if lines else f'exit status {done.returncode}'}"
    answer = json.loads(done.stdout.splitlines()[-1])
    if "missing" in answer:
        return f"{answer['missing']} is not installed"
    return {metric: float(value) for metric, value in answer.items()}
