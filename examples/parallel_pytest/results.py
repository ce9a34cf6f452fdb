"""What came of the tests: read from the shards' records, merged, and written as JUnit XML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from pathlib import Path

Result = dict[str, Any]
"""``test``, ``outcome`` (passed, failed, error, skipped or crashed), ``seconds`` and ``text``."""


def read_record(path: Path) -> tuple[list[Result], str | None]:
    """Read what one pytest process has written down.

    Returns:
        The results of the tests that came to an end, and the test that had begun when the
        process ended, if there was one.
    """
    results: dict[str, Result] = {}
    running: str | None = None
    for line in path.read_text().splitlines():
        said = json.loads(line)
        if "begins" in said:
            running = said["begins"]
        elif "ends" in said:
            running = None
        else:
            outcome = said["outcome"]
            if outcome == "failed" and said["when"] != "call":
                outcome = "error"
            earlier = results.get(said["test"])
            if earlier is None or outcome in ("failed", "error"):
                results[said["test"]] = {
                    "test": said["test"], "outcome": outcome, "seconds": said["seconds"],
                    "text": said["text"],
                }  # fmt: skip
    if running is not None:
        results.pop(running, None)
    return list(results.values()), running


def merge(results: list[Result], collected: int, seconds: float) -> dict[str, Any]:
    """Make the report of the whole suite."""
    by_outcome = {
        outcome: [result for result in results if result["outcome"] == outcome]
        for outcome in ("passed", "failed", "error", "crashed", "skipped")
    }
    slowest = sorted(results, key=lambda result: -result["seconds"])[:5]
    return {
        "tests": collected,
        **{outcome: len(found) for outcome, found in by_outcome.items()},
        "not_run": collected - len(results),
        "seconds": round(seconds, 2),
        "problems": [
            {"test": result["test"], "outcome": outcome, "text": _last_line(result["text"])}
            for outcome in ("failed", "error", "crashed")
            for result in sorted(by_outcome[outcome], key=lambda result: str(result["test"]))
        ],
        "slowest": [{"test": each["test"], "seconds": each["seconds"]} for each in slowest],
    }


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0 if errors else -1].removeprefix("E").strip()


def write_junit(path: Path, results: list[Result], seconds: float) -> None:
    """Write the results as JUnit XML, as build servers read it."""
    failed = [result for result in results if result["outcome"] in ("failed", "crashed")]
    errors = [result for result in results if result["outcome"] == "error"]
    suite = ElementTree.Element(
        "testsuite", name="parallel-pytest", tests=str(len(results)), failures=str(len(failed)),
        errors=str(len(errors)), time=f"{seconds:.3f}",
        skipped=str(sum(result["outcome"] == "skipped" for result in results)),
    )  # fmt: skip
    for result in sorted(results, key=lambda result: str(result["test"])):
        place, _, name = result["test"].rpartition("::")
        case = ElementTree.SubElement(
            suite, "testcase", classname=place.replace("/", ".").replace(".py", ""), name=name,
            time=f"{result['seconds']:.3f}",
        )  # fmt: skip
        kind = {"failed": "failure", "crashed": "failure", "error": "error", "skipped": "skipped"}
        if result["outcome"] in kind:
            problem = ElementTree.SubElement(
                case, kind[result["outcome"]], message=_last_line(result["text"])
            )
            problem.text = result["text"]
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
