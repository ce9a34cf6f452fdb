"""The effects of a disposal, and the natural ends that lead to one.

A stop is three phases: mark and notify (marking.py), and a wait that is no wait but a sequence of
events on the supervisor's thread (stops.py starts it, the steps below are its effects).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.agents.actor import RELEASED, START_CANCELLED
from dsh_actors.errors import TurnAborted
from dsh_actors.lifecycle.disposal import FLUSHED, HANDLE, IDLE, Disposals
from dsh_actors.supervisor.losses import Losses
from dsh_actors.supervisor.receipt import AgentEnd
from dsh_actors.workers.remote import RemoteAgent

if TYPE_CHECKING:
    from dsh_actors.errors import DshActorsError
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor


class Teardown(Losses):
    """The effects of cancels, stops and disposals. Implements ``DisposalPort``."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        super().__init__(core, supervisor)
        self.disposals = Disposals(self)

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
            self.through(node)

    def through(self, node: Node) -> None:
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

    # -- DisposalPort --------------------------------------------------------------------------

    def wake(self, node: Node) -> None:
        """Nothing sleeps on an activation here: its watchers are told by events."""

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
            self._supervisor.settlement.removed_locked(node)
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
        life = node.life
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
        self._told_and_stopped(node)
        if core.draining is not None:
            core.draining.settled(node, failures)
        if restart and spec is not None:
            self._supervisor.restart(node, spec, run)
        elif node.agent.kept or (life is not None and life.unended):
            # It was to be started again, and a stop took that back.
            self._supervisor.fail_kept(node)
        if not core.tree.accepting and not core.tree.nodes:
            self._supervisor.all_ended()
