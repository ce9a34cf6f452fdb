"""What is kept of a detached run: its log, and, once it has ended, what it came to.

Both are private files in the folder ``runs`` beside the session store. The newest ones stay.

The record of a run is a mapping with ``exit_code``; ``outcome``, the object that the output
format ``json`` prints, or None if there was no run in the end; ``error``, a line that says why
there was none; and ``traceback``, the text of the behaviour's one, if it failed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from dsh_actors.errors import DshActorsError, StoreError
from dsh_actors_cli import exits, output
from dsh_actors_cli.outcome import Outcome, Verdict, result_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "file_of",
    "find_record",
    "name_log",
    "new_log",
    "outcome_of",
    "prune",
    "record_of",
    "write",
]

# How many runs leave their files.
_KEPT = 100
# After how long a run that has not said how it ended counts as ended, in seconds.
_SILENT = 30 * 86400


def runs_dir() -> Path:
    """Return the folder of detached runs. It is not created here."""
    from dsh_actors.sessions.paths import state_dir

    return state_dir() / "runs"


def file_of(system_id: str, kind: str) -> Path:
    """Return the path of a run's file; its name is that of the system, made safe.

    Parameters:
        system_id: of the run.
        kind: ``log`` or ``json``.
    """
    from urllib.parse import quote

    return runs_dir() / f"{quote(system_id, safe=' ')[-200:]}.{kind}"


def new_log() -> tuple[IO[bytes], Path]:
    """Open the log of a run that has no id yet; return it and its path.

    Raises:
        OSError: it cannot be made.
    """
    runs_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    path = runs_dir() / f"starting-{os.getpid()}.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    return open(descriptor, "ab", buffering=0), path


def name_log(system_id: str) -> Path:
    """Give the log of this process's run, which its parent has opened, the name of the system."""
    path = file_of(system_id, "log")
    (runs_dir() / f"starting-{os.getppid()}.log").replace(path)
    return path


def record_of(outcome: Outcome | DshActorsError) -> dict[str, Any]:
    """Return the record of a run, or of what turned out to be none."""
    if isinstance(outcome, DshActorsError):
        code = exits.USAGE if output.is_user_error(outcome) else exits.FAILED
        return {"exit_code": code, "outcome": None, "error": str(outcome), "traceback": ""}
    return {
        "exit_code": outcome.verdict.code,
        "outcome": result_object(outcome),
        "error": None,
        "traceback": outcome.verdict.traceback,
    }


def outcome_of(record: Mapping[str, Any]) -> Outcome:
    """Return what a record tells of a run, as it was before it was recorded."""
    told = record["outcome"]
    verdict = Verdict(
        told["subtype"],
        record["exit_code"],
        told["result"],
        told["error"],
        record["traceback"],
    )
    return Outcome(
        verdict,
        told["receipt"],
        told["session_id"],
        told["system_id"],
        told["duration_ms"] / 1000,
    )


def write(system_id: str, record: Mapping[str, Any]) -> None:
    """Keep the record of a detached run; it is either there as a whole or not.

    Raises:
        OSError: it cannot be written.
    """
    path = file_of(system_id, "json")
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(output.to_json(record, ascii_only=True))
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def find_record(system: str) -> Mapping[str, Any] | None:
    """Return the record of the ended run with this id, or whose id alone begins so.

    Raises:
        StoreError: it is damaged.
    """
    exact = file_of(system, "json")
    found = [exact] if exact.exists() else list(runs_dir().glob(f"{_escaped(exact.stem)}*.json"))
    if len(found) != 1:
        return None
    try:
        record: Mapping[str, Any] = json.loads(found[0].read_bytes())
    except ValueError as error:
        raise StoreError(f"{found[0]}: the result of this run is damaged: {error}") from None
    return record


def prune() -> None:
    """Remove the files of the oldest runs that have ended, or of which nothing was heard."""
    from time import time

    dated: list[tuple[float, Path]] = []
    for log in runs_dir().glob("*.log"):
        with suppress(FileNotFoundError):  # another command prunes as well
            dated.append((log.stat().st_mtime, log))
    for moment, log in sorted(dated)[:-_KEPT]:
        record = log.with_suffix(".json")
        if record.exists() or time() - moment > _SILENT:
            log.unlink(missing_ok=True)
            record.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    import glob

    return glob.escape(text)
