"""Sessions: append-only event logs in an embedded store with group commit.

``events`` says what a session is, ``store`` is the contract of a store, ``writer`` the queue and
the thread that commit in groups, ``memory`` and ``sqlite`` the two stores. Nothing here imports
``sqlite3`` before a store is opened.
"""

from __future__ import annotations

from dsh_actors.sessions.events import (
    ACTIVE,
    DAMAGED,
    FORKED,
    Event,
    SessionHeader,
    SessionInfo,
    SessionLog,
)
from dsh_actors.sessions.ids import new_session_id
from dsh_actors.sessions.memory import MemoryStore
from dsh_actors.sessions.paths import default_store_path, state_dir
from dsh_actors.sessions.reader import SqliteReader
from dsh_actors.sessions.sqlite import SqliteStore
from dsh_actors.sessions.store import Listener, OnCommit, SessionReader, SessionStore

__all__ = [
    "ACTIVE",
    "DAMAGED",
    "FORKED",
    "Event",
    "Listener",
    "MemoryStore",
    "OnCommit",
    "SessionHeader",
    "SessionInfo",
    "SessionLog",
    "SessionReader",
    "SessionStore",
    "SqliteReader",
    "SqliteStore",
    "default_store_path",
    "new_session_id",
    "state_dir",
]
