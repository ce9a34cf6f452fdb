"""Agents in worker processes."""

from __future__ import annotations

import os
import queue
import signal
import statistics
import time
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from benchmarks import meter
from benchmarks.behaviours import echo

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 120.0


def ask(n: int) -> dict[str, float]:
    """Microseconds per ask of an agent in a worker, one at a time."""
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(echo, isolation="pool").agent
        agent.ask(0).result(TIMEOUT)

        def work() -> None:
            for _ in range(n):
                agent.ask(1).result()  # without a time-out, as the peer asks

        taken = meter.seconds(work)
    return {"us": taken / n * 1e6}


def pipelined(n: int) -> dict[str, float]:
    """Asks answered per second, all outstanding at once."""
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(echo, isolation="pool").agent
        agent.ask(0).result(TIMEOUT)

        def work() -> None:
            answers = [agent.ask(1) for _ in range(n)]
            for answer in answers:
                answer.result(TIMEOUT)

        taken = meter.seconds(work)
    return {"rate": n / taken}


def tell(n: int) -> dict[str, float]:
    """Messages per second to an agent in a worker, until it answers an ask sent after them."""
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(echo, isolation="pool").agent
        agent.ask(0).result(TIMEOUT)

        def work() -> None:
            for _ in range(n):
                agent.send(1)
            agent.ask(1).result(TIMEOUT)

        taken = meter.seconds(work)
    return {"rate": n / taken}


def spawn(n: int) -> dict[str, float]:
    """Agents created in a running worker per second, each asked once."""
    with dsh.ActorSystem(workers=1) as system:
        system.create(echo, isolation="pool").agent.ask(0).result(TIMEOUT)

        def work() -> None:
            answers = [system.create(echo, isolation="pool").agent.ask(1) for _ in range(n)]
            for answer in answers:
                answer.result(TIMEOUT)

        taken = meter.seconds(work)
    return {"rate": n / taken}


def kill(n: int) -> dict[str, float]:
    """Milliseconds from SIGKILL of a worker to its supervisor's event that it has ended."""
    ended: queue.SimpleQueue[float] = queue.SimpleQueue()

    def observe(event: Mapping[str, Any]) -> None:
        if event["type"] == "worker/ended":
            ended.put(time.perf_counter())

    samples = []
    with dsh.ActorSystem(workers=1, on_event=observe) as system:
        for _ in range(n):
            handle = system.create(echo, isolation="own")
            handle.agent.ask(0).result(TIMEOUT)
            (node,) = system.tree()
            start = time.perf_counter()
            os.kill(node.pid, signal.SIGKILL)
            samples.append(ended.get(timeout=TIMEOUT) - start)
            handle.dispose().result(TIMEOUT)
    return {"ms": statistics.median(samples) * 1e3}
