"""The code census through the real command."""

from __future__ import annotations

import os
import signal
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest
from census_files import THIRD_PARTY
from commands import run_tree, run_tree_json, streaming_tree, worker_pids
from independent_census import count_folder

if TYPE_CHECKING:
    from pathlib import Path

TREE = "code_census/tree.yaml"
KEYS = (
    "files",
    "failed_files",
    "lines",
    "functions",
    "async_functions",
    "classes",
    "bare_excepts",
    "top",
    "failures",
)


def check_against_independent_count(
    result: dict[str, object], root: str, skip: tuple[str, ...] = ()
) -> None:
    expected = count_folder(root, skip=skip)
    assert tuple(result) == KEYS
    for key in KEYS[:-2]:
        assert result[key] == expected[key], key
    top, failures = result["top"], result["failures"]
    assert isinstance(top, list)
    assert isinstance(failures, list)
    assert [(f["path"], f["line"], f["complexity"]) for f in top] == expected["top"]
    assert [failure["path"] for failure in failures] == expected["failed"]


def test_the_command_counts_a_folder_in_two_workers(tmp_path: Path) -> None:
    root = f"{sysconfig.get_path('stdlib')}/asyncio"
    options = ("--set", f"root={root}", "--workers", "2")
    code, report = run_tree_json(TREE, *options, home=tmp_path)
    assert (code, report["subtype"], report["error"]) == (0, "completed", None)
    check_against_independent_count(report["result"], root)
    assert len(worker_pids(report)) == 2
    children = [agent for agent in report["receipt"]["agents"] if agent["id"] != "census"]
    assert {agent["pid"] for agent in children} == worker_pids(report)
    assert report["agents"] == {
        "completed": len(children) + 1,
        "aborted": 0,
        "failed": 0,
        "lost": 0,
    }
    assert report["receipt"]["survivors"] == []


def test_a_worker_killed_in_mid_run_costs_no_file(tmp_path: Path) -> None:
    root = f"{sysconfig.get_path('stdlib')}/asyncio"
    pids: dict[str, int] = {}
    killed = 0
    events: list[dict[str, Any]] = []
    options = ("--set", f"root={root}", "--workers", "2")
    with streaming_tree(TREE, *options, home=tmp_path) as stream:
        for event in stream:
            events.append(event)
            if event["type"] == "agent/started" and event["agent"] != "census":
                pids[event["agent"]] = event["pid"]
            elif event["type"] == "turn/start" and event["agent"] in pids and not killed:
                killed = pids[event["agent"]]
                os.kill(killed, signal.SIGKILL)
    report = events[-1]
    assert (report["subtype"], report["agents"]["lost"]) == ("completed", 0)
    check_against_independent_count(report["result"], root)
    assert any(event["type"] == "agent/restarted" for event in events)
    processes = {process["pid"]: process for process in report["receipt"]["processes"]}
    assert processes[killed]["ended"] == "killed"


@pytest.mark.slow
def test_the_default_is_the_standard_library(tmp_path: Path) -> None:
    code, report = run_tree_json(TREE, home=tmp_path)
    assert code == 0
    check_against_independent_count(report["result"], sysconfig.get_path("stdlib"), THIRD_PARTY)
    assert len(worker_pids(report)) >= 2


def test_bad_files_are_listed_and_the_rest_is_counted(tmp_path: Path) -> None:
    root = tmp_path / "src"
    (root / "package").mkdir(parents=True)
    (root / "good.py").write_text("def f():\n    if f: pass\n")
    (root / "package" / "bad.py").write_text("def f(:\n")
    (root / "package" / "broken.py").symlink_to("nowhere")
    code, report = run_tree_json(TREE, "--set", f"root={root}", home=tmp_path)
    assert code == 0
    result = report["result"]
    assert (result["files"], result["failed_files"], result["functions"]) == (3, 2, 1)
    assert result["top"] == [{"path": "good.py", "function": "f", "line": 1, "complexity": 2}]
    assert result["failures"] == [
        {"path": "package/bad.py", "error": "SyntaxError: invalid syntax (line 1)"},
        {"path": "package/broken.py", "error": "FileNotFoundError: No such file or directory"},
    ]


def test_an_empty_folder_is_a_census_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, report = run_tree_json(TREE, "--set", f"root={tmp_path / 'empty'}", home=tmp_path)
    assert code == 0
    assert report["result"] == dict.fromkeys(KEYS, 0) | {"top": [], "failures": []}


def test_a_missing_folder_is_one_line_and_exit_1(tmp_path: Path) -> None:
    done = run_tree(TREE, "--set", f"root={tmp_path / 'missing'}", home=tmp_path)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert "missing" in done.stderr
    assert "Traceback" not in done.stderr
