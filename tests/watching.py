"""What the tests of running systems share: waiting for events, and gates for behaviours."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATIENCE = 20.0
"""Seconds after which a test that waits for something fails. Nothing ever takes so long."""


class Watch:
    """An observer of a system (``on_event``) that tests can wait on."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self._changed:
            self.events.append(dict(event))
            self._changed.notify_all()

    def of(self, type: str, agent: str | None = None) -> list[dict[str, Any]]:
        """The events of one type so far, of one agent or of all."""
        with self._changed:
            return [
                event
                for event in self.events
                if event["type"] == type and (agent is None or event.get("agent") == agent)
            ]

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is true, looking again with each event."""
        with self._changed:
            held = self._changed.wait_for(condition, PATIENCE)
        assert held, f"never came true; events: {self.events}"
        return held

    def see(self, type: str, agent: str | None = None, count: int = 1, **fields: Any) -> Any:
        """Wait for the n-th event of this kind, and return it."""

        def found() -> list[dict[str, Any]]:
            fitting = [
                event
                for event in self.events
                if event["type"] == type
                and (agent is None or event.get("agent") == agent)
                and all(event.get(name) == value for name, value in fields.items())
            ]
            return fitting[count - 1 :]

        return self.until(found)[0]


class Gate:
    """A point in a behaviour that tells when it is reached, and holds until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Semaphore(0)
        self._open = threading.Event()

    def hold(self) -> None:
        """Called by the behaviour; ignores any cancel."""
        self._reached.release()
        assert self._open.wait(PATIENCE), "the gate was never opened"

    def reached(self) -> None:
        """Wait until a behaviour is at the gate."""
        assert self._reached.acquire(timeout=PATIENCE), "nobody came to the gate"

    def open(self) -> None:
        """Let whoever is or comes there go on."""
        self._open.set()


def in_threads(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Call a function with 0, 1, ... from so many threads at the same moment; their results."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        barrier.wait(PATIENCE)
        try:
            results[number] = function(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread hangs"
    return results
