"""Calls that nobody waits for, one after the other, on a thread that comes when there are any."""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.timers import Timer
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor

LISTENER_DEADLINE = 5.0
"""Seconds that one call may take before it is left behind and the next ones go on."""

BACKLOG = 10_000
"""How many calls are kept for a listener that was left behind; what exceeds them it misses."""


class Listener:
    """One registration: the same function may be registered twice, and detached once."""

    __slots__ = ("backlog", "function", "missed")

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        # While it is left behind: what it is to be told once it has returned.
        self.backlog: deque[Any] | None = None
        self.missed = 0


class _Visit:
    """The thread that works on the queue, and what it is calling."""

    __slots__ = ("ident", "listener", "since", "timer")

    def __init__(self) -> None:
        self.ident = 0
        self.listener: Listener | None = None
        self.since: float | None = None
        self.timer: Timer | None = None


class Notifier:
    """A queue of calls with a deadline for each.

    A call that takes longer is left behind on its thread, and another thread goes on with the
    queue. What is meant for the same listener meanwhile waits for its return, so that it hears
    everything in order and nobody waits for it twice.

    Parameters:
        name: names its threads.
    """

    def __init__(self, core: Core, supervisor: Supervisor, name: str) -> None:
        self._core = core
        self._supervisor = supervisor
        self._name = name
        # Guarded by the lock of the tree.
        self._queue: deque[tuple[Listener | None, Any]] = deque()
        self._visit: _Visit | None = None

    def tell(self, listener: Listener, what: Any) -> None:
        """Call a listener, after all that was asked for before."""
        self._put(listener, what)

    def do(self, call: Callable[[], None]) -> None:
        """Call a function, after all that was asked for before."""
        self._put(None, call)

    def after_those(self, call: Callable[[], None]) -> bool:
        """Call once everything that is queued has been told; False if nothing is queued."""
        with self._core.lock:
            if self._visit is None:
                return False
            self._queue.append((None, call))
        return True

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that works on the queue."""
        visit = self._visit
        return visit is not None and visit.ident == get_ident()

    def _put(self, listener: Listener | None, what: Any) -> None:
        with self._core.lock:
            self._queue.append((listener, what))
            if self._visit is not None:
                return
            visit = self._visit = _Visit()
        self._begin(visit)

    def _begin(self, visit: _Visit) -> None:
        self._core.runtime.in_background(self._name, lambda: self._work(visit))

    def _work(self, visit: _Visit) -> None:
        visit.ident = get_ident()
        self._watch(visit, LISTENER_DEADLINE)
        try:
            while (due := self._next(visit)) is not None:
                listener, what = due
                self._call(listener, what)
                with self._core.lock:
                    visit.since = None
                    behind = visit is not self._visit
                if behind:
                    if listener is not None:
                        self._catch_up(listener)
                    return
        finally:
            if visit.timer is not None:
                visit.timer.cancel()

    def _next(self, visit: _Visit) -> tuple[Listener | None, Any] | None:
        core = self._core
        with core.lock:
            while self._queue:
                listener, what = self._queue.popleft()
                if listener is not None and listener.backlog is not None:
                    self._keep_locked(listener, what)
                    continue
                visit.listener, visit.since = listener, core.runtime.monotonic()
                return listener, what
            self._visit = None
        return None

    def _keep_locked(self, listener: Listener, what: Any) -> None:
        if listener.backlog is not None and len(listener.backlog) < BACKLOG:
            listener.backlog.append(what)
        else:
            listener.missed += 1

    def _catch_up(self, listener: Listener) -> None:
        """It has returned at last: what came meanwhile is told on this thread."""
        while True:
            with self._core.lock:
                if not listener.backlog:
                    listener.backlog = None
                    missed, listener.missed = listener.missed, 0
                    break
                what = listener.backlog.popleft()
            self._call(listener, what)
        self._core.log.warning("a listener that was left behind has caught up", missed=missed)

    def _watch(self, visit: _Visit, seconds: float) -> None:
        visit.timer = self._supervisor.timers.after(seconds, self._look, visit)

    def _look(self, visit: _Visit) -> None:
        """One timer for a whole visit, set again as long as each call is quick enough."""
        core = self._core
        with core.lock:
            if visit is not self._visit:
                return
            since = visit.since
            left = LISTENER_DEADLINE
            if since is not None:
                left += since - core.runtime.monotonic()
            if left <= 0:
                if visit.listener is not None:
                    visit.listener.backlog = deque()
                fresh = self._visit = _Visit()
        if left > 0:
            self._watch(visit, left)
            return
        core.log.warning("a listener takes too long and is left behind", seconds=LISTENER_DEADLINE)
        self._begin(fresh)

    def _call(self, listener: Listener | None, what: Any) -> None:
        try:
            if listener is None:
                what()
            else:
                listener.function(what)
        except BaseException:  # on a thread of the library nobody else could take it
            self._core.log.exception(
                "a listener failed", about=str(what) if listener is not None else self._name
            )
