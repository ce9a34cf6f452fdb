"""What doctor says of a damaged store, before and after it was salvaged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsh_actors.codec import encode
from dsh_actors.sessions import SessionHeader, SqliteStore
from dsh_actors_cli.doctor import Finding, examine

if TYPE_CHECKING:
    from pathlib import Path


def _finding(path: Path) -> Finding:
    return next(finding for finding in examine(path) if finding.name == "session store")


def test_doctor_names_the_damaged_sessions(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        store.create(SessionHeader("s-1", "a", "s", "s-1", None, 0, "m:f", 1.0))
        for _ in range(100):
            store.append("s-1", "custom/a", encode("x" * 1000))
        store.set_status("s-1", "completed")
    assert _finding(path).state == "ok"
    os.truncate(path, path.stat().st_size - 20_000)
    found = _finding(path)
    assert found.state == "fail"
    assert "is damaged" in found.text
    assert "goes on with what can be read" in found.advice
    with SqliteStore(path):
        pass
    found = _finding(path)
    assert found.state == "warn"
    assert "something was lost" in found.text
    with SqliteStore(path) as store:
        assert store.delete("s-1") == 1
    assert _finding(path).state == "ok"
