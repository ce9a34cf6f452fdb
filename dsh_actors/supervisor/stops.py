"""Stops: from the mark to the receipt, with escalation by deadline."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dsh_actors.agents.waiting import Awaited
from dsh_actors.lifecycle.causes import EMITTED
from dsh_actors.lifecycle.disposal import HANDLE
from dsh_actors.supervisor.marking import Marked, Marking
from dsh_actors.supervisor.receipt import AgentEnd, Receipt, Survivor
from dsh_actors.workers.remote import RemoteAgent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh_actors.actors.future import Future
    from dsh_actors.actors.timers import Timer
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node

KILL_MARGIN = 1.5
"""Seconds from the kill of a worker to the report of whoever has not ended even so."""


class Stop:
    """One stop under way: its snapshot, and the future of its receipt."""

    __slots__ = ("future", "order", "root", "timer")

    def __init__(self, root: Node | None) -> None:
        self.root = root
        self.order: list[Node] = []
        self.future: Future[Receipt] = Awaited()
        self.timer: Timer | None = None

    def settle(self, receipt: Receipt) -> None:
        """Settle its future, unless that is done."""
        self.future.try_set_result(receipt)


class Stops(Marking):
    """Stops subtrees, and tells the truth about what has not stopped."""

    # -- stop ----------------------------------------------------------------------------------

    def stop(
        self, node: Node, cause: Cause, grace: float | None = None, *, lost: bool = False
    ) -> Future[Receipt]:
        """Stop a subtree: one teardown for all callers, at whatever time they come.

        Parameters:
            node: its root.
            cause: what the agents are told.
            grace: seconds before force; None takes the system's.
            lost: nobody asked for it: its process has ended, and it may be started again.
        """
        told = None
        if not lost and cause in EMITTED:
            told = self._announce_cancel(node.latest, cause, keep_inbox=False)
        with self._core.lock:
            stop, marked = self._stop_locked(node, cause, lost)
        if marked is not None:
            self._stop_marked(stop, marked, cause, grace, told)
        return stop.future

    def stop_several(self, nodes: list[Node], cause: Cause) -> list[Future[Receipt]]:
        """Stop several subtrees: all are marked in one section, before anybody is notified."""
        with self._core.lock:
            stops = [self._stop_locked(node, cause, lost=False) for node in nodes]
        for stop, marked in stops:
            if marked is not None:
                self._stop_marked(stop, marked, cause, None, None)
        return [stop.future for stop, _ in stops]

    def _stop_locked(self, node: Node, cause: Cause, lost: bool) -> tuple[Stop, Marked | None]:
        """Join the stop of a subtree, or mark it; what is marked is still to be notified."""
        core = self._core
        if not lost:
            if node.successor is not None:
                node = node.latest
            node.restarting = False  # a stop that is asked for is the end of it
            if node.life is not None:
                node.life.tombstone = cause
        stop = self._stops.get(node.generation)
        if stop is not None:
            return stop, None
        stop = Stop(node)
        if node.disposal is not None and node.disposal.done:
            for ownership in reversed(core.owned.pop(node.generation, ())):
                ownership.untrack_locked(node)  # that its next life was to take over
            stop.order = [node]
            stop.future.set_result(self.receipt(stop, []))
            return stop, None
        self._stops[node.generation] = stop
        stop.order = core.tree.mark([node], cause)
        return stop, self.cut_locked(stop.order, cause, keep_inbox=False)

    def _stop_marked(
        self, stop: Stop, marked: Marked, cause: Cause, grace: float | None, told: Node | None
    ) -> None:
        assert stop.root is not None
        try:
            self.notify(marked, cause, told)
        finally:  # what is marked must be disposed, whatever a listener does
            self._set_deadline(stop, grace)
            self._supervisor.post(self._begin, stop.root)

    def stop_all(self, cause: Cause, grace: float | None) -> Stop:
        """Stop everything, for good: the only mark that closes the whole tree."""
        core = self._core
        with core.lock:
            core.tree.close_admission()
            roots = list(core.tree.roots.values())
            stop = Stop(None)
            stop.order = core.tree.mark(roots, cause)
            marked = self.cut_locked(stop.order, cause, keep_inbox=False)
        self.notify(marked, cause)
        self._set_deadline(stop, grace)
        self._supervisor.post(self._begin_all, roots)
        return stop

    def _begin_all(self, roots: list[Node]) -> None:
        for root in roots:
            self.disposals.begin(root)

    def _set_deadline(self, stop: Stop, grace: float | None) -> None:
        seconds = self._core.settings.stop_grace if grace is None else grace
        stop.timer = self._supervisor.timers.after(
            seconds, self._supervisor.post, self.escalate, stop
        )

    def _begin(self, root: Node) -> None:
        if self.disposals.begin(root).done:
            self._told_and_stopped(root)

    def _told_and_stopped(self, node: Node) -> None:
        """Its stop is over once the last listener was told, or left behind."""
        listeners = self._supervisor.listeners
        if not (listeners.active and listeners.after_those(lambda: self._stopped(node))):
            self._stopped(node)

    def escalate(self, stop: Stop) -> None:
        """The grace period is over: end the workers of whoever has not ended, by force."""
        with self._core.lock:
            late = [node for node in stop.order if not is_released(node)]
            workers = {
                node.agent.worker: node
                for node in late
                if isinstance(node.agent, RemoteAgent) and not node.agent.lost
                and (not node.agent.is_quiet() or waits_for_handle(node))
            }  # fmt: skip
        for worker, node in workers.items():
            self._core.log.warning(
                "ending a worker whose agent did not stop in time", agent=node.id, pid=worker.pid
            )
            self._supervisor.pool.end(worker, f"agent {node.id} did not stop in time", force=True)
        if late:
            stop.timer = self._supervisor.timers.after(
                KILL_MARGIN if workers else 0.0, self._supervisor.post, self._give_up, stop
            )

    def _give_up(self, stop: Stop) -> None:
        """Name the survivors: whoever waits for the stop must learn that it is not true.

        A large tree whose agents are all quiet is only not through yet: its flushes have their
        own deadlines, and nothing of it survives.
        """
        if stop.future.done():
            return
        with self._core.lock:
            late = [node for node in stop.order if not is_released(node)]
            stuck = any(not self.is_quiet_locked(node) or waits_for_handle(node) for node in late)
        if stuck:
            stop.settle(self.receipt(stop, self.survivors(stop.order)))
        elif late:
            stop.timer = self._supervisor.timers.after(
                KILL_MARGIN, self._supervisor.post, self._give_up, stop
            )

    def give_up_all(self) -> None:
        """The system has ended, whatever did: nobody waits for ever for a part of it."""
        with self._core.lock:
            stops = list(self._stops.values())
            self._stops.clear()
        for stop in (*stops, *self._supervisor.drains.under_way()):
            stop.settle(self.receipt(stop, self.survivors(stop.order)))

    def survivors(self, order: Sequence[Node]) -> list[Survivor]:
        """Whoever of a snapshot has not ended, with the stack of what it runs."""
        core = self._core
        with core.lock:
            late = [node for node in order if not is_released(node)]
            frames = sys._current_frames()
            found = [
                Survivor(
                    node.id,
                    node.agent.pid,
                    "is being announced to a listener"
                    if node.generation in core.publishing
                    else _stack(node, frames),
                )
                for node in late
            ]
        found.extend(
            Survivor(name, pid, "a process that could not be ended")
            for name, pid in list(self._supervisor.pool.alive)
        )
        return found

    def receipt(self, stop: Stop, survivors: list[Survivor]) -> Receipt:
        """The receipt of one stop: the agents of its snapshot, the processes ended for them."""
        ended = tuple(
            AgentEnd(node.id, node.outcome or "completed", node.agent.pid, node.detail)
            for node in stop.order
            if is_released(node)
        )
        pids = {end.pid for end in ended} - {self._core.pid}
        processes = tuple(p for p in list(self._supervisor.pool.ended) if p.pid in pids)
        return Receipt(ended, processes, tuple(survivors))

    def _stopped(self, node: Node) -> None:
        with self._core.lock:
            stop = self._stops.pop(node.generation, None)
        if stop is not None:
            if stop.timer is not None:
                stop.timer.cancel()
            stop.settle(self.receipt(stop, []))


def is_released(node: Node) -> bool:
    """Whether an agent is completely gone."""
    return node.disposal is not None and node.disposal.done


def waits_for_handle(node: Node) -> bool:
    """Whether its disposal waits for its stop hook, its scope or its process."""
    return node.disposal is not None and node.disposal.waiting == HANDLE


def _stack(node: Node, frames: dict[int, Any]) -> str:
    """The stack of a running inline turn; for who waits, what it waits for."""
    agent = node.agent
    if isinstance(agent, RemoteAgent):
        return f"in worker {agent.pid}"
    turn = agent.running
    if turn is None:
        below = [child.id for child in (node.children or {}).values()]
        return f"waits for {', '.join(below[:5])}" if below else "is being released"
    thread = turn._thread
    if turn._task is not None:
        import asyncio
        import io

        loop = agent.host.loop
        if asyncio.current_task(loop.loop) is not turn._task:
            text = io.StringIO()
            turn._task.print_stack(file=text)
            return text.getvalue()
        thread = loop.ident  # it does not await but blocks: where, only its thread knows
    frame = frames.get(thread)
    if frame is None:
        return ""
    import traceback

    return "".join(traceback.format_stack(frame))
