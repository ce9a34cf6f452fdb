"""xoscar: actors in worker processes, reached through asyncio."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import TYPE_CHECKING, Any

import xoscar
from xoscar.backends.allocate_strategy import ProcessIndex

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Echo(xoscar.Actor):  # type: ignore[misc]
    """Answers with what it got."""

    async def echo(self, message: Any) -> Any:
        return message


def _run(work: Callable[[str], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """Run *work* against a pool with one worker process, on the fastest loop there is."""

    async def main() -> dict[str, float]:
        pool = await xoscar.create_actor_pool("127.0.0.1", n_process=1)
        async with pool:
            return await work(pool.external_address)

    try:
        new_loop = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main())


async def _echo(address: str, uid: str) -> Any:
    return await xoscar.create_actor(
        Echo, address=address, uid=uid, allocate_strategy=ProcessIndex(1)
    )


def ask(n: int) -> dict[str, float]:
    """Microseconds per ask to an actor in a worker, one at a time."""

    async def work(address: str) -> dict[str, float]:
        actor = await _echo(address, "echo")
        await actor.echo(0)
        start = time.perf_counter()
        for _ in range(n):
            await actor.echo(1)
        return {"us": (time.perf_counter() - start) / n * 1e6}

    return _run(work)


def pipelined(n: int) -> dict[str, float]:
    """Asks answered per second, all outstanding at once."""

    async def work(address: str) -> dict[str, float]:
        actor = await _echo(address, "echo")
        await actor.echo(0)
        start = time.perf_counter()
        await asyncio.gather(*(actor.echo(1) for _ in range(n)))
        return {"rate": n / (time.perf_counter() - start)}

    return _run(work)


def tell(n: int) -> dict[str, float]:
    """Tells per second, until the actor answers an ask sent after them."""

    async def work(address: str) -> dict[str, float]:
        actor = await _echo(address, "echo")
        await actor.echo(0)
        start = time.perf_counter()
        await asyncio.gather(*(actor.echo.tell(1) for _ in range(n)))
        await actor.echo(1)
        return {"rate": n / (time.perf_counter() - start)}

    return _run(work)


def spawn(n: int) -> dict[str, float]:
    """Actors created in a worker per second, each asked once."""

    async def work(address: str) -> dict[str, float]:
        await _echo(address, "first")

        async def one(uid: str) -> None:
            actor = await _echo(address, uid)
            await actor.echo(1)

        start = time.perf_counter()
        await asyncio.gather(*(one(f"echo-{index}") for index in range(n)))
        return {"rate": n / (time.perf_counter() - start)}

    return _run(work)
