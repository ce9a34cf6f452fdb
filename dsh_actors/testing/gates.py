"""Hold or delay what happens in a real system, at the named points of an agent's life.

    with Gates() as gates, ActorSystem() as system:
        handle = system.create(worker, id="child", isolation="pool")
        with gates.hold("removed", agent="child") as held:
            stop = handle.dispose()
            held.wait()  # until it has come there
            ...  # look at what must be true between two steps
        stop.result()

The points are those of :data:`dsh_actors.gates.POINTS`. What a hold keeps from going on:

- ``prepared``, ``entered``, ``announced``: the thread that creates the agent. For a child of an
  agent in a worker that is the reader of this worker's link; for a restart it is the supervisor,
  which then does nothing else either.
- ``claimed``: the turn, and nobody else.
- those of a disposal, from ``cancelled`` to ``settled``: this one disposal. It is put aside and
  goes on once released; the supervisor serves all others meanwhile.
- in a worker process: ``claimed``, as here; ``cancelled``, when the tokens of a cancel frame are
  set there, which keeps the reader of the worker from its next frame; ``handle-disposed``, when
  the stop hook has run there and the supervisor is not yet told (without such a hook there is
  nothing to wait for: it keeps the reader of the worker, and the supervisor goes on).

Enter it before the workers start: they learn where to ask when they do. What a worker asks is
decided here, in the process of the test, so that a hold or delay works the same everywhere; a
worker that dies while it is held, or outlives the test, keeps nobody waiting.
"""

from __future__ import annotations

import os
import random
import socket
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from dsh_actors import gates as points
from dsh_actors.lifecycle import disposal as machine_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from dsh_actors.lifecycle.disposal import Disposal, Disposals

__all__ = ["Gates", "Hold"]

WAIT: Final = 10.0
"""Seconds that a test waits for a point to be reached, by default."""

_AFTER: Final = {
    "cancel": "cancelled",
    "await_children": "children-awaited",
    "await_idle": "idle",
    "flush": "flushed",
    "capture_state": "captured",
    "dispose_handle": "handle-disposed",
    "remove_activation": "removed",
    "notify": "notified",
    "release_ownership": "released",
    "settle": "settled",
}
"""Which point a disposal reaches when a step of it is complete."""


class Hold:
    """Keeps agents from going on at one point, until it is released.

    Parameters:
        point: the point.
        agent: the id of the agent; None for every agent.
    """

    def __init__(self, point: str, agent: str | None) -> None:
        self.point = point
        self.agent = agent
        self._changed = threading.Condition()
        self._arrived: list[str] = []
        self._open = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def arrived(self) -> list[str]:
        """The ids of the agents that have come here so far, in order."""
        with self._changed:
            return list(self._arrived)

    def wait(self, timeout: float = WAIT, *, count: int = 1) -> str:
        """Wait until agents have come here.

        Parameters:
            timeout: at most so many seconds.
            count: how many arrivals to wait for.

        Returns:
            The id of the last one.

        Raises:
            TimeoutError: it did not happen.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._arrived) >= count, timeout):
                came = (
                    "no agent came" if self.agent is None else f"agent {self.agent!r} did not come"
                )
                raise TimeoutError(f"{came} to the point {self.point!r} in {timeout} seconds")
            return self._arrived[-1]

    def release(self) -> None:
        """Let go whoever is here, and whoever comes later. Harmless when repeated."""
        with self._changed:
            self._open = True
            due, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in due:
            callback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<Hold of {self.agent or 'all'} at {self.point}, arrived: {self.arrived}>"

    # -- the side of the plan ----------------------------------------------------------------------

    def _concerns(self, point: str, agent: str) -> bool:
        return self.point == point and (self.agent is None or self.agent == agent)

    def _arrive(self, agent: str) -> bool:
        with self._changed:
            self._arrived.append(agent)
            self._changed.notify_all()
            return self._open

    def _wait_open(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open)

    def _when_open(self, callback: Callable[[], None]) -> None:
        with self._changed:
            if not self._open:
                self._callbacks.append(callback)
                return
        callback()


class Gates:
    """Decides what happens at the points of this process and of the workers that it starts.

    A context manager; there is at most one at a time in a process. Its end releases everything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds: list[Hold] = []
        self._delays: list[tuple[str, str | None, float]] = []
        self._jitter: tuple[int, float] | None = None
        self._visits: dict[tuple[str, str], int] = {}
        self._server: _Server | None = None
        self._steps: tuple[Any, ...] = ()

    def hold(self, point: str, *, agent: str | None = None) -> Hold:
        """Hold whoever comes to a point; by default every agent.

        Raises:
            ValueError: there is no such point.
        """
        _check(point)
        hold = Hold(point, agent)
        with self._lock:
            self._holds.append(hold)
        return hold

    def delay(self, point: str, seconds: float, *, agent: str | None = None) -> None:
        """Delay whoever comes to a point by so many seconds, to widen a window.

        Raises:
            ValueError: there is no such point.
        """
        _check(point)
        with self._lock:
            self._delays.append((point, agent, seconds))

    def jitter(self, seed: int, *, most: float = 0.002) -> None:
        """Delay at every point, by anything from nothing to ``most`` seconds.

        How long is determined by the seed, the point, the agent and the number of its visit
        there, in whatever order the threads come.
        """
        with self._lock:
            self._jitter = (seed, most)

    def visits(self, point: str, agent: str) -> int:
        """How often an agent has come to a point."""
        with self._lock:
            return self._visits.get((point, agent), 0)

    # -- Plan --------------------------------------------------------------------------------------

    def reach(self, point: str, agent: str) -> None:
        """See :class:`dsh_actors.gates.Plan`."""
        holds, seconds = self._arrive(point, agent)
        if seconds:
            time.sleep(seconds)
        for hold in holds:
            hold._wait_open()

    def address(self) -> str:
        """See :class:`dsh_actors.gates.Plan`."""
        with self._lock:
            if self._server is None:
                self._server = _Server(self)
            return self._server.path

    def _arrive(self, point: str, agent: str) -> tuple[list[Hold], float]:
        """Note a visit; returns the holds that are closed to it, and its delay in seconds."""
        with self._lock:
            number = self._visits[point, agent] = self._visits.get((point, agent), 0) + 1
            holds = [hold for hold in self._holds if hold._concerns(point, agent)]
            seconds = sum(
                delay
                for where, whom, delay in self._delays
                if where == point and whom in (None, agent)
            )
            if self._jitter is not None:
                seed, most = self._jitter
                seconds += random.Random(f"{seed} {point} {agent} {number}").uniform(0, most)
        return [hold for hold in holds if not hold._arrive(agent)], seconds

    # -- install -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if points.plan is not None:
            raise RuntimeError("gates are set already; there can be only one Gates at a time")
        self._steps = machine_module.STEPS
        gate = _DisposalGate(self)
        _set_steps(gate.around(self._steps))
        points.plan = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        points.plan = None
        _set_steps(self._steps)
        with self._lock:
            holds, server = list(self._holds), self._server
            self._delays.clear()
            self._jitter = None
        for hold in holds:
            hold.release()
        if server is not None:
            server.close()


def _check(point: str) -> None:
    if point not in points.POINTS:
        raise ValueError(f"there is no point {point!r}; the points are {', '.join(points.POINTS)}")


def _set_steps(steps: tuple[Any, ...]) -> None:
    module: Any = machine_module
    module.STEPS = steps


class _DisposalGate:
    """Puts a disposal aside at a point, without keeping the supervisor's thread.

    A point is reached when the next step is due. Everything here runs on the thread that drives
    the machine.
    """

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._aside: dict[Disposal, _Aside] = {}

    def around(self, steps: tuple[Any, ...]) -> tuple[Any, ...]:
        """The steps, each with the point that the one before it leads to."""
        wrapped = []
        before: str | None = None
        for step in steps:
            last = step is steps[-1]
            after = _AFTER.get(step.__name__)
            wrapped.append(self._step(step, before, after if last else None))
            before = after
        return tuple(wrapped)

    def _step(self, step: Any, before: str | None, after: str | None) -> Any:
        def gated(machine: Disposals, disposal: Disposal) -> bool:
            if before is not None and not self._passes(machine, disposal, before):
                disposal.step -= 1  # to be done when it goes on
                return False
            done: bool = step(machine, disposal)
            return done and (after is None or self._passes(machine, disposal, after))

        gated.__name__ = step.__name__
        return gated

    def _passes(self, machine: Disposals, disposal: Disposal, point: str) -> bool:
        aside = self._aside.get(disposal)
        if aside is not None and aside.point == point:
            if aside.waiting:
                return False
            del self._aside[disposal]
            return True
        holds, seconds = self._gates._arrive(point, disposal.node.id)
        if not holds and not seconds:
            return True
        supervisor = _supervisor(machine)
        aside = self._aside[disposal] = _Aside(point, len(holds) + bool(seconds))

        def opened() -> None:
            supervisor.post(self._opened, machine, disposal, aside)

        for hold in holds:
            hold._when_open(opened)
        if seconds:
            supervisor.timers.after(seconds, opened)
        return False

    def _opened(self, machine: Disposals, disposal: Disposal, aside: _Aside) -> None:
        aside.waiting -= 1
        if not aside.waiting:
            machine._ready.append(disposal)
            machine._run()
            if self._aside.get(disposal) is aside:  # it was at its very last point
                del self._aside[disposal]


class _Aside:
    """A disposal that was put aside: where, and for how many it still waits."""

    __slots__ = ("point", "waiting")

    def __init__(self, point: str, waiting: int) -> None:
        self.point = point
        self.waiting = waiting


def _supervisor(machine: Disposals) -> Any:
    port: Any = machine.port
    return port._supervisor


class _Server:
    """Answers the points of worker processes, each connection on a thread of its own."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._folder = tempfile.mkdtemp(prefix="dsh-gates-")
        self.path = os.path.join(self._folder, "s")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(64)
        self._closing = False
        self._answering: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, name="dsh-gates", daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if self._closing:
                connection.close()
                return
            thread = threading.Thread(
                target=self._answer, args=(connection,), name="dsh-gates", daemon=True
            )
            self._answering = [each for each in self._answering if each.is_alive()]
            self._answering.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            point, agent = _received(connection).split("\n", 2)[:2]
            self._gates.reach(point, agent)
            try:
                connection.sendall(b"g")
            except OSError:
                return  # the worker has died meanwhile

    def close(self) -> None:
        """End it; everything that is held was released before."""
        self._closing = True
        with socket.socket(socket.AF_UNIX) as ending:
            ending.connect(self.path)
        self._accepting.join()
        for thread in self._answering:
            thread.join()
        self._socket.close()
        os.unlink(self.path)
        os.rmdir(self._folder)


def _received(connection: socket.socket) -> str:
    """What the other side has sent, up to its end of stream."""
    parts = []
    while part := connection.recv(4096):
        parts.append(part)
    return b"".join(parts).decode()
