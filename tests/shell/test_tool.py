"""Who may do what with a task."""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING

import pytest
from watching import PATIENCE

from dsh_actors.errors import ShellTaskUnknown
from dsh_actors.shell.executor import ShellExecutor
from dsh_actors.shell.request import ShellRequest
from dsh_actors.shell.tool import ShellNotice, ShellTool, may_use, tell_owners

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def executor() -> Iterator[ShellExecutor]:
    with ShellExecutor() as found:
        yield found


@pytest.mark.behaviour(158)
@pytest.mark.parametrize(
    ("owner", "caller", "may"),
    [
        ("", None, False),
        ("", "a", False),
        ("", "", True),
        ("a", None, False),
        ("a", "", False),
        ("a", "b", False),
        ("a", "a", True),
        (None, None, True),
        (None, "", True),
        (None, "a", True),
    ],
)
def test_whose_it_is(
    executor: ShellExecutor, owner: str | None, caller: str | None, may: bool
) -> None:
    assert may_use(owner, caller) is may
    task = executor.start(ShellRequest("echo hello; sleep 60", owner=owner, grace=0.0))
    tool = ShellTool(executor, caller)
    asks = (tool.task, tool.read, tool.wait, tool.kill)
    if may:
        for ask in asks:
            ask(task.id)
        assert [each.id for each in tool.tasks()] == [task.id]
        return
    for ask in (*asks, lambda id: tool.write(id, "x")):
        with pytest.raises(ShellTaskUnknown) as foreign:
            ask(task.id)  # type: ignore[operator]
        with pytest.raises(ShellTaskUnknown) as missing:
            ask("shell-77")  # type: ignore[operator]
        assert str(foreign.value).replace(task.id, "X") == str(missing.value).replace(
            "shell-77", "X"
        )
    assert tool.tasks() == []
    assert executor.task(task.id).running  # it was not touched


@pytest.mark.behaviour(159)
def test_a_reload_of_the_tool_changes_nothing_of_whose_a_task_is(
    executor: ShellExecutor, tmp_path: Path
) -> None:
    """The tool is taken out and put in again and again while the owner polls."""
    os.mkfifo(tmp_path / "go")
    task = executor.start(ShellRequest("read x < go; echo end", owner="A", cwd=tmp_path))
    stop = threading.Event()
    polled = threading.Event()
    failures: list[BaseException] = []

    def poll() -> None:
        try:
            while not stop.is_set():
                ShellTool(executor, "A").read(task.id)
                with pytest.raises(ShellTaskUnknown):
                    ShellTool(executor, "B").read(task.id)
                polled.set()
        except BaseException as error:
            failures.append(error)
            polled.set()

    thread = threading.Thread(target=poll)
    thread.start()
    for _ in range(200):
        unload = tell_owners(executor, lambda owner, notice: None)
        unload()
    assert polled.wait(PATIENCE)
    with open(tmp_path / "go", "w") as pipe:
        pipe.write("\n")
    assert ShellTool(executor, "A").wait(task.id).result(PATIENCE).text == "end\n"
    stop.set()
    thread.join()

    assert failures == []
    with pytest.raises(ShellTaskUnknown):
        ShellTool(executor, "B").kill(task.id)


@pytest.mark.behaviour(161)
def test_what_ends_while_no_tool_is_loaded_tells_nobody_and_stays_whose_it_is(
    executor: ShellExecutor,
) -> None:
    told: queue.SimpleQueue[tuple[str, ShellNotice]] = queue.SimpleQueue()

    def deliver(owner: str, notice: ShellNotice) -> None:
        told.put((owner, notice))

    tell_owners(executor, deliver)()  # loaded and unloaded
    missed = executor.start(ShellRequest("exit 7", owner="A"))
    executor.result(missed.id).result(PATIENCE)
    # Its end was told before that of the next one, which is the first that anybody hears of.
    tell_owners(executor, deliver)
    heard = executor.start(ShellRequest("echo said; exit 8", owner="A"))

    assert told.get(timeout=PATIENCE) == (
        "A",
        ShellNotice(heard.id, "echo said; exit 8", 8, None, "exited", False, "said\n"),
    )
    assert told.empty()
    assert executor.owner_of(missed.id) == "A"
    with pytest.raises(ShellTaskUnknown):
        ShellTool(executor, "B").read(missed.id)
    assert ShellTool(executor, "A").task(missed.id).running is False


def test_only_background_tasks_with_an_owner_have_notices(executor: ShellExecutor) -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    tell_owners(executor, lambda owner, notice: told.put(notice.task))
    executor.run(ShellRequest("true", owner="A"))[1].result(PATIENCE)
    executor.result(executor.start(ShellRequest("true")).id).result(PATIENCE)

    task = executor.start(ShellRequest("true", owner="A"))

    assert told.get(timeout=PATIENCE) == task.id
    assert told.empty()
