"""Trio: tasks in nurseries, cancelled through their scopes."""

from __future__ import annotations

import gc
import time

import trio
import trio.testing

from benchmarks import meter


def memory(n: int) -> dict[str, float]:
    """KiB per task that waits for an event."""

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            event = trio.Event()
            before = meter.resident()
            for _ in range(n):
                nursery.start_soon(event.wait)
            await trio.testing.wait_all_tasks_blocked()
            used = meter.resident() - before
            event.set()
        return used / n / 1024

    kib: float = trio.run(main)
    return {"kib": kib}


def spawn(n: int) -> dict[str, float]:
    """Tasks started, up to their first wait, per second."""

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            event = trio.Event()
            gc.collect()
            start = time.perf_counter()
            for _ in range(n):
                nursery.start_soon(event.wait)
            await trio.testing.wait_all_tasks_blocked()
            taken = time.perf_counter() - start
            event.set()
        return n / taken

    rate: float = trio.run(main)
    return {"rate": rate}


async def _branch(depth: int, fan_out: int) -> None:
    async with trio.open_nursery() as nursery:
        if depth:
            for _ in range(fan_out):
                nursery.start_soon(_branch, depth - 1, fan_out)
        await trio.sleep_forever()


def _cancel(depth: int, fan_out: int) -> dict[str, float]:
    meter.relax_collector()

    async def main() -> dict[str, float]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_branch, depth, fan_out)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            start = time.perf_counter()
            nursery.cancel_scope.cancel()
            marked = time.perf_counter() - start
        return {"marked_ms": marked * 1e3, "disposed_ms": (time.perf_counter() - start) * 1e3}

    figures: dict[str, float] = trio.run(main)
    return figures


def tree(n: int) -> dict[str, float]:
    """Cancel a tree of depth *n* and fan-out 10: the call returns, the nursery is left."""
    return _cancel(n, 10)


def flat(n: int) -> dict[str, float]:
    """Cancel one nursery of *n* tasks, each with a nursery of its own."""
    return _cancel(1, n)
