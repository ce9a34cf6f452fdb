"""The example that follows growing logs, through the real command."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from commands import run_tree_json, streaming_tree

if TYPE_CHECKING:
    from pathlib import Path

TREE = "log_watch/tree.yaml"


def test_the_logs_that_come_with_it(tmp_path: Path) -> None:
    code, report = run_tree_json(TREE, "--set", "quiet=0.3", home=tmp_path)

    result = report["result"]
    assert (code, report["error"]) == (0, None)
    assert [file["lines"] for file in result["files"]] == [400, 250]
    assert result["levels"] == {"critical": 13, "error": 47, "warning": 44}
    assert [[group["level"], group["count"], group["file"]] for group in result["groups"]] == [
        ["critical", 13, "app.log"],
        ["error", 31, "app.log"],
        ["error", 16, "web.log"],
        ["warning", 44, "app.log"],
    ]
    assert report["agents"]["lost"] == 0
    workers = [each for each in report["receipt"]["processes"] if each["kind"] == "worker"]
    assert len(workers) == 2  # one for each file


def test_a_killed_reader_is_started_again_and_no_line_counts_twice(tmp_path: Path) -> None:
    log = tmp_path / "growing.log"
    log.write_text("".join(f"ERROR number {n}\n" for n in range(50)))
    options = ("--set", f"files={log}", "--set", "quiet=3", "--set", "interval=0.05")
    written, kills = 50, 0
    result: dict[str, Any] = {}
    with streaming_tree(TREE, *options, home=tmp_path) as events:
        reader = 0
        for event in events:
            if event["type"] in ("agent/started", "agent/restarted") and event["agent"] == "tail-1":
                reader = event["pid"]
            elif event["type"] == "progress" and event.get("done") == written and kills < 3:
                # All that was written has been counted: kill the reader, and write more.
                os.kill(reader, signal.SIGKILL)
                kills += 1
                with log.open("a") as file:
                    file.writelines(f"ERROR number {n}\n" for n in range(50))
                written += 50
            elif event["type"] == "result":
                result = event
    assert result["error"] is None, result
    assert result["result"]["files"] == [{"file": str(log), "lines": written}]
    assert result["result"]["levels"]["error"] == written == 200
    assert kills == 3
