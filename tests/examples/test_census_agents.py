"""The coordinator of the code census alone: its children are stand-ins that answer at once."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from commands import EXAMPLES

import dsh_actors as dsh
from dsh_actors.agents.behaviour import resolve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Child = Callable[["StandInTurn", dict[str, Any]], dsh.Outcome]

AGENTS = EXAMPLES / "code_census" / "agents.py"
census = resolve(f"{AGENTS}:census").target
count_files = resolve(f"{AGENTS}:count_files").target


def completed(turn: StandInTurn, chunk: dict[str, Any]) -> dsh.Outcome:
    return dsh.Outcome("completed", count_files(turn, chunk))


class StandInTurn:
    """What the two behaviours use of a turn."""

    def __init__(self, child: Child = completed) -> None:
        self.child = child
        self.chunks: list[list[str]] = []
        self.progressed: list[dict[str, Any]] = []
        self.checks = 0

    def run(
        self, behaviour: Any, chunk: dict[str, Any], *, isolation: str, restart: str
    ) -> dsh.Job:
        assert (behaviour, isolation, restart) == (count_files, "pool", "transient")
        self.chunks.append([os.fsdecode(path) for path in chunk["paths"]])
        job = dsh.Job(f"count_files-{len(self.chunks)}", "count_files")
        job._future.set_result(self.child(self, chunk))
        return job

    def progress(self, **progress: Any) -> None:
        self.progressed.append(progress)

    def check(self) -> None:
        self.checks += 1

    def sleep(self, seconds: float) -> Awaitable[None]:
        return asyncio.sleep(seconds)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(20):
        (tmp_path / f"f{number:02}.py").write_text("def f(): pass\n" * (number + 1))
    return tmp_path


def run_census(turn: StandInTurn, root: Path) -> dict[str, Any]:
    result: dict[str, Any] = asyncio.run(census(turn, {"root": str(root)}))
    return result


def test_files_are_shared_out_once_each_and_progress_reaches_the_total(root: Path) -> None:
    turn = StandInTurn()
    result = run_census(turn, root)
    assert (result["files"], result["functions"], result["failures"]) == (20, 210, [])
    assert sorted(path for chunk in turn.chunks for path in chunk) == [
        f"f{number:02}.py" for number in range(20)
    ]
    assert {"done": 0, "total": 20} in turn.progressed
    assert turn.progressed[-1] == {"done": 20}
    assert turn.checks == 20


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (
            dsh.Outcome("lost", error="killed by SIGKILL"),
            "the child that was to count it: lost (killed by SIGKILL)",
        ),
        (
            dsh.Outcome("failed", error_type="MemoryError", error="too big"),
            "the child that was to count it: failed (too big)",
        ),
        (dsh.Outcome("aborted"), "the child that was to count it: aborted"),
    ],
)
def test_the_files_of_a_child_that_is_gone_are_listed_failures(
    root: Path, outcome: dsh.Outcome, error: str
) -> None:
    def child(turn: StandInTurn, chunk: dict[str, Any]) -> dsh.Outcome:
        return outcome if b"f03.py" in chunk["paths"] else completed(turn, chunk)

    turn = StandInTurn(child)
    result = run_census(turn, root)
    [gone] = [chunk for chunk in turn.chunks if "f03.py" in chunk]
    assert result["failures"] == [{"path": path, "error": error} for path in gone]
    assert (result["files"], result["failed_files"]) == (20, len(gone))
    assert len(result["top"]) == 10


def test_a_child_stops_between_two_files_once_it_is_cancelled(root: Path) -> None:
    class CancelledTurn(StandInTurn):
        def check(self) -> None:
            super().check()
            if self.checks == 3:
                raise dsh.Cancelled("user")

    turn = CancelledTurn()
    paths = [os.fsencode(f"f{number:02}.py") for number in range(20)]
    with pytest.raises(dsh.Cancelled):
        count_files(turn, {"root": os.fsencode(root), "paths": paths})
    assert turn.checks == 3


def test_a_folder_that_cannot_be_listed_is_one_listed_failure(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "closed").mkdir()
    scandir = os.scandir

    def refusing(path: Any) -> Any:  # permissions do not bind the superuser
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    result = run_census(StandInTurn(), root)
    assert (result["files"], result["failed_files"]) == (21, 1)
    assert result["failures"] == [{"path": "closed", "error": "PermissionError: Permission denied"}]


def test_walking_a_large_folder_leaves_the_event_loop_free(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"d{number}").mkdir()
    beats = 0

    async def beside() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async def both() -> None:
        heart = asyncio.create_task(beside())
        await census(StandInTurn(), {"root": str(tmp_path)})
        heart.cancel()

    asyncio.run(both())
    assert beats >= 50
