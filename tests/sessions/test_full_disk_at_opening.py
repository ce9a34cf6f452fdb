"""A disk that is full while a store is being made: the error says so, and nothing hides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh_actors.errors import StoreError
from dsh_actors.sessions import dbfile

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path


def test_a_rollback_by_sqlite_itself_does_not_hide_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply(connection: sqlite3.Connection, version: int) -> None:
        connection.execute("ROLLBACK")  # as SQLite does by itself when the disk is full
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dbfile, "_apply", apply)
    with pytest.raises((OSError, StoreError), match="No space left"):
        dbfile.open_for_writing(str(tmp_path / "s.db"))
