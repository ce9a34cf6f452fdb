"""Pykka's own actor: one thread each."""

from __future__ import annotations

import time
from typing import Any

import pykka

from benchmarks import meter


class Echo(pykka.ThreadingActor):
    """Answers with what it got."""

    def on_receive(self, message: Any) -> Any:
        return message


def _stop(actors: list[pykka.ActorRef[Echo]]) -> None:
    # In reverse, since the registry is a list that is searched from its front.
    for actor in reversed(actors):
        actor.stop(block=False)
    deadline = time.monotonic() + 60
    while pykka.ActorRegistry.get_all() and time.monotonic() < deadline:
        time.sleep(0.01)


def memory(n: int) -> dict[str, float]:
    """KiB per idle actor."""
    Echo.start().stop()
    before = meter.resident()
    actors = [Echo.start() for _ in range(n)]
    used = meter.resident() - before
    _stop(actors)
    return {"kib": used / n / 1024}


def spawn(n: int) -> dict[str, float]:
    """Actors started per second."""
    actors: list[pykka.ActorRef[Echo]] = []
    taken = meter.seconds(lambda: actors.extend(Echo.start() for _ in range(n)))
    _stop(actors)
    return {"rate": n / taken}


def tell(n: int) -> dict[str, float]:
    """Tells to one actor per second: until the last is accepted, and until it is handled."""
    actor = Echo.start()

    def work() -> None:
        for _ in range(n):
            actor.tell(1)

    accepted = meter.seconds(work)
    handled = accepted + meter.seconds(lambda: actor.ask(1))
    actor.stop()
    return {"accepted": n / accepted, "handled": n / handled}


def ask(n: int) -> dict[str, float]:
    """Microseconds per ask, one at a time."""
    actor = Echo.start()
    actor.ask(0)

    def work() -> None:
        for _ in range(n):
            actor.ask(1)

    taken = meter.seconds(work)
    actor.stop()
    return {"us": taken / n * 1e6}
