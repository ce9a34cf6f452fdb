"""Both stores keep the contract that is exported for a third one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh_actors.sessions import MemoryStore, SqliteStore, new_session_id
from dsh_actors.testing.store_contract import StoreContract, make_header

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[], MemoryStore]:
        return MemoryStore


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Callable[[], SqliteStore]:
        return lambda: SqliteStore(tmp_path / "s.db")


def test_an_ended_session_is_forgotten_in_memory(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    store.create(header)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    assert not store._logs
    assert store.fork(header.id)
    assert store.flush(10)
    assert not store._logs


def test_nothing_is_pending_after_a_close(store: MemoryStore | SqliteStore) -> None:
    store.create(make_header())
    assert store.close(10)
    assert store.pending == 0


def test_ids_sort_by_time_and_never_repeat() -> None:
    ids = [new_session_id() for _ in range(20_000)]
    assert len(set(ids)) == 20_000
    assert ids[0].startswith("s-20")
    assert len(ids[0]) == len("s-20261130-211342-4f7k2a9c")
    assert ids[0][:17] <= ids[-1][:17]
