"""Who may do what with a task: the policy that the executor leaves to its tool.

A tool holds nothing but the executor and a listener. Unloading one and loading another does not
touch a single task, so whose a task is survives that; only a completion that falls in between
has nobody to tell of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors.shell.executor import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
    from dsh_actors.shell.executor import ShellExecutor
    from dsh_actors.shell.output import Chunk
    from dsh_actors.shell.task import ShellResult, ShellTask

__all__ = ["ShellNotice", "ShellTool", "may_use", "tell_owners"]


class ShellNotice(NamedTuple):
    """What the owner of a background task is told once it has ended.

    Attributes:
        task: its id.
        command: what ran.
        exit_code: its status; None if a signal ended it.
        signal: the name of that signal, or None.
        ended: ``exited``, ``terminated`` or ``killed``.
        timed_out: whether its time was over.
        tail: the last of what it wrote, as text.
    """

    task: str
    command: str
    exit_code: int | None
    signal: str | None
    ended: str
    timed_out: bool
    tail: str

    @classmethod
    def of(cls, task: ShellTask, result: ShellResult, *, most: int = 4096) -> ShellNotice:
        """Make the notice of a task that has ended, with at most so many bytes of its output."""
        captured = result.output
        tail = (captured.head + captured.tail if not captured.omitted else captured.tail)[-most:]
        return cls(
            task.id, task.command, result.exit_code, result.signal, result.ended,
            result.timed_out, tail.decode(errors="replace"),
        )  # fmt: skip


def may_use(owner: str | None, caller: str | None) -> bool:
    """Whether a caller may read, await or end a task with this owner.

    What nobody owns everybody may use. Otherwise the two must be equal; an empty text is an
    owner like any other, and None is not it.
    """
    return owner is None or (caller is not None and owner == caller)


class ShellTool:
    """What one caller may do with the tasks of an executor.

    A foreign task and an unknown one are refused in the same words, so that nobody learns from
    the refusal which tasks others have.

    Parameters:
        executor: it has the tasks.
        caller: the token of whoever uses the tool, such as the id of an agent; or None.
    """

    def __init__(self, executor: ShellExecutor, caller: str | None) -> None:
        self._executor = executor
        self._caller = caller

    def _mine(self, task_id: str) -> str:
        if not may_use(self._executor.owner_of(task_id), self._caller):
            raise unknown(task_id)
        return task_id

    def tasks(self) -> list[ShellTask]:
        """The tasks that the caller may use, in the order of their start."""
        executor = self._executor
        return [
            task for task in executor.tasks() if may_use(executor.owner_of(task.id), self._caller)
        ]

    def task(self, task_id: str) -> ShellTask:
        """One task.

        Raises:
            ShellTaskUnknown: there is none, or it is not the caller's.
        """
        return self._executor.task(self._mine(task_id))

    def read(self, task_id: str, start: int = 0, most: int = 1 << 20) -> Chunk:
        """Read its output from some byte on; see :meth:`ShellExecutor.read`.

        Raises:
            ShellTaskUnknown: there is none, or it is not the caller's.
        """
        return self._executor.read(self._mine(task_id), start, most)

    def write(self, task_id: str, data: bytes | str, *, end: bool = False) -> None:
        """Give it more input; see :meth:`ShellExecutor.write`.

        Raises:
            ShellTaskUnknown: there is none, or it is not the caller's.
            UsageError: its input is closed.
        """
        self._executor.write(self._mine(task_id), data, end=end)

    def wait(self, task_id: str) -> Future[ShellResult]:
        """The future of its result.

        Raises:
            ShellTaskUnknown: there is none, or it is not the caller's.
        """
        return self._executor.result(self._mine(task_id))

    def kill(self, task_id: str, grace: float | None = None) -> Future[ShellResult]:
        """End it with all that it has started; the future of its result.

        Raises:
            ShellTaskUnknown: there is none, or it is not the caller's.
        """
        return self._executor.end(self._mine(task_id), grace)


def tell_owners(
    executor: ShellExecutor, deliver: Callable[[str, ShellNotice], Any]
) -> Callable[[], None]:
    """Have the owners of background tasks told once those have ended.

    Parameters:
        executor: it has the tasks.
        deliver: called with the owner and the notice, on the executor's thread. Whether there
            is somebody of that name is for it to look up then, and to bear.

    Returns:
        A function that ends it: what ends from then on is told to nobody.
    """

    def told(task: ShellTask, result: ShellResult) -> None:
        owner = executor.owner_of(task.id)
        if owner is not None and task.background:
            deliver(owner, ShellNotice.of(task, result))

    return executor.on_done(told)
