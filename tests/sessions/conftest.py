"""Both stores behind one fixture: what the contract says holds for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh_actors.sessions import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryStore | SqliteStore]:
    opened: MemoryStore | SqliteStore
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    yield opened
    opened.close(10)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "s.db")
    yield opened
    opened.close(10)
