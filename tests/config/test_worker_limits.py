"""What a tree file says of its worker processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh_actors.config import load_tree
from dsh_actors.config.effective import effective_tree
from dsh_actors.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = "version: 1\nagents: [{id: a, behaviour: 'm:f'}]\n"


def tree(folder: Path, text: str) -> Path:
    path = folder / "tree.yaml"
    path.write_text(AGENTS + text)
    return path


def test_sizes_are_read_as_bytes(tmp_path: Path) -> None:
    limits = "{memory_soft: 1.5MiB, memory_hard: 3000000, cpu_seconds: 60, open_files: 256}"
    spec = load_tree(tree(tmp_path, f"system: {{worker_limits: {limits}}}\n"))
    assert spec.system.worker_limits == {
        "memory_soft": 3 << 19, "memory_hard": 3000000, "cpu_seconds": 60, "open_files": 256,
    }  # fmt: skip
    assert effective_tree(spec)["system"]["worker_limits"] == spec.system.worker_limits


def test_an_overlay_changes_and_erases_them(tmp_path: Path) -> None:
    over = tmp_path / "over.yaml"
    over.write_text(
        "version: 1\nmerge: true\nsystem: {worker_limits: {memory_hard: 2GiB, cpu_seconds: null}}\n"
    )
    path = tree(tmp_path, "system: {worker_limits: {memory_hard: 1GiB, cpu_seconds: 9}}\n")
    spec = load_tree(path, overlays=[over])
    assert spec.system.worker_limits == {"memory_hard": 2 << 30}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("memory_hard: 1GB", "expected a size such as 512MiB, 1.5GiB or a number of bytes"),
        ("cpu_seconds: 0", "cpu_seconds: expected at least 1, got 0"),
        ("memory: 1GiB", "unknown key 'memory' in system.worker_limits"),
        ("memory_soft: 2GiB, memory_hard: 1GiB", "memory_soft is above memory_hard"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, limits: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_tree(tree(tmp_path, f"system:\n  worker_limits: {{{limits}}}\n"))
    assert message in str(caught.value)
    assert "tree.yaml:4" in str(caught.value)
