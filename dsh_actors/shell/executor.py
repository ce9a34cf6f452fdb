"""The shell executor: starts commands, bounds them, and ends them with all that they started.

One thread reads the output of all of them and keeps the deadlines. A command is done when nothing
of it runs any more: one that ends with ``&`` is not done while what it left behind lives, and a
grandchild that holds the output open holds nobody up once it is ended.

Each task has an owner token. The executor stores it and never looks at it; who may do what with a
task is the tool's business (:mod:`dsh_actors.agents.shell`).
"""

from __future__ import annotations

import itertools
import os
import secrets
import selectors
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from dsh_actors.actors.future import Future
from dsh_actors.errors import ShellTaskUnknown, SystemClosed, UsageError
from dsh_actors.processes.proctree import kill_tree_now
from dsh_actors.shell.files import SpillFolder
from dsh_actors.shell.output import Chunk, Output
from dsh_actors.shell.request import Defaults, ShellRequest, ShellSpec, resolve
from dsh_actors.shell.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from dsh_actors.shell.task import ShellResult, ShellTask

__all__ = ["ShellExecutor"]

HISTORY = 1_000
"""How many ended tasks an executor remembers, with their output."""

_DRAIN = 1.0
"""Seconds for which the output of an ended command is still read, if a stranger holds it open."""


class ShellExecutor:
    """Runs commands for agents, or for anybody. All methods may be called from any thread.

    Parameters:
        defaults: what requests leave open.
        name: begins the ids of its tasks and the names of its thread and files.
        future: makes the futures that it gives.
    """

    def __init__(
        self,
        defaults: Defaults | None = None,
        *,
        name: str = "shell",
        future: Callable[[], Future[Any]] = Future,
    ) -> None:
        self.defaults = defaults if defaults is not None else Defaults()
        self.name = name
        self._future = future
        self._mark = f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._tasks: dict[str, Running] = {}
        self._owners: dict[str, str | None] = {}
        self._listeners: dict[int, Callable[[ShellTask, ShellResult], Any]] = {}
        self._files = SpillFolder(name)
        self._selector: selectors.BaseSelector | None = None
        self._thread: threading.Thread | None = None
        self._bell: tuple[int, int] | None = None
        self._dispose: Future[tuple[ShellResult, ...]] | None = None
        self._draining: dict[Running, float] = {}
        self._ended: list[ShellResult] = []
        self._pid = os.getpid()

    # -- starting ------------------------------------------------------------------------------

    def resolve(self, request: ShellRequest, *, foreground: bool = True) -> ShellSpec:
        """Fill in what a request leaves open; ``owner`` is always in the result, maybe None.

        Raises:
            UsageError: something in it is not possible.
        """
        return resolve(request, self.defaults, foreground=foreground)

    def run(self, request: ShellRequest | ShellSpec) -> tuple[ShellTask, Future[ShellResult]]:
        """Start a command in the foreground: somebody waits for it, and its time is limited.

        Returns:
            The task, and a future of its result. Neither a status that is not 0 nor a time-out
            is an error.

        Raises:
            UsageError, ShellStartError, SystemClosed: nothing was started.
        """
        return self._start(request, background=False)

    def start(self, request: ShellRequest | ShellSpec) -> ShellTask:
        """Start a command in the background.

        Raises:
            UsageError, ShellStartError, SystemClosed: nothing was started.
        """
        return self._start(request, background=True)[0]

    def _start(
        self, request: ShellRequest | ShellSpec, *, background: bool
    ) -> tuple[ShellTask, Future[ShellResult]]:
        spec = request
        if isinstance(spec, ShellRequest):
            spec = self.resolve(spec, foreground=not background)
        self._check_open()
        number = next(self._numbers)
        id = f"{self.name}-{number}"
        future = self._future()
        output = Output(
            self.defaults.keep, self.defaults.spill, lambda: self._files.create(f"{id}.out")
        )
        task = Running(id, spec, f"{self._mark}:{number}", output, future, background=background)
        with self._lock:
            refused = self._dispose is not None
            if not refused:
                self._tasks[id], self._owners[id] = task, spec.owner
                self._attend(task)
        if refused:  # disposed meanwhile
            task.control.close()
            task.keeper.wait()
            task.close_descriptors()
            self._check_open()
        return task.shown(), future

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise SystemClosed(
                f"the executor {self.name!r} belongs to the process that forked this one; make "
                "another one here"
            )
        if self._dispose is not None:
            raise SystemClosed(f"the executor {self.name!r} has ended and starts nothing more")

    # -- looking -------------------------------------------------------------------------------

    def owner_of(self, task_id: str) -> str | None:
        """The owner token of a task, as it was given; also once the task has ended.

        Raises:
            ShellTaskUnknown: there is no such task.
        """
        with self._lock:
            self._find(task_id)
            return self._owners[task_id]

    def tasks(self) -> list[ShellTask]:
        """All tasks that are remembered, in the order of their start."""
        with self._lock:
            return [task.shown() for task in self._tasks.values()]

    def task(self, task_id: str) -> ShellTask:
        """One task.

        Raises:
            ShellTaskUnknown: there is no such task.
        """
        with self._lock:
            return self._find(task_id).shown()

    def read(self, task_id: str, start: int = 0, most: int = 1 << 20) -> Chunk:
        """Read what a task wrote from some byte on; ``next`` of the piece begins the next one.

        Raises:
            ShellTaskUnknown: there is no such task.
        """
        with self._lock:
            task = self._find(task_id)
            if task.source is not None and not task.done:
                task.read()  # what it has written before this call is in the answer
            return task.output.read(start, most)

    def result(self, task_id: str) -> Future[ShellResult]:
        """The future of a task's result.

        Raises:
            ShellTaskUnknown: there is no such task.
        """
        with self._lock:
            return self._find(task_id).future

    def on_done(self, listener: Callable[[ShellTask, ShellResult], Any]) -> Callable[[], None]:
        """Have a function called with each task that ends, on the executor's thread.

        Its failure is logged. It must not wait for a task.

        Returns:
            A function that takes the listener out again.
        """
        key = next(self._numbers)
        with self._lock:
            self._listeners[key] = listener

        def remove() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return remove

    def _find(self, task_id: str) -> Running:
        task = self._tasks.get(task_id)
        if task is None:
            raise unknown(task_id)
        return task

    # -- acting --------------------------------------------------------------------------------

    def write(self, task_id: str, data: bytes | str, *, end: bool = False) -> None:
        """Give a task more input: one with a terminal, or whose input was to be left open.

        Parameters:
            task_id: the task.
            data: what it is to read.
            end: whether that was all.

        Raises:
            ShellTaskUnknown: there is no such task.
            UsageError: its input is closed.
        """
        with self._lock:
            task = self._find(task_id)
            if task.sink is None or task.done:
                raise UsageError(f"the input of task {task_id!r} is closed")
            more = data.encode() if isinstance(data, str) else data
            task.pending_input = memoryview(bytes(task.pending_input) + more)
            if end:
                task.spec = _without_input(task.spec)
            self._watch_input(task)
            self._ring()

    def end(self, task_id: str, grace: float | None = None) -> Future[ShellResult]:
        """End a task and all that it has started: TERM, the grace, KILL.

        Parameters:
            task_id: the task.
            grace: seconds between TERM and KILL; None takes that of the request.

        Returns:
            The future of its result.

        Raises:
            ShellTaskUnknown: there is no such task.
        """
        with self._lock:
            task = self._find(task_id)
            if not task.done:
                task.end(task.spec.grace if grace is None else grace)
            return task.future

    def dispose(self, grace: float | None = None) -> Future[tuple[ShellResult, ...]]:
        """End the executor: refuse what is new, end every task, and wait until all are gone.

        Parameters:
            grace: seconds between TERM and KILL; None takes that of each request.

        Returns:
            A future of the results of the tasks that were still running. All callers share it.
        """
        with self._lock:
            if self._dispose is not None:
                return self._dispose
            self._dispose = self._future()
            self._listeners.clear()  # first: nobody is told of what is ended here
            for task in self._tasks.values():
                if not task.done:
                    task.end(task.spec.grace if grace is None else grace)
            idle = self._thread is None
            if idle:
                self._close()
            else:
                self._ring()
        if idle:
            self._dispose.try_set_result(())
        return self._dispose

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.dispose().result()
        thread = self._thread
        if thread is not None:
            thread.join()

    # -- the thread ----------------------------------------------------------------------------

    def _attend(self, task: Running) -> None:
        """Have the thread look after a new task. With the lock."""
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            self._bell = os.pipe()
            for descriptor in self._bell:
                os.set_blocking(descriptor, False)
            self._selector.register(self._bell[0], selectors.EVENT_READ, None)
            self._thread = threading.Thread(target=self._run, name=f"dsh-{self.name}", daemon=True)
            self._thread.start()
        self._selector.register(task.control, selectors.EVENT_READ, (task, self._heard))
        if task.source is not None:
            self._selector.register(task.source, selectors.EVENT_READ, (task, self._readable))
        self._watch_input(task)
        self._ring()

    def _watch_input(self, task: Running) -> None:
        assert self._selector is not None
        if task.sink is None:
            return
        if not task.pending_input:
            if not (task.spec.keep_stdin or task.spec.pty):
                self._unwatch(task.sink)
                task.close_input()
            return
        if task.sink not in self._selector.get_map():
            self._selector.register(task.sink, selectors.EVENT_WRITE, (task, self._writable))

    def _unwatch(self, descriptor: Any) -> None:
        assert self._selector is not None
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def _ring(self) -> None:
        if self._bell is not None:
            try:
                os.write(self._bell[1], b"\0")
            except BlockingIOError:
                return  # it has been rung often enough

    def _run(self) -> None:
        selector, bell = self._selector, self._bell
        assert selector is not None
        assert bell is not None
        while True:
            ready = selector.select(self._next_deadline())
            finished: list[Running] = []
            with self._lock:
                for key, _ in ready:
                    if key.data is None:
                        os.read(bell[0], 4096)
                        continue
                    task, act = key.data
                    if not task.done:
                        act(task)
                finished += self._look_at_clock()
                over = self._dispose is not None and all(t.done for t in self._tasks.values())
            for task in finished:
                self._tell(task)
            if over and not finished:
                with self._lock:
                    self._close()
                    assert self._dispose is not None
                self._dispose.try_set_result(tuple(self._ended))
                return

    def _next_deadline(self) -> float | None:
        with self._lock:
            times = [
                task.deadline for task in self._tasks.values()
                if task.deadline is not None and not task.ending and not task.done
            ]  # fmt: skip
            times += self._draining.values()
            if self._dispose is not None and all(task.done for task in self._tasks.values()):
                return 0.0
        return max(0.0, min(times) - monotonic()) if times else None

    def _heard(self, task: Running) -> None:
        if task.hear():
            return
        self._unwatch(task.control)
        if not task.empty:
            # Somebody killed the keeper. What it kept is found by its mark.
            left = kill_tree_now(task.identity, marker=task.marker)
            task.killed = tuple(process.pid for process in left if process.ended == "killed")
        task.keeper.wait()
        self._draining[task] = monotonic() + (_DRAIN if task.source is not None else 0.0)

    def _readable(self, task: Running) -> None:
        if not task.read():
            assert task.source is not None
            self._unwatch(task.source)
            source, task.source = task.source, None
            os.close(source)
            if task in self._draining:
                self._draining[task] = 0.0

    def _writable(self, task: Running) -> None:
        if not task.feed():
            assert task.sink is not None
            self._unwatch(task.sink)
            self._watch_input(task)

    def _look_at_clock(self) -> list[Running]:
        """End what has taken too long, and return what is through. With the lock."""
        now = monotonic()
        for task in self._tasks.values():
            late = task.deadline is not None and now >= task.deadline
            if late and not task.ending and not task.done:
                task.timed_out = True
                task.end(task.spec.grace)
        through = [task for task, until in self._draining.items() if now >= until]
        for task in through:
            del self._draining[task]
            self._finish(task)
        return through

    def _finish(self, task: Running) -> None:
        """Nothing of a task is left: let go of all that it had. With the lock."""
        if task.source is not None:
            task.read()
        for descriptor in (task.source, task.sink):
            if descriptor is not None:
                self._unwatch(descriptor)
        task.close_descriptors()
        task.control.close()
        task.done = True
        if self._dispose is not None:
            self._ended.append(task.result())

    def _tell(self, task: Running) -> None:
        """Tell whoever waits or listens. Without the lock, since they may call back."""
        result = task.result()
        with self._lock:
            listeners = list(self._listeners.values())
            shown = task.shown()
            self._forget_old()
        task.future.try_set_result(result)
        for listener in listeners:
            try:
                listener(shown, result)
            except Exception:
                import logging

                logging.getLogger("dsh_actors.shell").exception(
                    "a listener of ended tasks failed (task %s)", task.id
                )

    def _forget_old(self) -> None:
        done = [task.id for task in self._tasks.values() if task.done]
        for id in done[: max(0, len(done) - HISTORY)]:
            self._tasks.pop(id).output.discard()
            del self._owners[id]

    def _close(self) -> None:
        """The last of the executor. With the lock."""
        for task in self._tasks.values():
            task.output.discard()
        self._files.remove()
        if self._selector is not None:
            self._selector.close()
        if self._bell is not None:
            for descriptor in self._bell:
                os.close(descriptor)
            self._bell = None


def unknown(task_id: str) -> ShellTaskUnknown:
    """What is said of a task that is not there, and of one that is not the caller's."""
    return ShellTaskUnknown(f"there is no task {task_id!r} of yours; tasks() lists those there are")


def _without_input(spec: ShellSpec) -> ShellSpec:
    from dataclasses import replace

    return replace(spec, keep_stdin=False)
