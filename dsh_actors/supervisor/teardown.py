"""Marking, the effects of a disposal, and escalation by deadline.

A stop is three phases. *Mark*: under the lock, top-down over a frozen snapshot, every token is
set and every cancel frame queued. *Notify*: callbacks and observers, once all are marked.
*Wait*: by events, on the supervisor's thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dsh_actors.agents.actor import RELEASED, START_CANCELLED
from dsh_actors.agents.waiting import Awaited
from dsh_actors.errors import AgentLost, TurnAborted
from dsh_actors.lifecycle.causes import EMITTED
from dsh_actors.lifecycle.disposal import FLUSHED, HANDLE, IDLE, Disposals
from dsh_actors.lifecycle.supervision import Intensity, wants_restart
from dsh_actors.supervisor.receipt import AgentEnd, Receipt, Survivor
from dsh_actors.workers.remote import RemoteAgent, cancel_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh_actors.actors.future import Future
    from dsh_actors.actors.timers import Timer
    from dsh_actors.agents.message import Message
    from dsh_actors.errors import DshActorsError
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor
    from dsh_actors.workers.worker import Worker

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


class Marked:
    """What a mark phase leaves to do for the notify phase."""

    __slots__ = ("callbacks", "cancelled", "dropped", "held", "workers")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.dropped: list[tuple[Node, list[Message]]] = []
        # What came for agents that are not published: never accepted, so not on the record.
        self.held: list[tuple[Node, list[Message]]] = []
        self.cancelled: list[Node] = []
        self.workers: dict[Worker, list[int]] = {}


class Teardown:
    """The effects of cancels, stops and disposals. Implements ``DisposalPort``."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self.disposals = Disposals(self)
        # By generation of the root. Guarded by the lock.
        self._stops: dict[int, Stop] = {}

    # -- mark and notify -----------------------------------------------------------------------

    def cut_locked(self, order: Sequence[Node], cause: Cause, keep_inbox: bool) -> Marked:
        """Set the token of every node of a marked snapshot, in its order."""
        marked = Marked()
        uncommitted, publishing = self._core.uncommitted, self._core.publishing
        for node in order:
            agent = node.agent
            dropped: list[Message] = []
            effective = False
            if uncommitted and not keep_inbox:
                dropped = uncommitted.pop(node.generation, [])
            if publishing and not keep_inbox and publishing.get(node.generation):
                marked.held.append((node, publishing[node.generation]))
                publishing[node.generation] = []
                effective = True
            if agent.busy:
                if isinstance(agent, RemoteAgent):
                    agent.epoch += 1
                    marked.workers.setdefault(agent.worker, []).append(agent.key)
                    effective = True
                else:
                    running = agent.running
                    effective |= running is not None and running.signal.cause is None
                    cleared, due = agent.cut(cause, keep_inbox)
                    dropped.extend(cleared)
                    marked.callbacks.extend(due)
            if dropped:
                marked.dropped.append((node, dropped))
            if effective or dropped:
                marked.cancelled.append(node)
        for worker, keys in marked.workers.items():
            worker.queue(cancel_frame(keys, cause, keep_inbox))
        return marked

    def notify(self, marked: Marked, cause: Cause, told: Node | None = None) -> None:
        """After the mark phase, without the lock: frames go out first, then whoever listens.

        Parameters:
            marked: what the mark phase has left to do.
            cause: of the cancel.
            told: the agent whose ``cancel_requested`` was announced before the mark.
        """
        for worker in marked.workers:
            worker.flush()
        for callback in marked.callbacks:
            callback()
        for node, messages in marked.dropped:
            self.dropped(node, cause)
            self._supervisor.delivery.discarded(node, messages, cause)
            if node.one_shot and node.closing is None:
                self._supervisor.post(self.turn_over, node, 0)
        for node, messages in marked.held:
            for message in messages:
                message.refuse(
                    TurnAborted(
                        cause, f"agent {node.id!r} was cancelled before its turn (cause: {cause})"
                    )
                )
        if cause in EMITTED:
            for node in marked.cancelled:
                if node is not told:
                    self._tell_cancel(node, cause)

    def dropped(self, node: Node, cause: str) -> None:
        """Accepted work of an agent was discarded: it did not complete."""
        if node.outcome is None or node.one_shot:
            node.outcome = "aborted"
            node.detail = f"cancelled before its turn (cause: {cause})"
            if cause == "budget":
                self._supervisor.boundaries.refused(node)

    def cancel(self, node: Node) -> None:
        """Disposal step: the token is set by the mark; what slipped in since then is cut here."""
        if node.agent.busy:
            with self._core.lock:
                cause: Cause = node.closing or "disposed"
                marked = self.cut_locked([node], cause, keep_inbox=False)
            self.notify(marked, cause)

    def cancel_work(self, node: Node, *, tree: bool, keep_inbox: bool, cause: Cause) -> None:
        """Cancel without stopping: the agents live on."""
        core = self._core
        told: Node | None = node
        try:
            told = self._announce_cancel(node, cause, keep_inbox)
        finally:  # whatever a listener does, even on Ctrl-C
            with core.lock:
                marked = Marked()
                if core.tree.exact(node.id, node.generation) is node:
                    order = core.tree.mark([node], None) if tree else core.tree.mark_turn(node)
                    marked = self.cut_locked(order, cause, keep_inbox)
            self.notify(marked, cause, told)

    def _announce_cancel(self, node: Node, cause: Cause, keep_inbox: bool) -> Node | None:
        """Tell of an effective cancel while nothing is cleared or set yet (D3).

        Returns:
            The agent, if it was told of.
        """
        core = self._core
        if cause not in EMITTED or not (
            core.observer is not None or self._supervisor.listeners.active
        ):
            return None
        with core.lock:
            if not self._is_effective_locked(node, keep_inbox):
                return None
        self._tell_cancel(node, cause)
        return node

    def _is_effective_locked(self, node: Node, keep_inbox: bool) -> bool:
        core, agent = self._core, node.agent
        if core.tree.exact(node.id, node.generation) is not node:
            return False
        if not keep_inbox and (
            core.uncommitted.get(node.generation) or core.publishing.get(node.generation)
        ):
            return True
        if isinstance(agent, RemoteAgent):
            return agent.is_running if keep_inbox else agent.busy
        if agent.running is not None and agent.running.signal.cause is None:
            return True
        return not keep_inbox and agent.inbox.count > 0

    def _tell_cancel(self, node: Node, cause: Cause) -> None:
        self._core.emit("cancel_requested", agent=node.id, cause=cause)
        if self._supervisor.listeners.active:
            self._supervisor.listeners.cancel_requested(node, cause)

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
            if node.continuable is not None:
                node.continuable.tombstone = cause
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
            self._stopped(root)

    def escalate(self, stop: Stop) -> None:
        """The grace period is over: end the workers of whoever has not ended, by force."""
        with self._core.lock:
            late = [node for node in stop.order if not _released(node)]
            workers = {
                node.agent.worker: node
                for node in late
                if isinstance(node.agent, RemoteAgent) and not node.agent.lost
                and (not node.agent.is_quiet() or _waits_for_handle(node))
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
            late = [node for node in stop.order if not _released(node)]
            stuck = any(
                not self.is_quiet_locked(node) or _waits_for_handle(node) for node in late
            )
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
            late = [node for node in order if not _released(node)]
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
            if _released(node)
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

    # -- natural ends --------------------------------------------------------------------------

    def turn_over(self, node: Node, turn: int) -> None:
        """A turn has ended: its one-shots end with it, a one-shot ends by it."""
        core = self._core
        with core.lock:
            closing = node.closing is not None
            left = [
                child
                for child in (node.children or {}).values()
                if child.one_shot and child.turn <= turn and child.closing is None
            ] if turn and node.children else []  # fmt: skip
            quiet = self.is_quiet_locked(node)
            waiters = core.idle_waiters.pop(node.generation, []) if quiet else []
        for child in left:
            self.stop(child, "parent")
        for waiter in waiters:
            waiter.try_set_result(None)
        if closing:
            if quiet:
                self.disposals.event(node, IDLE)
        elif node.one_shot and quiet and node.outcome is not None:  # not before its message
            self.end_naturally(node)
        elif node.continuable is not None and quiet:
            self._supervisor.settlement.consider(node)

    def end_naturally(self, node: Node) -> None:
        """An agent that is through is disposed by itself, through the same path."""
        core = self._core
        with core.lock:
            if node.closing is not None:
                return
            order = core.tree.mark([node], "disposed")
            marked = self.cut_locked(order, "disposed", keep_inbox=False)
        self.notify(marked, "disposed")
        if len(order) > 1:
            self.stop(node, "disposed")
        else:
            self.disposals.begin(node)

    def start_failed(self, node: Node, error: tuple[str, str, str]) -> None:
        """Its behaviour was not found, or its start hook raised or was cancelled."""
        from dsh_actors.errors import AgentFailed

        if error[0] == START_CANCELLED:
            node.outcome, node.detail = "aborted", error[1]
            failure: DshActorsError = TurnAborted(
                node.closing or "user", f"agent {node.id!r} never ran: {error[1]}"
            )
        else:
            node.outcome, node.detail = "failed", f"{error[0]}: {error[1]}"
            failure = AgentFailed(*error)
        run = self._core.runs.get(node.generation)
        if run is not None:
            run.outcome = (node.outcome, None, *error)
        agent = node.agent
        with self._core.lock:
            if isinstance(agent, RemoteAgent):
                agent.started, agent.hooks = True, False
                messages = agent.take_all()
            else:
                messages = agent.inbox.clear()
                agent.state = RELEASED
            messages += self._core.uncommitted.pop(node.generation, [])
        if self._core.journal is not None:
            cause = node.closing or "disposed"
            self._core.journal.discarded(node, cause, [message.id for message in messages])
        for message in messages:
            if message.reply is not None:
                message.reply.fail(failure)
        if node.closing is None:
            self.end_naturally(node)
        else:
            self._through(node)

    def _through(self, node: Node) -> None:
        """It has nothing left to do; but as long as it is announced it stays in the map."""
        with self._core.lock:
            announced = node.generation in self._core.publishing
        if not announced:
            self.disposals.event(node, IDLE)

    def not_stored(self, node: Node, error: DshActorsError) -> None:
        """A message of an agent never came, because it could not be stored."""
        run = self._core.runs.get(node.generation)
        if run is not None and run.outcome is None:
            node.outcome, node.detail = "failed", f"StoreError: {error}"
            run.outcome = ("failed", None, "StoreError", str(error), "")
        self.turn_over(node, 0)

    def handle_released(self, node: Node, problem: str | None) -> None:
        """The stop hook has run, and the scope has ended."""
        if problem is not None:
            node.detail = problem
            if self._core.draining is not None:
                self._core.draining.handle_failed(node, problem)
            if node.outcome in (None, "completed"):
                node.outcome = "failed"
        self._handle_done(node)

    def _handle_done(self, node: Node) -> None:
        agent = node.agent
        agent.retire()
        worker = agent.worker if isinstance(agent, RemoteAgent) else None
        if worker is not None and worker.own and not agent.lost:
            self._supervisor.pool.end(
                worker, "its agent has ended", force=False,
                then=lambda: self._supervisor.post(self.disposals.event, node, HANDLE),
            )  # fmt: skip
        else:
            self.disposals.event(node, HANDLE)

    # -- the death of a worker -----------------------------------------------------------------

    def worker_gone(self, worker: Worker, how: str) -> None:
        """All agents of a dead worker are lost; nobody else is."""
        core = self._core
        with core.lock:
            seats = list(worker.seats.values())
            worker.seats.clear()
            messages = []
            for seat in seats:
                seat.lost = True
                node = seat.node
                left = seat.take_all() + core.uncommitted.pop(node.generation, [])
                messages.append((node, left))
                asked = worker.ending is not None and node.closing is not None
                run = core.runs.get(node.generation)
                through = run is not None and run.outcome is not None
                if left or node.outcome is None or not (asked or through):
                    node.outcome = "aborted" if asked else "lost"
                    node.detail = how
                    node.restarting = self._restarts_locked(node)
        for node, lost in messages:
            self._close_turn(node)
            self._keep_for_restart(node, lost, how)
        for seat in seats:
            node = seat.node
            if node.disposal is None and node.closing is None:
                self.stop(node, "disposed", lost=True)
            self._through(node)
        # Nobody is called ended, nor started again, before the process and all that it had
        # started have been confirmed gone.
        self._supervisor.pool.sweep(
            worker, then=lambda: self._supervisor.post(self._swept, [seat.node for seat in seats])
        )

    def _swept(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.agent.swept = True  # its disposal may still be to begin
            self.disposals.event(node, HANDLE)

    def _close_turn(self, node: Node) -> None:
        """Close a turn in the log that its process can close no more."""
        journal, agent = self._core.journal, node.agent
        if journal is not None and agent.turn:
            begun = list(agent.begun)
            if node.outcome == "aborted":
                journal.turn_ended(node, agent.turn, "aborted", node.closing, None, begun, [])
            else:
                journal.turn_ended(node, agent.turn, "interrupted", None, None, begun, [])
        agent.turn = 0

    def _keep_for_restart(self, node: Node, messages: list[Message], how: str) -> None:
        """Fail what was in flight; what was not begun is kept if the agent starts again."""
        begun, kept, gone = node.agent.begun, [], []
        for message in messages:
            if message.id not in begun:
                if node.restarting and not node.one_shot:
                    kept.append(message)
                    continue
                gone.append(message.id)
            if message.reply is None:
                continue
            if node.outcome == "aborted":
                text = f"agent {node.id!r} was stopped: {how}"
                message.reply.fail(TurnAborted(node.closing or "disposed", text))
            else:
                message.reply.fail(AgentLost(f"agent {node.id!r} was lost: {how}"))
        with self._core.lock:
            node.agent.kept[:0] = kept  # before what has come since then
        if gone and self._core.journal is not None:
            self._core.journal.discarded(node, node.closing or "disposed", gone)

    def _restarts_locked(self, node: Node) -> bool:
        """Whether a lost agent is to be started again. Decided once, since it counts."""
        core = self._core
        spec = core.specs.get(node.generation)
        if spec is None or node.outcome != "lost" or not wants_restart(spec.restart, "lost"):
            return False
        if node.closing is not None or not core.tree.accepting:
            return False
        if spec.intensity is None:
            spec.intensity = Intensity(core.settings.restarts, core.settings.restart_period)
        if spec.intensity.allow(core.runtime.monotonic()):
            return True
        node.detail = f"{node.detail}; it was restarted too often to be started again"
        return False

    # -- DisposalPort --------------------------------------------------------------------------

    def wake(self, node: Node) -> None:
        """Nothing sleeps on an activation here: its watchers are told by events."""

    def is_quiet_locked(self, node: Node) -> bool:
        """Whether it runs nothing, has no accepted work, and is published."""
        core = self._core
        return (
            node.agent.is_quiet()
            and node.generation not in core.uncommitted
            and node.generation not in core.publishing
        )

    def is_idle(self, node: Node) -> bool:
        """Whether it runs nothing and has no accepted work."""
        with self._core.lock:
            return self.is_quiet_locked(node)

    def flush(self, node: Node) -> bool:
        """The last event of the session, with a deadline for its commit."""
        journal = self._core.journal
        if journal is None:
            return True
        supervisor = self._supervisor
        timer = supervisor.timers.after(
            self._core.settings.flush_deadline, supervisor.post, self._flush_late, node
        )

        def committed(error: BaseException | None) -> None:
            timer.cancel()
            if error is not None:
                self._core.log.warning("the final flush failed", agent=node.id, error=str(error))
            supervisor.post(self.disposals.event, node, FLUSHED)

        journal.ended(node, committed)
        return False

    def _flush_late(self, node: Node) -> None:
        self._core.log.warning("the final flush takes too long; going on", agent=node.id)
        self.disposals.event(node, FLUSHED)

    def capture(self, node: Node) -> None:
        """What has no outcome by now has completed."""
        if node.outcome is None:
            node.outcome = "completed"

    def dispose_handle(self, node: Node) -> bool:
        """Release the agent: at once, or by the event HANDLE."""
        agent = node.agent
        if agent.lost:
            return bool(agent.swept)  # released when its process is confirmed gone
        if not agent.release():
            return False
        if isinstance(agent, RemoteAgent) and agent.worker.own:
            self._handle_done(node)
            return False
        agent.retire()
        return True

    def remove(self, node: Node) -> None:
        """Its id is free from here on."""
        with self._core.lock:
            self._core.tree.remove(node)
            if node.bounds is not None and not node.restarting:
                self._supervisor.boundaries.close_locked(node)
        if self._supervisor.listeners.active:
            self._supervisor.listeners.disposed(node)

    def notify_settlement(self, node: Node) -> None:
        """Give a one-shot's outcome to the turn that waits for it, unless it runs again."""
        if node.restarting and node.outcome == "lost":
            return
        if node.continuable is not None:
            self._supervisor.settlement.notify(node)
        run = self._core.runs.get(node.generation)
        if run is None:
            return
        outcome = run.outcome
        if outcome is None or node.outcome == "lost":
            outcome = (node.outcome or "aborted", None, None, node.detail, "")
        run.sink(outcome)

    def release(self, node: Node) -> None:
        """It leaves its parent's owned set."""
        with self._core.lock:
            self._core.tree.release(node)
        self._supervisor.settlement.released(node)

    def settle(self, node: Node, failures: list[Exception]) -> None:
        """Last: the record, the observers, the stop that waits, the restart."""
        core = self._core
        end = AgentEnd(node.id, node.outcome or "completed", node.agent.pid, node.detail)
        for failure in failures:
            core.log.error("a step of a disposal failed", agent=node.id, error=repr(failure))
        # A message that came meanwhile starts a next life; the end of this one is one all the same.
        restart = bool(node.restarting)
        if not restart or end.outcome != "lost":
            core.ended.append(end)
        if core.observer is not None:
            core.emit(
                "agent/ended", agent=node.id, outcome=end.outcome, pid=end.pid, detail=end.detail,
                restarting=restart,
            )  # fmt: skip
        life = node.continuable
        spec = life.spec if life is not None else core.specs.get(node.generation)
        run = core.runs.get(node.generation)
        with core.lock:
            core.forget_locked(node)
            if core.owned and not restart:  # a next life takes its owners over
                for ownership in reversed(core.owned.pop(node.generation, ())):
                    ownership.untrack_locked(node)
            if node.bounds is not None and not restart:  # a stop may have taken it back since
                self._supervisor.boundaries.close_locked(node)
            waiters = core.idle_waiters.pop(node.generation, [])
        for waiter in waiters:
            waiter.try_set_result(None)
        # Who waits for the stop finds all told and untracked.
        listeners = self._supervisor.listeners
        if not (listeners.active and listeners.after_those(lambda: self._stopped(node))):
            self._stopped(node)
        if core.draining is not None:
            core.draining.settled(node, failures)
        if restart and spec is not None:
            self._supervisor.restart(node, spec, run)
        elif node.agent.kept:
            # It was to be started again, and a stop took that back.
            self._supervisor.fail_kept(node)
        if not core.tree.accepting and not core.tree.nodes:
            self._supervisor.all_ended()


def _released(node: Node) -> bool:
    return node.disposal is not None and node.disposal.done


def _waits_for_handle(node: Node) -> bool:
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
