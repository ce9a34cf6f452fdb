"""A read-only connection to a store's file, which follows the file and puts up with damage."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

from dsh_actors.errors import ForkedSystemError, StoreError
from dsh_actors.sessions.dbfile import explain
from dsh_actors.sessions.forks import watch_forks
from dsh_actors.sessions.opening import open_for_reading_whole, open_salvaged_copy
from dsh_actors.sessions.ops import StoreDamagedError

if TYPE_CHECKING:
    import sqlite3

__all__ = ["FileView", "Rows"]

Rows: TypeAlias = list[tuple[Any, ...]]


class FileView:
    """What queries see of a store.

    A damaged file is not changed. What can be read of it is copied to a private database, which
    is asked instead, and copied anew once the file has changed. A file that was replaced by
    another one is opened anew.

    Parameters:
        path: the store's file.

    Raises:
        StoreError: there is no such file, it cannot be read, or it is not a session store.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._parent = 0  # the process it was inherited from by a fork, or 0
        self._seen: object = None
        self._connection: sqlite3.Connection | None = None
        self.is_copy = False
        """Whether the file is damaged and a copy of what can be read of it is seen."""
        self._open()
        watch_forks(self)

    def query(self, statement: str, *values: object) -> Rows:
        """Return the rows that a statement selects.

        Raises:
            StoreError: the store cannot be read.
        """
        import sqlite3

        with self._lock:
            if self._parent:
                raise ForkedSystemError(
                    f"{self._path}: the session store was opened by process {self._parent}, from "
                    "which this one was forked; open it again here"
                )
            if self._connection is None:
                raise StoreError(f"{self._path}: the session store is closed; open it again")
            if self._state() != self._seen:
                self._connection.close()
                self._open()
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                told = explain(self._path, error)
                if self.is_copy or not isinstance(told, StoreDamagedError):
                    raise told from error
            self._connection.close()
            self._connection, self.is_copy = open_salvaged_copy(self._path), True
            self._seen = self._state()
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._parent == 0 and self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> None:
        self._connection, self.is_copy = open_for_reading_whole(self._path)
        self._seen = self._state()

    def _state(self) -> object:
        """Return what changes when the file must be opened anew."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return self._seen  # it is open, and what was in it can be read
        identity = (there.st_dev, there.st_ino)
        if not self.is_copy:
            return identity
        try:
            log = os.stat(f"{self._path}-wal")
        except FileNotFoundError:
            return (*identity, there.st_size, there.st_mtime_ns)
        return (*identity, there.st_size, there.st_mtime_ns, log.st_size, log.st_mtime_ns)

    def _after_fork(self, parent: int) -> None:
        self._lock = threading.Lock()
        self._parent = parent
