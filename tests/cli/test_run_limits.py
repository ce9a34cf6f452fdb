"""The limits of worker processes, from the tree file to the worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cli_runs import dsh

if TYPE_CHECKING:
    from pathlib import Path


def test_a_tree_file_limits_its_workers(tmp_path: Path) -> None:
    (tmp_path / "limited.py").write_text(
        "import resource\n\n\ndef files(turn, message):\n"
        "    return list(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    tree = tmp_path / "tree.yaml"
    tree.write_text(
        "version: 1\nsystem: {worker_limits: {open_files: 100}}\n"
        "agents: [{id: a, behaviour: './limited.py:files', isolation: pool, prompt: x}]\n"
    )
    ran = dsh("run", tree, "--output-format", "json", home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["result"] == [100, 100]
