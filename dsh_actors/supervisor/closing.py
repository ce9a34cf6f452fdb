"""How a system ends: its agents, then its workers and threads, and what is left is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.agents.handle import AgentHandle
from dsh_actors.agents.waiting import Awaited
from dsh_actors.errors import SystemClosed
from dsh_actors.supervisor.receipt import Receipt

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from dsh_actors.actors.dispatcher import Dispatcher
    from dsh_actors.actors.future import Future
    from dsh_actors.agents.handle import Agent
    from dsh_actors.agents.initiator import InitiatorRegistry
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.stops import Stop
    from dsh_actors.supervisor.supervisor import Supervisor

CLOSE_MARGIN = 5.0
"""Seconds that the end of a system may take beyond the grace period of its agents."""


class Closing:
    """The part of :class:`dsh_actors.ActorSystem` that drains it and shuts it down."""

    _core: Core
    _supervisor: Supervisor
    _dispatcher: Dispatcher
    _lock: threading.Lock
    _shutdown: Future[Receipt] | None
    _stop: Stop | None
    _agents_ended: bool
    _closing: bool
    _check_fork: Callable[[], None]

    if TYPE_CHECKING:

        @property
        def id(self) -> str:
            """The id of the system."""

        @property
        def initiators(self) -> InitiatorRegistry:
            """On whose behalf code runs."""

    def shutdown(self, grace: float | None = None, *, cause: Cause = "user") -> Future[Receipt]:
        """End the system: refuse what is new, stop every agent, end every worker.

        May be called at any time and from any thread, also from a behaviour or a callback (which
        then must not wait for it). All callers share one outcome.

        Parameters:
            grace: seconds before force; None takes the system's ``stop_grace``.
            cause: what the agents are told.

        Returns:
            A future of the receipt of everything that this system ever ran.
        """
        self._check_fork()
        initiators = self.initiators
        initiators.close()
        initiators.leave()  # whoever ends the system may well wait for its end
        with self._lock:
            if self._shutdown is not None:
                return self._shutdown
            self._shutdown = Awaited()
        self._supervisor.pool.refuse()
        stop = self._supervisor.teardown.stop_all(cause, grace)
        with self._core.lock:
            preparing = list(self._core.preparing)
        for preparation in preparing:
            preparation.abort(SystemClosed("the system is stopping; a creation was rolled back"))
        with self._lock:
            self._stop = stop
            ended = self._agents_ended
        if ended:
            self._begin_close()
        else:
            # Done without all of them having ended only if some survive the grace period.
            stop.future.add_done_callback(lambda _: self._begin_close())
            if not stop.order:
                self._supervisor.post(self._all_ended)
        return self._shutdown

    def drain(self, grace: float | None = None, *, cause: Cause = "disposed") -> Future[Receipt]:
        """End every agent, for good: refuse what is new, then dispose the roots, child-first.

        What had been admitted before is awaited, and ends like the rest. The system itself
        stays: it still shows its :meth:`tree` and its :meth:`receipt`, and :meth:`shutdown` ends
        its workers. All callers share one outcome.

        Parameters:
            grace: seconds before force; None takes the system's ``stop_grace``.
            cause: what the agents are told.

        Returns:
            A future of the receipt. Its error is an ``ExceptionGroup`` of all that failed on the
            way, such as stop hooks, once every agent has ended.
        """
        self._check_fork()
        self._supervisor.pool.refuse()
        return self._supervisor.drains.drain_all(cause, grace)

    def drain_descendants(
        self,
        agents: Iterable[Agent | AgentHandle],
        grace: float | None = None,
        *,
        cause: Cause = "disposed",
    ) -> Future[Receipt]:
        """End all that is below some agents, and let nothing begin there any more.

        The agents themselves live on, as does everything that is not below them. The cut-off
        lasts as long as each of them lives; a later agent with the same id is not concerned.

        Parameters:
            agents: exactly these live agents. Those that have ended are ignored; one that was
                started again after a crash is another one, see :meth:`agent`.
            grace: seconds before force; None takes the system's ``stop_grace``.
            cause: what the agents are told.

        Returns:
            A future as that of :meth:`drain`.
        """
        self._check_fork()
        return self._supervisor.drains.drain_below(
            [
                each._target
                for each in (one.agent if isinstance(one, AgentHandle) else one for one in agents)
                if each._post is self._supervisor  # those of other systems do not live here
            ],
            cause,
            grace,
        )

    def _all_ended(self) -> None:
        """The last agent of a closed system has ended; its mark may be just returning."""
        with self._lock:
            self._agents_ended = True
            marked = self._stop is not None
        if marked:
            self._begin_close()

    def _begin_close(self) -> None:
        with self._lock:
            if self._closing:
                return
            self._closing = True
        # Not before the last listener was told, or left behind.
        if not self._supervisor.listeners.after_those(self._close_soon):
            self._close_soon()

    def _close_soon(self) -> None:
        self._core.runtime.in_background(f"dsh-{self.id}-closer", self._close)

    def _close(self) -> None:
        """The last of a system, on a thread of its own: nothing here is needed by an agent."""
        supervisor, core, stop = self._supervisor, self._core, self._stop
        assert self._shutdown is not None
        assert stop is not None
        if stop.timer is not None:
            stop.timer.cancel()
        survivors = supervisor.teardown.survivors(stop.order)
        try:
            self._await_runs(0.0 if survivors else CLOSE_MARGIN)
            for worker in list(supervisor.pool.workers.values()):
                supervisor.pool.end(worker, "the system has ended", force=bool(survivors))
            supervisor.pool.join(CLOSE_MARGIN)
            if survivors or supervisor.pool.alive:
                survivors = supervisor.teardown.survivors(stop.order)
            supervisor.timers.close(1.0)
            supervisor.host.close(0.0 if survivors else 1.0)
            if core.journal is not None:
                core.journal.store.flush(core.settings.flush_deadline)
            self._dispatcher.shutdown(0.0 if survivors else CLOSE_MARGIN)
            supervisor.teardown.give_up_all()
        except Exception:
            core.log.exception("the system did not end in order")
        finally:
            self._shutdown.try_set_result(
                Receipt(tuple(core.ended), tuple(supervisor.pool.ended), tuple(survivors))
            )

    def _await_runs(self, timeout: float) -> None:
        initiators = self.initiators
        try:
            initiators.dispose().result(timeout)
        except TimeoutError:
            self._core.log.warning(
                "code that acts for agents has not ended; going on", runs=initiators.active
            )

    def kill_now(self) -> None:
        """SIGKILL every worker and all that they started, without waiting for anything else.

        The last resort of a second Ctrl-C: nothing is recorded and no hook runs.
        """
        self._check_fork()
        self._supervisor.pool.refuse()
        self._supervisor.pool.kill_now()
