"""Initiators by themselves: boundaries, what they count, and their end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import random
import threading
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from watching import PATIENCE, Gate, in_threads

import dsh_actors as dsh
from dsh_actors.agents.initiator import InitiatorRegistry

if TYPE_CHECKING:
    from collections.abc import Callable


def agent(name: str) -> Any:
    """A stand-in: a registry only passes it on."""
    return dsh.Agent(None, None, name, None)  # type: ignore[arg-type]


A, B = agent("a"), agent("b")


def in_a_thread(function: Callable[[], Any], *, carried: bool = True) -> Any:
    """Call a function on another thread, with this context or without; its result."""
    run = contextvars.copy_context().run if carried else contextvars.Context().run
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(run, function).result(PATIENCE)


@pytest.mark.behaviour(107)
def test_an_operation_sees_its_initiator_in_all_its_steps() -> None:
    registry = InitiatorRegistry()

    async def step() -> Any:
        await asyncio.sleep(0)
        return registry.current()

    async def operation() -> list[Any]:
        seen = [registry.current()]
        seen.append(await step())
        seen += await asyncio.gather(step(), asyncio.create_task(step()))
        seen.append(await asyncio.to_thread(registry.current))
        return seen

    async def main() -> None:
        running = registry.with_initiator(A, operation)
        assert registry.optional() is None  # the boundary is left, while the operation goes on
        assert registry.active == 1
        assert await running == [A] * 5
        assert registry.optional() is None

    asyncio.run(main())
    assert registry.active == 0


@pytest.mark.behaviour(107)
def test_a_thread_sees_it_if_it_is_given_the_context() -> None:
    registry = InitiatorRegistry()

    def operation() -> None:
        assert in_a_thread(registry.optional) is A
        assert in_a_thread(registry.optional, carried=False) is None

    registry.with_initiator(A, operation)


@pytest.mark.behaviour(108, 109)
def test_a_closed_registry_refuses_new_boundaries_and_lets_the_held_one_read() -> None:
    registry, gate = InitiatorRegistry(), Gate()

    def held() -> Any:
        gate.hold()
        return registry.current(), dsh.current_agent()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(registry.with_initiator, A, held)
        gate.reached()
        registry.close()
        for boundary in (
            lambda: registry.with_initiator(A, list),
            lambda: registry.without_initiator(list),
        ):
            with pytest.raises(dsh.InitiatorClosed, match=r"^agent initiator scope is disposed$"):
                boundary()
        assert (registry.state, registry.active) == ("closing", 1)
        gate.open()
        assert run.result(PATIENCE) == (A, A)
    assert registry.state == "closing"


@pytest.mark.behaviour(110)
def test_disposal_waits_for_every_other_run() -> None:
    registry, slow = InitiatorRegistry(), Gate()
    value: concurrent.futures.Future[int] = concurrent.futures.Future()
    error: dsh.Future[int] = dsh.Future()
    assert registry.with_initiator(A, lambda: value) is value
    assert registry.with_initiator(B, lambda: error) is error
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        last = pool.submit(registry.without_initiator, slow.hold)
        slow.reached()
        ended = registry.dispose()
        assert registry.dispose() is ended
        value.set_result(1)
        error.set_error(ValueError("no"))
        assert (registry.active, ended.done(), registry.state) == (1, False, "closing")
        slow.open()
        ended.result(PATIENCE)
        last.result(PATIENCE)
    assert (registry.active, registry.state) == (0, "disposed")


@pytest.mark.behaviour(111)
@pytest.mark.parametrize("hop", [False, True])
def test_the_chain_that_tears_down_does_not_wait_for_itself(hop: bool) -> None:
    registry, other = InitiatorRegistry(), Gate()

    def teardown() -> None:
        assert registry.active == 3  # two of this chain, and the other one
        ended = registry.dispose()
        assert (registry.active, ended.done()) == (1, False)  # an unrelated one is waited for
        other.open()
        ended.result(PATIENCE)

    def inner() -> None:
        if hop:
            in_a_thread(teardown)
        else:
            teardown()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        unrelated = pool.submit(registry.with_initiator, B, other.hold)
        other.reached()
        registry.with_initiator(A, lambda: registry.without_initiator(inner))
        unrelated.result(PATIENCE)
    assert (registry.active, registry.state) == (0, "disposed")


@pytest.mark.behaviour(111)
def test_runs_that_all_tear_down_do_not_wait_for_each_other() -> None:
    registry, barrier = InitiatorRegistry(), threading.Barrier(32)

    def teardown() -> Any:
        barrier.wait(PATIENCE)
        ended = registry.dispose()
        ended.result(PATIENCE)
        return ended

    results = in_threads(
        32, lambda n: registry.with_initiator(A, lambda: registry.without_initiator(teardown))
    )
    assert len({id(each) for each in results}) == 1
    assert isinstance(results[0], dsh.Future), results[0]
    assert (registry.active, registry.state) == (0, "disposed")


@pytest.mark.behaviour(112)
def test_after_the_disposal_it_is_disabled_for_good() -> None:
    registry = InitiatorRegistry()

    def operation() -> None:
        assert registry.current() is A
        registry.dispose().result(PATIENCE)
        for retained in (registry.current, registry.optional, dsh.current_agent):
            with pytest.raises(dsh.InitiatorClosed):
                retained()

    registry.with_initiator(A, operation)
    for boundary in (lambda: registry.with_initiator(A, list), registry.current, registry.optional):
        with pytest.raises(dsh.InitiatorClosed):
            boundary()
    assert registry.dispose().done()
    assert registry.state == "disposed"


def operations(kind: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An operation of each kind, and what settles what it returns."""
    future: Any
    if kind == 0:
        return (lambda: 1), list
    if kind == 1:
        return (lambda: 1 / 0), list
    if kind == 2:
        future = dsh.Future()
        return (lambda: future), lambda: future.set_result(1)
    if kind == 3:
        future = dsh.Future()
        return (lambda: future), lambda: future.set_error(ValueError())
    if kind == 4:
        future = concurrent.futures.Future()
        return (lambda: future), lambda: future.set_exception(ValueError())
    if kind == 5:
        future = concurrent.futures.Future()
        return (lambda: future), future.cancel
    return (lambda: operations(2)), list  # a value that is no future


@pytest.mark.behaviour(113)
def test_the_count_comes_back_to_zero_however_runs_end() -> None:
    registry = InitiatorRegistry()

    def many(number: int) -> None:
        chosen = random.Random(number)
        unsettled = []
        for _ in range(1000):
            operation, settle = operations(chosen.randrange(7))
            boundary = chosen.choice(
                [lambda op: registry.with_initiator(A, op), registry.without_initiator]
            )
            try:
                boundary(operation)
            except ZeroDivisionError:
                continue
            unsettled.append(settle)
            if chosen.random() < 0.5:
                unsettled.pop(chosen.randrange(len(unsettled)))()
        for settle in unsettled:
            settle()

    assert in_threads(10, many) == [None] * 10
    assert registry.active == 0
    registry.dispose().result(PATIENCE)


@pytest.mark.behaviour(113)
def test_a_run_lasts_until_its_future_settles_and_gives_the_very_same_object() -> None:
    registry = InitiatorRegistry()
    for kind in range(2, 6):
        operation, settle = operations(kind)
        assert registry.with_initiator(A, operation) is operation()
        assert registry.active == 1
        settle()
        assert registry.active == 0


@pytest.mark.behaviour(113)
def test_a_future_of_pykka_itself_is_followed() -> None:
    for settle in (
        lambda future: future.set(1),
        lambda future: future.set_exception((ValueError, ValueError("no"), None)),
    ):
        registry = InitiatorRegistry()
        future: pykka.ThreadingFuture[Any] = pykka.ThreadingFuture()
        assert registry.with_initiator(A, lambda: future) is future  # noqa: B023 - called now
        assert registry.active == 1
        settle(future)
        registry.dispose().result(PATIENCE)
        assert registry.active == 0


@pytest.mark.behaviour(113)
def test_tasks_and_coroutines_count_until_they_end() -> None:
    registry = InitiatorRegistry()

    async def sleeps() -> None:
        await asyncio.sleep(3600)

    async def fails() -> None:
        raise ValueError("no")

    async def main() -> None:
        cancelled = registry.with_initiator(A, sleeps)
        task = asyncio.create_task(fails())
        assert registry.with_initiator(A, lambda: task) is task
        plain = asyncio.get_running_loop().create_future()
        assert registry.without_initiator(lambda: plain) is plain
        assert registry.active == 3
        cancelled.cancel()  # type: ignore[attr-defined]
        plain.set_result(None)
        await asyncio.gather(cancelled, task, plain, return_exceptions=True)
        assert registry.active == 0

    asyncio.run(main())
    with pytest.raises(dsh.UsageError, match="no event loop runs"):
        registry.with_initiator(A, sleeps)
    assert registry.active == 0


@pytest.mark.behaviour(116, 117)
def test_nested_boundaries_hide_and_restore() -> None:
    registry = InitiatorRegistry()

    def fail() -> None:
        assert registry.current() is B
        raise ValueError("no")

    def cleared() -> None:
        assert registry.optional() is None
        with pytest.raises(dsh.UsageError, match="no agent acts here"):
            registry.current()
        assert registry.with_initiator(B, registry.current) is B
        assert registry.optional() is None

    def outer() -> None:
        registry.without_initiator(cleared)
        assert registry.current() is A
        with pytest.raises(ValueError, match="no"):
            registry.with_initiator(B, fail)
        assert registry.current() is A

    registry.with_initiator(A, outer)
    assert registry.optional() is None


@pytest.mark.behaviour(116)
def test_overlapping_runs_do_not_see_each_other() -> None:
    """Interleaved on one event loop and on a shared pool, with a thousand hops each."""
    registry = InitiatorRegistry()

    async def hops(pool: concurrent.futures.Executor, me: Any) -> None:
        loop = asyncio.get_running_loop()
        for hop in range(1000):
            assert registry.current() is me
            if hop % 4:
                await asyncio.sleep(0)
            else:
                context = contextvars.copy_context()
                seen = await loop.run_in_executor(pool, context.run, registry.current)
                assert seen is me

    async def main() -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            await asyncio.gather(
                *(registry.with_initiator(each, lambda e=each: hops(pool, e)) for each in (A, B))
            )

    asyncio.run(main())
    assert registry.active == 0


def test_the_registries_of_two_systems_do_not_mix() -> None:
    one, two = InitiatorRegistry(), InitiatorRegistry()

    def inner() -> None:
        assert one.current() is A
        assert two.current() is B
        assert dsh.current_agent() is B  # the innermost

    one.with_initiator(A, lambda: two.with_initiator(B, inner))
    assert dsh.current_agent() is None
    assert dsh.without_initiator(lambda: 5) == 5
