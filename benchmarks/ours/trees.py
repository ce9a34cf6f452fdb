"""Stopping trees of idle inline agents."""

from __future__ import annotations

import gc
import time

import dsh_actors as dsh
from benchmarks import meter
from dsh_actors.config import AgentSpec, TreeSpec

ECHO = "benchmarks.behaviours:echo"
TIMEOUT = 120.0


def _branch(id: str, depth: int, fan_out: int) -> AgentSpec:
    children = tuple(
        _branch(f"{id}.{n}", depth - 1, fan_out) for n in range(fan_out if depth else 0)
    )
    return AgentSpec(id=id, behaviour=ECHO, children=children)


def _stop(depth: int, fan_out: int) -> dict[str, float]:
    meter.relax_collector()
    spec = TreeSpec(name="tree", agents=(_branch("root", depth, fan_out),))
    with dsh.ActorSystem() as system:
        (root,) = system.start_tree(spec)
        root.agent.ask(0).result(TIMEOUT)
        gc.collect()
        start = time.perf_counter()
        stopped = root.dispose()
        marked = time.perf_counter() - start
        receipt = stopped.result(TIMEOUT)
        disposed = time.perf_counter() - start
        assert len(receipt.agents) == sum(fan_out**level for level in range(depth + 1))
    return {"marked_ms": marked * 1e3, "disposed_ms": disposed * 1e3}


def tree(n: int) -> dict[str, float]:
    """Stop a tree of depth *n* and fan-out 10: the call returns, the receipt is there."""
    return _stop(n, 10)


def flat(n: int) -> dict[str, float]:
    """Stop one agent with *n* children."""
    return _stop(1, n)
