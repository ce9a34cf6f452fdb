"""The future: set once, many waiters, callbacks, await, and what Pykka derives."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import queue
import threading
import time
import traceback
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pykka
import pytest

from dsh_actors.actors import Future
from dsh_actors.errors import ForkedSystemError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def in_threads(count: int, body: Callable[[int], Any]) -> list[Any]:
    """Run ``body(i)`` on threads that start together; the results in order."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(index: int) -> None:
        barrier.wait()
        results[index] = body(index)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def test_a_result_reaches_a_thread_that_waits_and_one_that_comes_later() -> None:
    future: Future[int] = Future()
    waiting = threading.Thread(target=lambda: seen.append(future.result()))
    seen: list[int] = []
    waiting.start()
    wait_until(lambda: future._waiters is not None)
    future.set_result(7)
    waiting.join()
    assert seen == [7]
    assert future.result(timeout=0) == future.get() == 7


def test_only_one_of_many_setters_wins() -> None:
    for _ in range(200):
        future: Future[int] = Future()
        won = in_threads(4, future.try_set_result)
        assert won.count(True) == 1
        assert won[future.result()]


def test_a_second_set_is_an_error() -> None:
    future: Future[int] = Future()
    future.set_result(1)
    with pytest.raises(queue.Full):
        future.set_result(2)
    with pytest.raises(queue.Full):
        future.set_error(ValueError())
    assert not future.try_set_error(ValueError())
    assert future.result() == 1


def test_set_exception_needs_an_exception() -> None:
    future: Future[int] = Future()
    with pytest.raises(UsageError, match="except block"):
        future.set_exception()
    future.set_exception((ValueError, None, None))
    with pytest.raises(ValueError, match=r"^$"):
        future.get()


def test_a_time_out_is_a_builtin_one_from_result_and_pykkas_from_get() -> None:
    future: Future[int] = Future()
    with pytest.raises(TimeoutError):
        future.result(timeout=0.001)
    with pytest.raises(pykka.Timeout):
        future.get(timeout=0.001)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0)
    assert future._waiters == {}


@pytest.mark.behaviour(65)
def test_each_waiter_keeps_its_own_time_out_while_another_runs_the_hook() -> None:
    source: Future[int] = Future()
    derived = source.map(lambda value: value + 1)
    patient: list[int] = []
    thread = threading.Thread(target=lambda: patient.append(derived.get()))
    thread.start()
    wait_until(lambda: bool(source._waiters))
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        derived.result(timeout=0.02)
    assert time.monotonic() - started < 1
    source.set_result(1)
    thread.join()
    assert patient == [2]


def test_when_the_thread_that_runs_the_hook_gives_up_another_takes_over() -> None:
    source: Future[int] = Future()
    derived = source.map(lambda value: value + 1)

    def wait(index: int) -> int | None:
        try:
            return derived.result(timeout=0.02 if index == 0 else None)
        except (TimeoutError, pykka.Timeout):
            source.set_result(1)
            return None

    results = in_threads(3, wait)
    assert results[0] is None
    assert results[1:] == [2, 2]


def test_a_hook_runs_once_for_many_waiters() -> None:
    calls: list[int] = []
    gate = threading.Event()

    def hook(timeout: float | None) -> int:
        calls.append(1)
        gate.wait()
        return 5

    future: Future[int] = Future()
    future.set_get_hook(hook)
    opener = threading.Thread(target=lambda: (wait_until(lambda: bool(calls)), gate.set()))
    opener.start()
    assert in_threads(4, lambda _: future.result()) == [5] * 4
    opener.join()
    assert calls == [1]


def test_an_error_is_raised_with_its_own_traceback_each_time() -> None:
    def fail() -> None:
        raise ValueError("broken")

    future: Future[None] = Future()
    try:
        fail()
    except ValueError as error:
        future.set_error(error)
    lengths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="broken") as caught:
            future.result()
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
        assert "fail" in str(traceback.extract_tb(caught.value.__traceback__))
    assert len(set(lengths)) == 1
    assert isinstance(future.exception(), ValueError)


def test_a_raised_error_leaves_no_reference_cycle() -> None:
    class PayloadError(Exception):
        pass

    gc.collect()
    gc.disable()
    try:
        future: Future[None] = Future()
        error = PayloadError()
        gone = weakref.ref(future)
        future.set_error(error)
        try:
            future.result()
        except PayloadError:
            pass
        del error, future
        assert gone() is None
    finally:
        gc.enable()


def test_callbacks_run_in_order_once_and_at_once_when_it_is_late() -> None:
    future: Future[int] = Future()
    order: list[tuple[str, int]] = []
    future.add_done_callback(lambda done: order.append(("first", done.result())))
    future.add_done_callback(lambda done: order.append(("second", done.result())))
    future.set_result(3)
    future.add_done_callback(lambda done: order.append(("late", done.result())))
    assert order == [("first", 3), ("second", 3), ("late", 3)]


def test_a_callback_may_use_the_future_as_no_lock_is_held() -> None:
    future: Future[int] = Future()
    seen: list[Any] = []

    def callback(done: Future[int]) -> None:
        done.add_done_callback(lambda _: seen.append("inner"))
        other: Future[int] = Future()
        other.set_result(1)
        seen.append(done.try_set_result(2))

    future.add_done_callback(callback)
    future.set_result(1)
    assert seen == ["inner", False]


def test_a_failing_callback_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()
    seen: list[int] = []

    def broken(_: Future[int]) -> None:
        raise RuntimeError("in the callback")

    future.add_done_callback(broken)
    future.add_done_callback(lambda done: seen.append(done.result()))
    with caplog.at_level(logging.ERROR, "dsh_actors"):
        future.set_result(1)
        future.add_done_callback(broken)
    assert seen == [1]
    assert len(caplog.records) == 2
    assert "in the callback" in caplog.text


def test_no_callback_is_lost_when_it_races_the_set() -> None:
    for _ in range(300):
        future: Future[int] = Future()
        calls: list[int] = []

        def act(index: int, future: Future[int] = future, calls: list[int] = calls) -> None:
            if index:
                future.add_done_callback(lambda done: calls.append(done.result()))
            else:
                future.set_result(9)

        in_threads(3, act)
        assert calls == [9, 9]


def test_await_does_not_block_the_loop() -> None:
    async def main() -> tuple[int, int]:
        future: Future[int] = Future()
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            for _ in range(5):
                ticks += 1
                await asyncio.sleep(0)
            threading.Thread(target=future.set_result, args=(4,)).start()

        task = asyncio.ensure_future(tick())
        value = await future
        await task
        return value, ticks

    assert asyncio.run(main()) == (4, 5)


def test_a_cancelled_await_leaves_nothing_behind() -> None:
    future: Future[int] = Future()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_await(future)), timeout=0.01)
        assert future._waiters == {}

    asyncio.run(main())
    future.set_result(1)


async def _await(future: Future[Any]) -> Any:
    return await future


def test_a_derived_future_can_be_awaited() -> None:
    async def main() -> list[Any]:
        first: Future[int] = Future()
        second: Future[int] = Future()
        joined = first.join(second).map(sum)
        threading.Thread(target=lambda: (first.set_result(1), second.set_result(2))).start()
        failing = first.map(lambda value: value / 0)
        with pytest.raises(ZeroDivisionError):
            await failing
        return await joined

    assert asyncio.run(main()) == 3


def test_a_hook_of_unknown_origin_is_pulled_for_a_callback() -> None:
    future: Future[int] = Future()
    called = threading.Event()
    future.set_get_hook(lambda timeout: 8)
    future.add_done_callback(lambda done: called.set())
    assert called.wait(5)
    assert future.result() == 8
    wait_until(lambda: not any(t.name == "dsh-future" for t in threading.enumerate()))


def test_join_gives_one_time_out_to_all_parts_together() -> None:
    parts: list[Future[int]] = [Future() for _ in range(4)]
    started = time.monotonic()
    with pytest.raises(pykka.Timeout):
        parts[0].join(*parts[1:]).get(timeout=0.02)
    assert time.monotonic() - started < 1


def test_two_threads_that_poll_one_future_leave_no_waiters_behind() -> None:
    future: Future[int] = Future()

    def poll(_: int) -> None:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                future.result(timeout=0.0001)

    in_threads(2, poll)
    assert future._waiters == {}


def test_time_outs_that_race_the_set_never_hang() -> None:
    for turn in range(300):
        future: Future[int] = Future()

        def act(index: int, future: Future[int] = future, turn: int = turn) -> Any:
            if index == 0:
                future.set_result(1)
                return 1
            try:
                return future.result(timeout=turn % 7 * 0.00002)
            except TimeoutError:
                return future.result(timeout=5)

        assert in_threads(3, act) == [1, 1, 1]


def test_a_future_from_before_a_fork_says_so_in_the_child() -> None:
    future: Future[int] = Future()

    def wait() -> None:
        with pytest.raises(ForkedSystemError):
            future.result(timeout=5)
        fresh: Future[int] = Future()
        threading.Thread(target=fresh.set_result, args=(1,)).start()
        assert fresh.result(timeout=5) == 1

    assert in_child(wait) == 0
    future.set_result(1)


def in_child(body: Callable[[], None]) -> int:
    """Run ``body`` in a forked child; its exit code, 0 if it raised nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
