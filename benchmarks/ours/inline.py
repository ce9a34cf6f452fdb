"""Agents in the process of their system, and the pooled actor below them."""

from __future__ import annotations

from typing import Any

import dsh_actors as dsh
from benchmarks import meter
from benchmarks.behaviours import echo
from dsh_actors.actors import PooledActor

TIMEOUT = 120.0


def memory(n: int) -> dict[str, float]:
    """KiB per idle agent: mailbox, inbox, signal, node in the tree, and the caller's handle."""
    with dsh.ActorSystem() as system:
        system.create(echo).agent.ask(0).result(TIMEOUT)  # threads and modules that all share
        before = meter.resident()
        handles = [system.create(echo) for _ in range(n)]
        used = meter.resident() - before
        del handles
    return {"kib": used / n / 1024}


def spawn(n: int) -> dict[str, float]:
    """Agents created per second."""
    with dsh.ActorSystem() as system:
        system.create(echo).agent.ask(0).result(TIMEOUT)
        handles: list[dsh.AgentHandle] = []
        taken = meter.seconds(lambda: handles.extend(system.create(echo) for _ in range(n)))
    return {"rate": n / taken}


def live(n: int) -> dict[str, float]:
    """Microseconds per creation of *n* agents that are alive together."""
    meter.relax_collector()
    with dsh.ActorSystem() as system:
        system.create(echo).agent.ask(0).result(TIMEOUT)
        handles: list[dsh.AgentHandle] = []
        taken = meter.seconds(lambda: handles.extend(system.create(echo) for _ in range(n)))
        assert handles[-1].agent.ask("alive").result(TIMEOUT) == "alive"
    return {"us": taken / n * 1e6}


class Sink(PooledActor):
    """Answers with what it got, as the actor of the peer does."""

    def on_receive(self, message: Any) -> Any:
        return message


def tell(n: int) -> dict[str, float]:
    """Tells to one pooled actor per second, until the last is handled."""
    actor = Sink.start()
    actor.ask(0)

    def work() -> None:
        for _ in range(n):
            actor.tell(1)
        actor.ask(1)

    taken = meter.seconds(work)
    actor.stop()
    return {"handled": n / taken}


def send(n: int) -> dict[str, float]:
    """Messages to one agent per second: until the last is accepted, and until its turn ended."""
    with dsh.ActorSystem() as system:
        agent = system.create(echo).agent
        agent.ask(0).result(TIMEOUT)

        def work() -> None:
            for _ in range(n):
                agent.send(1)

        accepted = meter.seconds(work)
        handled = accepted + meter.seconds(lambda: agent.ask(1).result(TIMEOUT))
    return {"accepted": n / accepted, "handled": n / handled}


def ask(n: int) -> dict[str, float]:
    """Microseconds per ask of an agent, one at a time."""
    with dsh.ActorSystem() as system:
        agent = system.create(echo).agent
        agent.ask(0).result(TIMEOUT)

        def work() -> None:
            for _ in range(n):
                agent.ask(1).result()  # without a time-out, as the peer asks

        taken = meter.seconds(work)
    return {"us": taken / n * 1e6}
