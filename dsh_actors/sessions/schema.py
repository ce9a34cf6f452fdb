"""The tables of the SQLite store, and how an older store becomes a current one.

``sessions`` holds what never changes about a session and ``heads`` what does, so that a list of
sessions reads neither events nor their pages. Keys are never used twice: a writer that sleeps
while its session is deleted cannot wake up in another one.

A session's lease is in its head: ``holder`` is the open store that alone may write to it, and
``token`` grows with every change of hands. A lease whose holder is not in ``holders`` is free, so
that the end of a store frees all of its sessions with one row. ``fence`` counts the sessions that
were taken from a holder: as long as it has not grown, the holder still has all that it took.

``damage`` says what was lost when a damaged store was salvaged, session by session (by id, since
the row of the session may be what was lost; empty for the store itself).
"""

from __future__ import annotations

__all__ = ["APPLICATION_ID", "MIGRATIONS", "VERSION"]

APPLICATION_ID = 0x44534841
"""Written into the file's header ("DSHA"), so that ``file`` and we can tell what it is."""

_VERSION_1 = """
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    agent_id TEXT NOT NULL,
    system_id TEXT NOT NULL,
    root TEXT NOT NULL,
    parent TEXT,
    depth INTEGER NOT NULL,
    behaviour TEXT NOT NULL,
    created REAL NOT NULL,
    policy BLOB NOT NULL,
    options BLOB NOT NULL,
    format INTEGER NOT NULL,
    forked_from TEXT,
    forked_at INTEGER
);
CREATE INDEX sessions_by_root ON sessions (root);

CREATE TABLE heads (
    session INTEGER PRIMARY KEY REFERENCES sessions (key),
    status TEXT NOT NULL,
    ended REAL,
    next_seq INTEGER NOT NULL,
    last_time REAL
);

CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions (key),
    seq INTEGER NOT NULL,
    time REAL NOT NULL,
    type TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;

CREATE TABLE holders (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    system_id TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started REAL NOT NULL,
    heartbeat REAL NOT NULL
);

CREATE TABLE leases (
    session INTEGER PRIMARY KEY REFERENCES sessions (key),
    holder INTEGER NOT NULL REFERENCES holders (key),
    token INTEGER NOT NULL,
    taken REAL NOT NULL
);
CREATE INDEX leases_by_holder ON leases (holder);
"""

# Nothing was ever written to these two by version 1.
_VERSION_2 = """
DROP TABLE leases;
DROP TABLE holders;

CREATE TABLE holders (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started REAL NOT NULL,
    image TEXT NOT NULL,
    started REAL NOT NULL,
    heartbeat REAL NOT NULL,
    uptime REAL NOT NULL,
    ttl REAL NOT NULL,
    fence INTEGER NOT NULL DEFAULT 0
);

ALTER TABLE heads ADD COLUMN holder INTEGER REFERENCES holders (key);
ALTER TABLE heads ADD COLUMN token INTEGER NOT NULL DEFAULT 0;
"""

# Rows of before have no checksum; they are taken as they are.
_VERSION_3 = """
ALTER TABLE sessions ADD COLUMN checksum INTEGER;
ALTER TABLE events ADD COLUMN checksum INTEGER;

CREATE TABLE damage (
    key INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    problem TEXT NOT NULL,
    found REAL NOT NULL
);
"""

MIGRATIONS: tuple[str, ...] = (_VERSION_1, _VERSION_2, _VERSION_3)
"""The statements that take a store from version ``n`` to ``n + 1``; never edited, only added to."""

VERSION = len(MIGRATIONS)
"""The version of the store that this release writes, kept in ``PRAGMA user_version``."""
