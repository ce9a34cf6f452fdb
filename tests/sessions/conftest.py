"""Both stores behind one fixture: what the contract says holds for each."""

from __future__ import annotations

import os
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of this folder, unless ``-m`` asks for them."""
    if "slow" in (config.option.markexpr or ""):
        return
    here = os.path.dirname(__file__)
    left_out = [i for i in items if i.get_closest_marker("slow") and str(i.path).startswith(here)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
