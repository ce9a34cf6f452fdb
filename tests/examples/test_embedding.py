"""The example that embeds a system in other people's processes."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from commands import EXAMPLES, run_script

if TYPE_CHECKING:
    from pathlib import Path


def test_a_system_runs_in_an_executor_worker_and_in_a_daemonic_process(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    digests = ""
    for name in ("a.py", "b.py", "c.py", "d.py", "e.py"):
        (source / name).write_text(name)
        digests += hashlib.sha256(name.encode()).hexdigest()
    done = run_script(EXAMPLES / "embedding" / "embed.py", str(source), home=tmp_path)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert set(reports) == {"executor", "daemonic"}
    assert reports["executor"]["host_pid"] != reports["daemonic"]["host_pid"]
    for report in reports.values():
        result, receipt = report["result"], report["receipt"]
        assert result["files"] == 5
        assert result["sha256"] == hashlib.sha256(digests.encode()).hexdigest()
        workers = {p["pid"] for p in receipt["processes"] if p["kind"] == "worker"}
        assert len(workers) == 2
        assert set(result["pids"]) <= workers
        assert {agent["outcome"] for agent in receipt["agents"]} == {"completed"}
        assert receipt["survivors"] == []
