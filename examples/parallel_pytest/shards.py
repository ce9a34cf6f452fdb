"""Runs a pytest suite in several processes at once, and survives those that crash."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dsh_actors as dsh

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from results import Result, merge, read_record, write_junit  # noqa: E402

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


class SuiteFailed(Exception):
    """Tests have failed, and ``check`` was asked for."""


@dsh.behaviour
async def suite(turn: dsh.Turn, prompt: dict[str, Any]) -> dict[str, Any]:
    """Collect the tests, run them in shards, and merge what came of them."""
    started = time.monotonic()
    folder = Path(prompt["suite"])
    tests = await collect(turn, folder)
    shards = split(tests, prompt["shards"])
    jobs = [
        turn.run(
            shard,
            {
                "folder": str(folder), "tests": part, "stop_at_first": prompt["stop_at_first"],
                "timeout": prompt["test_timeout"],
            },
            id=f"shard-{number}",
        )
        for number, part in enumerate(shards, 1)
    ]  # fmt: skip
    results: list[Result] = []
    async for job in dsh.as_settled(jobs):
        results += job.outcome.unwrap()
        bad = sum(result["outcome"] in ("failed", "error", "crashed") for result in results)
        turn.progress(len(results), len(tests), f"{bad} failed" if bad else "")
        if bad and prompt["stop_at_first"]:
            break  # the other shards end with this turn, with all that they have started
    seconds = time.monotonic() - started
    if prompt["junit"]:
        write_junit(Path(prompt["junit"]), results, seconds)
    report = merge(results, len(tests), seconds)
    if prompt["check"] and report["problems"]:
        names = ", ".join(problem["test"] for problem in report["problems"][:5])
        raise SuiteFailed(f"{len(report['problems'])} of {len(tests)} tests failed: {names}")
    return report


async def collect(turn: dsh.Turn, folder: Path) -> list[str]:
    """The ids of all tests, in pytest's order."""
    turn.progress(note="collecting")
    place = folder if folder.is_dir() else folder.parent
    found = await turn.shell.run([*PYTEST, "--collect-only", str(folder)], cwd=place)
    lines = found.text.splitlines()
    tests = [line for line in lines if "::" in line and " " not in line.partition("[")[0]]
    if found.exit_code != 0 or not tests:
        raise RuntimeError(f"pytest collects no tests in {folder}:\n{found.text[-2000:]}")
    return tests


def split(tests: list[str], count: int) -> list[list[str]]:
    """Share the tests out, those of one file together, the largest files first."""
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    shards: list[list[str]] = [[] for _ in range(max(1, count))]
    for part in sorted(files.values(), key=len, reverse=True):
        min(shards, key=len).extend(part)
    return [part for part in shards if part]


@dsh.behaviour
def shard(turn: dsh.Turn, work: dict[str, Any]) -> list[Result]:
    """Run some tests; after a crash go on behind the test that it was."""
    folder = Path(work["folder"])
    pending, results = list(work["tests"]), []
    with tempfile.TemporaryDirectory(prefix="shard-") as scratch:
        for attempt in range(len(pending)):
            if not pending:
                break
            record = Path(scratch, f"{attempt}.jsonl")
            record.touch()
            chosen = Path(scratch, f"{attempt}.txt")
            chosen.write_text("\n".join(pending))
            stop = ["-x"] if work["stop_at_first"] else []
            path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
            ended = turn.shell.run(
                [*PYTEST, "-p", "recorder", *stop, f"@{chosen}"],
                cwd=folder if folder.is_dir() else folder.parent,
                env={"PYTHONPATH": path, "PARALLEL_PYTEST_RECORD": str(record)},
                timeout=work["timeout"],
            ).result()
            done, running = read_record(record)
            results += done
            if running is None:
                break  # it came to its end
            how = "took too long"
            if not ended.timed_out:
                how = f"ended its process ({ended.signal or ended.exit_code})"
            results.append(
                {"test": running, "outcome": "crashed", "seconds": 0.0, "text": f"the test {how}"}
            )
            turn.progress(len(results), len(work["tests"]), f"{running} {how}")
            if work["stop_at_first"]:
                break
            pending = pending[pending.index(running) + 1 :]
    return results
