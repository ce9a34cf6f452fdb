"""The example that shards a pytest suite, through the real command."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from commands import run_tree_json

if TYPE_CHECKING:
    from pathlib import Path

TREE = "parallel_pytest/tree.yaml"


def test_the_reports_are_merged_and_a_crash_costs_one_test(tmp_path: Path) -> None:
    junit = tmp_path / "report.xml"

    code, report = run_tree_json(TREE, "--set", f"junit={junit}", home=tmp_path)

    result = report["result"]
    assert (code, report["error"]) == (0, None)
    counts = {name: result[name] for name in ("tests", "passed", "failed", "error", "crashed")}
    assert counts == {"tests": 20, "passed": 16, "failed": 1, "error": 1, "crashed": 1}
    assert (result["skipped"], result["not_run"]) == (1, 0)
    assert [[each["test"], each["outcome"], each["text"]] for each in result["problems"]] == [
        ["test_text.py::test_that_is_wrong", "failed", "AssertionError: assert 'SS' == 'ß'"],
        ["test_text.py::test_with_a_broken_fixture", "error", "OSError: no such service"],
        [
            "test_native.py::test_reads_what_is_not_there", "crashed",
            "the test ended its process (SIGSEGV)",
        ],
    ]  # fmt: skip
    cases = ElementTree.parse(junit).getroot()
    assert (cases.get("tests"), cases.get("failures"), cases.get("errors")) == ("20", "2", "1")


def test_it_stops_at_the_first_failure_and_fails_the_run(tmp_path: Path) -> None:
    code, report = run_tree_json(
        TREE, "--set", "check=true", "--set", "stop_at_first=true", home=tmp_path
    )

    assert code == 1
    assert report["error"]["type"] == "SuiteFailed"
    assert "tests failed: " in report["error"]["message"]
    assert report["receipt"]["survivors"] == []


def test_a_suite_without_tests(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, report = run_tree_json(TREE, "--set", f"suite={tmp_path / 'empty'}", home=tmp_path)

    assert code == 1
    assert f"pytest collects no tests in {tmp_path / 'empty'}" in report["error"]["message"]
