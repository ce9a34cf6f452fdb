"""The commands of an agent: ``turn.shell``.

What an agent starts it owns, by its id. A foreground command ends with its turn; a background one
survives a cancel, and ends when its owner kills it, when its owner ends (unless it was started to
outlive that), and with the executor at the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.agents.waiting import Awaited
from dsh_actors.errors import PolicyError, SystemClosed, UsageError
from dsh_actors.shell.request import ShellRequest
from dsh_actors.shell.tool import ShellTool

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.actor import AgentActor
    from dsh_actors.agents.turn import Turn
    from dsh_actors.shell.executor import ShellExecutor
    from dsh_actors.shell.output import Chunk
    from dsh_actors.shell.request import Command
    from dsh_actors.shell.task import ShellResult, ShellTask

__all__ = ["TOOL", "AgentShell", "Commands"]

TOOL = "shell"
"""What a policy calls it."""


class Commands:
    """All commands of one agent that end with a turn of it, or with itself.

    Parameters:
        actor: the agent.
        turn: the turn that uses its shell first.
    """

    __slots__ = ("_changed", "_closed", "_of_agent", "_of_turns", "_starting", "executor", "name")

    def __init__(self, actor: AgentActor, turn: Turn) -> None:
        import threading

        self.name = actor.name
        self.executor: ShellExecutor = actor.host.shell
        self._changed = threading.Condition()
        self._of_turns: dict[int, set[str]] = {}
        self._of_agent: set[str] = set()
        self._starting = 0
        self._closed = False
        scope = turn.scope
        scope.listen("turn/end", self._turn_ended)
        scope.effect(lambda: self._end_all)

    def turn_begins(self, number: int) -> None:
        """A turn uses the shell."""
        with self._changed:
            self._of_turns.setdefault(number, set())

    def start(
        self, request: ShellRequest, turn: int | None, *, outlive: bool = False
    ) -> tuple[ShellTask, Future[ShellResult]]:
        """Start a command that ends with a turn, or with None, with the agent.

        Raises:
            ShellStartError, SystemClosed: nothing was started.
        """
        executor = self.executor
        with self._changed:
            if self._closed:
                raise SystemClosed(f"agent {self.name!r} ends and starts no commands any more")
            self._starting += 1
        task = None
        try:
            if turn is None:
                task = executor.start(request)
                future = executor.result(task.id)
            else:
                task, future = executor.run(request)
        finally:
            with self._changed:
                self._starting -= 1
                late = turn is not None and turn not in self._of_turns
                if task is not None and not outlive:
                    tasks = self._of_agent if turn is None or late else self._of_turns[turn]
                    tasks.add(task.id)
                self._changed.notify_all()
        if late:  # the turn has ended meanwhile
            executor.end(task.id, 0.0)
        return task, future

    def _turn_ended(self, number: int, _reason: str) -> None:
        with self._changed:
            left = self._of_turns.pop(number, set())
            self._of_agent |= left  # which waits for those that take their time to end
        for task in left:
            self.executor.end(task)

    def _end_all(self) -> None:
        """The agent ends: end what is left, and wait until nothing of it runs.

        Called on a thread where waiting is allowed.
        """
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._starting == 0)
            left = self._of_agent.union(*self._of_turns.values())
        remembered = {task.id for task in self.executor.tasks() if task.running}
        for future in [self.executor.end(task) for task in left & remembered]:
            future.result()


class AgentShell:
    """What a turn may do with commands; it has one as ``turn.shell``.

    The futures work in plain turns (``result()``, which a cancel interrupts) and in async ones
    (``await``).

    Parameters:
        turn: the turn.
        commands: those of its agent.
    """

    def __init__(self, turn: Turn, commands: Commands) -> None:
        self._turn, self._commands = turn, commands
        self._tool = ShellTool(commands.executor, commands.name)
        commands.turn_begins(turn.number)

    def run(
        self,
        command: Command,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        grace: float | None = None,
        pty: bool = False,
    ) -> Future[ShellResult]:
        """Run a command in the foreground. It ends with this turn, by its cancel too.

        Parameters:
            command: a line for the shell, or a program with its arguments.
            cwd: the folder to run in; by default the current one.
            env: variables to add to the environment, from which secrets are taken out.
            stdin: what it reads; by default nothing.
            timeout: seconds after which it is ended; by default 120.
            grace: seconds between TERM and KILL; by default 2.
            pty: run it on a terminal of its own.

        Returns:
            A future of the result, once nothing of the command runs any more. A status that is
            not 0, and a time-out, are results. Its error is ``ShellStartError`` if the command
            could not be started.

        Raises:
            Cancelled: this turn is cancelled.
            PolicyError: the agent's policy does not allow commands, or not there.
            UsageError: something in it is not possible.
        """
        request = self._request(
            command, cwd=cwd, env=env or {}, stdin=stdin, timeout=timeout, grace=grace, pty=pty
        )
        future: Future[ShellResult] = Awaited()
        self._apart(lambda: self._run(request, future), future)
        return future

    def start(
        self,
        command: Command,
        *,
        outlive: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        keep_stdin: bool = False,
        timeout: float | None = None,
        grace: float | None = None,
        pty: bool = False,
    ) -> Future[ShellTask]:
        """Start a command in the background. It goes on after this turn, and after a cancel.

        Once it has ended this agent is told, if it wants that (``on_shell_done``).

        Parameters:
            outlive: whether it goes on when this agent has ended, for as long as the system
                lives. By default it ends with its agent.
            keep_stdin: leave its input open, for :meth:`write`.
            command, cwd, env, stdin, timeout, grace, pty: as for :meth:`run`; without a
                time-out it may take as long as it likes.

        Returns:
            A future of the task, once it runs.

        Raises:
            Cancelled, PolicyError, UsageError: as for :meth:`run`.
        """
        request = self._request(
            command, cwd=cwd, env=env or {}, stdin=stdin, keep_stdin=keep_stdin, timeout=timeout,
            grace=grace, pty=pty,
        )  # fmt: skip
        future: Future[ShellTask] = Awaited()

        def begin() -> None:
            future.try_set_result(self._commands.start(request, None, outlive=outlive)[0])

        self._apart(begin, future)
        return future

    def _request(self, command: Command, **options: Any) -> ShellRequest:
        turn = self._turn
        turn._check_running()
        request = ShellRequest(command, owner=self._commands.name, **options)
        spec = self._commands.executor.resolve(request)  # what is wrong with it is said here
        policy = turn.policy
        if not policy.allows_tool(TOOL):
            raise PolicyError(f"the policy of agent {turn.agent_id!r} allows no tool {TOOL!r}")
        if policy.paths is not None:
            import os

            if not policy.allows_path(os.path.realpath(spec.cwd)):
                raise PolicyError(
                    f"the policy of agent {turn.agent_id!r} allows nothing in {spec.cwd}; it "
                    f"allows {', '.join(policy.paths) or 'no folder at all'}"
                )
        return request

    def _apart(self, begin: Callable[[], None], future: Future[Any]) -> None:
        """A start takes some milliseconds, which an event loop does not have."""

        def guarded() -> None:
            try:
                begin()
            except BaseException as error:
                future.try_set_error(error)

        if self._turn._is_async:
            self._turn._actor.host.apart(guarded)
        else:
            guarded()

    def _run(self, request: ShellRequest, future: Future[ShellResult]) -> None:
        commands, turn = self._commands, self._turn
        task, result = commands.start(request, turn.number)

        def end() -> None:
            commands.executor.end(task.id)

        turn.signal.add_callback(end)
        result.add_done_callback(lambda done: future.try_set_result(done.result(0)))

    # -- the tasks that this agent owns, and those that nobody owns ------------------------------

    def tasks(self) -> list[ShellTask]:
        """The tasks of this agent, in the order of their start."""
        return self._tool.tasks()

    def read(self, task_id: str, start: int = 0, most: int = 1 << 20) -> Chunk:
        """Read what a task wrote from some byte on, as far as there is something.

        Raises:
            ShellTaskUnknown: there is none, or it is not this agent's.
        """
        return self._tool.read(task_id, start, most)

    def write(self, task_id: str, data: bytes | str, *, end: bool = False) -> None:
        """Give a task more input, if its input was left open.

        Raises:
            ShellTaskUnknown: there is none, or it is not this agent's.
            UsageError: its input is closed.
        """
        self._tool.write(task_id, data, end=end)

    def wait(self, task_id: str) -> Future[ShellResult]:
        """A future of the result of a task.

        Raises:
            ShellTaskUnknown: there is none, or it is not this agent's.
        """
        return self._tool.wait(task_id)

    def kill(self, task_id: str, grace: float | None = None) -> Future[ShellResult]:
        """End a task and all that it has started; a future of its result.

        Raises:
            ShellTaskUnknown: there is none, or it is not this agent's.
        """
        return self._tool.kill(task_id, grace)


def shell_of(turn: Turn) -> AgentShell:
    """The shell of a turn.

    Raises:
        UsageError: the turn is over.
    """
    actor = turn._actor
    if actor.running is not turn:
        raise UsageError(
            f"turn {turn.number} of agent {turn.agent_id!r} is over, so it runs no commands"
        )
    commands = actor.commands
    if commands is None:
        commands = actor.commands = Commands(actor, turn)
    return AgentShell(turn, commands)
