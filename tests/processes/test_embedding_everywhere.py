"""Systems inside other people's processes and threads."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE

import dsh_actors as dsh

if TYPE_CHECKING:
    from collections.abc import Callable


def use_a_system(number: int) -> list[Any]:
    """A whole life of a system, with workers."""
    with dsh.ActorSystem(workers=1) as system:
        replies = [
            system.create(behaviours.echo, isolation=isolation).agent.ask(number)
            for isolation in ("inline", "pool", "own")
        ]
        answers = [reply.result(PATIENCE) for reply in replies]
        receipt = system.shutdown().result(PATIENCE)
    return [answers, receipt.complete, multiprocessing.current_process().daemon]


def put_a_system(queue: Any) -> None:
    queue.put(use_a_system(7))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_in_the_worker_of_a_process_pool(method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(use_a_system, 5).result(60)[:2] == [[5, 5, 5], True]
    _end_fork_server(method)


def test_in_a_daemonic_process() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=put_a_system, args=(queue,), daemon=True)
    process.start()
    try:
        assert queue.get() == [[7, 7, 7], True, True]
    finally:
        process.join(PATIENCE)
        process.close()
        queue.close()


def _end_fork_server(method: str) -> None:
    if method == "forkserver":
        from multiprocessing import forkserver

        forkserver._forkserver._stop()  # type: ignore[attr-defined]


def test_in_a_thread_and_several_at_once() -> None:
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(use_a_system(n))) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(result[0][0] for result in results) == [0, 1, 2]
    assert all(result[1] for result in results)


def in_child(function: Callable[[], None]) -> str:
    """What a function raises in a forked child, as text; it may not hang."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            function()
            said = "nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_after_a_fork_every_use_is_one_clear_error(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        handle = system.create(behaviours.echo, id="a", isolation=isolation)
        agent = handle.agent
        assert agent.ask(1).result(PATIENCE) == 1
        uses: dict[str, Callable[[], Any]] = {
            "send": lambda: agent.send(1),
            "ask": lambda: agent.ask(1).result(1),
            "cancel": agent.cancel,
            "interrupt": agent.interrupt,
            "status": lambda: agent.status,
            "when_idle": lambda: agent.when_idle().result(1),
            "dispose": lambda: handle.dispose().result(1),
            "create": lambda: system.create(behaviours.echo),
            "stop": lambda: system.stop("a"),
            "tree": system.tree,
            "shutdown": lambda: system.shutdown().result(1),
        }
        for name, use in uses.items():
            said = in_child(use)
            assert said.startswith("ForkedSystemError: "), (name, said)
        assert agent.ask(2).result(PATIENCE) == 2


def test_a_forked_child_makes_a_system_of_its_own() -> None:
    with dsh.ActorSystem(workers=1) as system:
        system.create(behaviours.echo, isolation="pool").agent.ask(1).result(PATIENCE)

        def use() -> None:
            assert use_a_system(3)[:2] == [[3, 3, 3], True]

        assert in_child(use) == "nothing"


def test_a_fork_at_any_moment_leaves_no_lock_behind() -> None:
    """The lock of the tree may be held by another thread at the fork."""
    with dsh.ActorSystem() as system:
        handle = system.create(behaviours.echo)
        with system._core.lock:
            said = in_child(lambda: handle.agent.send(1) and None)
    assert said.startswith("ForkedSystemError: ")
