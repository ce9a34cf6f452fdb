"""Headers for tests."""

from __future__ import annotations

from dsh_actors.sessions import SessionHeader, new_session_id


def make_header(session_id: str | None = None, **changes: object) -> SessionHeader:
    session_id = session_id or new_session_id()
    fields: dict[str, object] = {
        "id": session_id,
        "agent_id": "census",
        "system_id": "sys-1",
        "root": session_id,
        "parent": None,
        "depth": 0,
        "behaviour": "agents:census",
        "created": 1_000_000.0,
    }
    return SessionHeader(**(fields | changes))  # type: ignore[arg-type]
