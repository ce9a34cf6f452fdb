"""What the agents of the launcher's tests do."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import dsh_actors as dsh


@dsh.behaviour
def tell(turn: dsh.Turn, message: Any) -> Any:
    """Tell where this is, and what the launcher has said."""
    slots = turn.slots
    return {
        "message": message,
        "turn": turn.number,
        "session": slots.identities[turn.agent_id].id,
        "line": slots.exit_line,
        "pid": os.getpid(),
        "cwd": os.getcwd(),
    }


@dsh.behaviour
def once(turn: dsh.Turn, message: str) -> str:
    """Do not come to an end the first time."""
    try:
        Path(message).touch(exist_ok=False)
    except FileExistsError:
        return "done at last"
    sys.stderr.write("working\n")
    sys.stderr.flush()
    turn.sleep(60)
    return "not reached"


@dsh.behaviour
def hang_the_store(turn: dsh.Turn, message: Any) -> str:
    """From here on, whoever reads the store fails, and whoever closes it waits for ever."""
    from dsh_actors.sessions import SqliteReader, SqliteStore

    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("the store was asked")

    def hang(*_arguments: Any, **_options: Any) -> bool:
        sys.stderr.write("closing\n")
        sys.stderr.flush()
        threading.Event().wait()
        return False

    for name in ("list", "load", "family", "resolve", "holders"):
        setattr(SqliteReader, name, fail)
    SqliteStore.close = hang  # type: ignore[method-assign]
    return "hung"


@dsh.behaviour
def go_over(turn: dsh.Turn, message: str) -> None:
    """Go on with another session, as a front end does."""
    hand_over = turn.slots.hand_over
    assert hand_over is not None
    threading.Thread(target=hand_over, args=(message,), daemon=True).start()
    turn.sleep(60)
