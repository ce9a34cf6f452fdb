"""The choices of a simulated run, its clock and its trace."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Source(Protocol):
    """Something that can happen next, in one or more ways."""

    def ready(self) -> int:
        """How many things of this kind can happen now."""

    def step(self, index: int) -> str:
        """Let the one with this index happen; returns what it was, for the trace."""


class Stuck(Exception):
    """Nothing can happen any more, or too much has."""


class Scheduler:
    """Chooses, step by step, what happens next.

    Parameters:
        seed: determines every choice.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.trace: list[str] = []
        self.sources: list[Source] = []
        # Called when nothing can happen but that time passes.
        self.at_rest: list[Callable[[], None]] = []
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], str | None]]] = []

    def at(self, seconds: float, call: Callable[[], str | None]) -> None:
        """Call when so many virtual seconds have passed. A call that returns None is no step."""
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), call))

    def step(self) -> bool:
        """Let one thing happen.

        Returns:
            False if nothing is left that could.
        """
        counts = [source.ready() for source in self.sources]
        total = sum(counts)
        if not total:
            for look in self.at_rest:
                look()
            return self._pass_time()
        # Now and then time passes although there is work: a deadline may come early in it.
        if self._timers and self.random.random() < 0.02 and self._pass_time():
            return True
        choice = self.random.randrange(total)
        for source, count in zip(self.sources, counts, strict=True):
            if choice < count:
                self.trace.append(source.step(choice))
                return True
            choice -= count
        raise AssertionError("unreachable")

    def _pass_time(self) -> bool:
        while self._timers:
            due, _, call = heapq.heappop(self._timers)
            self.now = max(self.now, due)
            what = call()
            if what is not None:
                self.trace.append(f"{what} (at {self.now - 1000.0:.3f} s)")
                return True
        return False


class Tasks:
    """Pieces of work that wait for their step, each with a name."""

    def __init__(self, scheduler: Scheduler, kind: str) -> None:
        self._scheduler = scheduler
        self._kind = kind
        self._waiting: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
        scheduler.sources.append(self)

    def add(self, name: str, function: Callable[..., Any], *args: Any) -> None:
        """Have something happen, at some step."""
        self._waiting.append((name, function, args))

    def ready(self) -> int:
        """See :class:`Source`."""
        return len(self._waiting)

    def step(self, index: int) -> str:
        """See :class:`Source`."""
        name, function, args = self._waiting.pop(index)
        function(*args)
        return f"{self._kind}: {name}"

    def run_all(self) -> None:
        """Do everything now, in order."""
        while self._waiting:
            _, function, args = self._waiting.pop(0)
            function(*args)
