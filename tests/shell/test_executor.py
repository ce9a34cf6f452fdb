"""Starting commands, reading what they write, and whose they are."""

from __future__ import annotations

import os
import threading
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watching import PATIENCE

from dsh_actors.errors import ShellStartError, ShellTaskUnknown, SystemClosed, UsageError
from dsh_actors.shell.environment import scrub
from dsh_actors.shell.executor import ShellExecutor
from dsh_actors.shell.output import Output
from dsh_actors.shell.request import Defaults, ShellRequest, ShellSpec
from dsh_actors.shell.task import ShellTask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dsh_actors.shell.task import ShellResult


@pytest.fixture
def executor() -> Iterator[ShellExecutor]:
    with ShellExecutor() as found:
        yield found


def run(executor: ShellExecutor, request: ShellRequest) -> ShellResult:
    return executor.run(request)[1].result(PATIENCE)


# -- owners ------------------------------------------------------------------------------------


@pytest.mark.behaviour(154)
@pytest.mark.parametrize("owner", [None, "", "agent-1"])
def test_the_owner_is_always_in_what_was_resolved(
    executor: ShellExecutor, owner: str | None
) -> None:
    request = ShellRequest("true") if owner is None else ShellRequest("true", owner=owner)

    spec = executor.resolve(request)

    assert "owner" in [field.name for field in fields(ShellSpec)]
    assert spec.owner == owner


@pytest.mark.behaviour(155, 156)
@pytest.mark.parametrize("owner", [None, "", "agent-1", "no such agent", "\N{SNOWMAN}\x1b[31m"])
def test_an_owner_is_stored_and_nothing_more(executor: ShellExecutor, owner: str | None) -> None:
    task, future = executor.run(ShellRequest("echo hello", owner=owner))
    assert executor.owner_of(task.id) == owner
    result = future.result(PATIENCE)

    assert executor.owner_of(task.id) == owner  # once it has ended, too
    assert (result.exit_code, result.text) == (0, "hello\n")
    for shown in (task, executor.task(task.id), result):
        assert not hasattr(shown, "owner")
    assert "owner" not in [field.name for field in fields(ShellTask)]


def test_an_unknown_task_is_refused_everywhere(executor: ShellExecutor) -> None:
    for ask in (
        executor.owner_of, executor.task, executor.read, executor.result, executor.end,
        lambda id: executor.write(id, ""),
    ):  # fmt: skip
        with pytest.raises(ShellTaskUnknown, match="no task 'shell-99' of yours"):
            ask("shell-99")  # type: ignore[operator]


# -- what a command gets -----------------------------------------------------------------------


def test_secrets_stay_here(executor: ShellExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_API_KEY", "github_token", "DB_PASSWORD", "HARMLESS"):
        monkeypatch.setenv(name, "seen")
    executor.defaults = Defaults(allow=("GITHUB_*",))

    text = run(executor, ShellRequest("env", env={"GIVEN_SECRET": "given"})).text

    assert "MY_API_KEY" not in text
    assert "DB_PASSWORD" not in text
    assert "HARMLESS=seen" in text
    assert "github_token=seen" in text  # allowed
    assert "GIVEN_SECRET=given" in text  # by the caller, who knows


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=5)))
def test_scrubbing_only_takes_away(environment: dict[str, str]) -> None:
    assert scrub(environment, allow=["*"]) == environment
    assert scrub(environment).items() <= environment.items()


def test_the_input_is_empty_unless_it_is_given(executor: ShellExecutor) -> None:
    assert run(executor, ShellRequest("cat; echo end")).text == "end\n"
    big = b"x" * 1_000_000
    assert run(executor, ShellRequest("wc -c", stdin=big)).text.strip() == "1000000"


def test_an_input_that_nobody_reads(executor: ShellExecutor) -> None:
    assert run(executor, ShellRequest("exit 4", stdin=b"x" * 10_000_000)).exit_code == 4


def test_an_input_that_stays_open(executor: ShellExecutor) -> None:
    task, future = executor.run(ShellRequest("cat", stdin="one ", keep_stdin=True))
    executor.write(task.id, "two", end=True)

    assert future.result(PATIENCE).text == "one two"
    with pytest.raises(UsageError, match="closed"):
        executor.write(task.id, "three")


def test_a_terminal_of_its_own(executor: ShellExecutor) -> None:
    task, future = executor.run(
        ShellRequest("test -t 0 && test -t 1 && read line && echo got $line", pty=True)
    )
    executor.write(task.id, "hello\n")

    assert "got hello" in future.result(PATIENCE).text


def test_where_it_runs(executor: ShellExecutor, tmp_path: Path) -> None:
    assert run(executor, ShellRequest("pwd -P", cwd=tmp_path)).text.strip() == os.path.realpath(
        tmp_path
    )


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (ShellRequest("  "), "the command is empty"),
        (ShellRequest([]), "a command is a text"),
        (ShellRequest("true", cwd="/no/such/folder"), "/no/such/folder"),
        (ShellRequest("true\0"), "NUL"),
        (ShellRequest("true", timeout=-1), "the timeout"),
        (ShellRequest("true", grace=-1), "the grace"),
    ],
)
def test_what_cannot_be_asked_for(
    executor: ShellExecutor, request_: ShellRequest, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        executor.run(request_)
    assert executor.tasks() == []


def test_a_program_that_is_not_there(executor: ShellExecutor) -> None:
    with pytest.raises(ShellStartError, match="'no-such-program' cannot be started: No such file"):
        executor.run(ShellRequest(["no-such-program"]))
    assert executor.tasks() == []


# -- the end -----------------------------------------------------------------------------------


def test_a_status_is_a_result(executor: ShellExecutor) -> None:
    result = run(executor, ShellRequest("echo out; echo err >&2; exit 3"))

    assert (result.exit_code, result.signal, result.ended) == (3, None, "exited")
    assert result.text == "out\nerr\n"
    assert not result.ok


def test_listeners_are_told_and_contained(
    executor: ShellExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail(task: ShellTask, result: ShellResult) -> None:
        raise RuntimeError("a listener that fails")

    executor.on_done(fail)
    remove = executor.on_done(lambda task, result: told.append(f"{task.id} {result.exit_code}"))
    run(executor, ShellRequest("exit 1"))
    marker = run(executor, ShellRequest("exit 2"))  # by whose end the first was told
    remove()
    run(executor, ShellRequest("exit 3"))

    assert told[0] == "shell-3 1"
    assert marker.exit_code == 2
    assert all("exit 3" not in line for line in told)
    assert "a listener of ended tasks failed" in caplog.text


@pytest.mark.behaviour(162)
def test_disposal_ends_every_task_and_waits(tmp_path: Path) -> None:
    executor = ShellExecutor()
    told: list[str] = []
    executor.on_done(lambda task, result: told.append(task.id))
    tasks = []
    for name in ("one", "two", "three"):
        os.mkfifo(tmp_path / name)
        command = f"trap '' TERM; echo > {name}; while :; do sleep 60; done"
        tasks.append(executor.start(ShellRequest(command, cwd=tmp_path, grace=0.1)))
        with open(tmp_path / name) as pipe:
            pipe.read(1)

    first, second = executor.dispose(), executor.dispose()
    results = first.result(PATIENCE)

    assert first is second
    assert sorted(result.task for result in results) == sorted(task.id for task in tasks)
    assert {result.ended for result in results} == {"killed"}
    assert told == []  # the listeners were gone before
    with pytest.raises(SystemClosed):
        executor.start(ShellRequest("true"))
    thread = executor._thread
    assert thread is not None
    thread.join(PATIENCE)


def test_a_start_that_races_the_disposal() -> None:
    for _ in range(5):
        executor = ShellExecutor()
        executor.run(ShellRequest("true"))[1].result(PATIENCE)
        refused = threading.Event()

        def start(executor: ShellExecutor = executor, refused: threading.Event = refused) -> None:
            try:
                while True:
                    executor.start(ShellRequest("sleep 60", grace=0))
            except SystemClosed:
                refused.set()

        thread = threading.Thread(target=start)
        thread.start()
        executor.dispose(0).result(PATIENCE)
        thread.join(PATIENCE)
        assert refused.is_set()
        assert not any(task.running for task in executor.tasks())
        assert executor._thread is not None
        executor._thread.join(PATIENCE)


# -- output ------------------------------------------------------------------------------------


@given(
    keep=st.integers(0, 20),
    limit=st.integers(0, 60),
    pieces=st.lists(st.binary(min_size=1, max_size=15), max_size=12),
    step=st.integers(1, 25),
)
def test_output_is_bounded_counted_and_read_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    keep: int,
    limit: int,
    pieces: list[bytes],
    step: int,
) -> None:
    path = tmp_path_factory.mktemp("spill") / "out"
    output = Output(keep, limit, lambda: (os.open(path, os.O_CREAT | os.O_RDWR), str(path)))
    everything = b""
    for piece in pieces:
        output.write(piece)
        everything += piece
        captured = output.captured()
        assert captured.total == len(everything)
        assert everything.startswith(captured.head)
        assert everything.endswith(captured.tail)
        assert len(captured.head) <= keep
        assert len(captured.tail) <= keep
    read, start, lost = b"", 0, 0
    while True:
        chunk = output.read(start, step)
        lost += chunk.lost
        assert everything[start + chunk.lost :].startswith(chunk.data)
        if not chunk.data:
            break
        read, start = read + chunk.data, chunk.next
    assert len(read) + lost == len(everything)
    if len(everything) <= max(2 * keep, limit):
        assert lost == 0
        assert read == everything
    output.discard()
    assert not path.exists()
