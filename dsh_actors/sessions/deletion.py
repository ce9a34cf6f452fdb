"""Removes sessions from the database, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from typing import TypeAlias

    Evict: TypeAlias = Callable[[sqlite3.Connection, str, int | None], None]

__all__ = ["delete_sessions"]

_FAMILY = """
WITH RECURSIVE family (key, id) AS (
    SELECT key, id FROM sessions WHERE id = ?1
    UNION
    SELECT sessions.key, sessions.id FROM sessions JOIN family ON sessions.parent = family.id
    WHERE sessions.root = (SELECT root FROM sessions WHERE id = ?1)
)
SELECT key, id FROM family
"""
# With the last damaged session the damage of the store is history, too.
_SETTLED = """
DELETE FROM damage WHERE session = '' AND NOT EXISTS (SELECT 1 FROM damage WHERE session != '')
"""
_HOLDER = "SELECT holder FROM heads WHERE session = ?"


def delete_sessions(
    connection: sqlite3.Connection, session_id: str, known: frozenset[str], evict: Evict
) -> bool:
    """Remove a session and all below it, unless some of them are not among the known ones.

    What is removed is overwritten with zeros: it cannot be read from the file any more, and a
    salvage of the file cannot bring it back.

    Parameters:
        evict: makes sure that a former holder cannot write, or raises ``SessionHeld``.

    Returns:
        Whether it was done; if not, nothing was.
    """
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = connection.execute(_FAMILY, (session_id,)).fetchall()
        if not known.issuperset(id for _, id in found):
            connection.execute("ROLLBACK")
            return False
        for key, id in found:
            head = connection.execute(_HOLDER, (key,)).fetchone()
            evict(connection, id, head[0] if head else None)
        for key, _ in found:
            connection.execute("DELETE FROM events WHERE session = ?", (key,))
            connection.execute("DELETE FROM heads WHERE session = ?", (key,))
            connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        for id in known:
            connection.execute("DELETE FROM damage WHERE session = ?", (id,))
        connection.execute(_SETTLED)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True
