"""The death of a worker: what becomes of its agents, and who is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.errors import AgentLost, TurnAborted
from dsh_actors.lifecycle.disposal import HANDLE
from dsh_actors.lifecycle.supervision import Intensity, wants_restart
from dsh_actors.supervisor.stops import Stops

if TYPE_CHECKING:
    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.workers.worker import Worker


class Losses(Stops):
    """Ends the agents of dead workers."""

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
                unsure = core.uncommitted.pop(node.generation, [])
                left = seat.take_all() + unsure + self._held_back_locked(node)
                messages.append((node, left, unsure))
                asked = worker.ending is not None and node.closing is not None
                run = core.runs.get(node.generation)
                through = run is not None and run.outcome is not None
                if left or node.outcome is None or not (asked or through):
                    node.outcome = "aborted" if asked else "lost"
                    node.detail = how
                    node.restarting = self._restarts_locked(node)
        for node, lost, unsure in messages:
            begun = self._close_turn(node)
            self._keep_for_restart(node, lost, unsure, begun, how)
        for seat in seats:
            node = seat.node
            if node.disposal is None and node.closing is None:
                self.stop(node, "disposed", lost=True)
            self._supervisor.teardown.through(node)
        # Nobody is called ended, nor started again, before the process and all that it had
        # started have been confirmed gone.
        self._supervisor.pool.sweep(
            worker, then=lambda: self._supervisor.post(self._swept, [seat.node for seat in seats])
        )

    def _held_back_locked(self, node: Node) -> list[Message]:
        """What a resumed agent had accepted in an earlier system, and was not given yet."""
        held = self._core.publishing.get(node.generation)
        if not held or node.life is None or node.life.logged is None:
            return []
        taken = [message for message in held if node.life.taken_over(message.id) is not None]
        self._core.publishing[node.generation] = [m for m in held if m not in taken]
        return taken

    def _swept(self, nodes: list[Node]) -> None:
        for node in nodes:
            node.agent.swept = True  # its disposal may still be to begin
            self.disposals.event(node, HANDLE)

    def _close_turn(self, node: Node) -> list[int]:
        """Close a turn in the log that its process can close no more; the messages it had begun."""
        journal, agent = self._core.journal, node.agent
        begun = list(agent.begun)
        if journal is not None:
            journal.cut_off(node)
            if node.life is not None:
                self._supervisor.turns.calls.cut_off(node)
        if agent.turn:
            if journal is not None:
                aborted = node.outcome == "aborted"
                journal.turn_ended(
                    node, agent.turn, "aborted" if aborted else "interrupted",
                    node.closing if aborted else None, None, begun, [],
                )  # fmt: skip
            if node.life is not None:
                node.life.turns = max(node.life.turns, agent.turn)
        agent.turn = 0
        return begun

    def _keep_for_restart(
        self, node: Node, messages: list[Message], unsure: list[Message], begun: list[int], how: str
    ) -> None:
        """Fail what was in flight; what was not begun is kept if the agent starts again.

        What was begun is kept as well if the agent wants that, and for a one-shot, which has
        nothing else to do.
        """
        journal = self._core.journal
        spec = self._core.specs.get(node.generation)
        retried = node.one_shot or (spec is not None and spec.interrupted == "retry")
        kept: list[Message] = []
        gone: list[int] = []
        failed: list[int] = []
        for message in messages:
            if node.restarting and (retried or message.id not in begun):
                kept.append(message)
                continue
            (failed if message.id in begun else gone).append(message.id)
            if message.reply is None:
                continue
            if node.outcome == "aborted":
                text = f"agent {node.id!r} was stopped: {how}"
                message.reply.fail(TurnAborted(node.closing or "disposed", text))
            else:
                message.reply.fail(AgentLost(f"agent {node.id!r} was lost: {how}"))
        with self._core.lock:
            node.agent.kept[:0] = kept  # before what has come since then
            if journal is not None and node.life is not None:
                for message in kept:
                    node.life.hand_over(message.id, committed=message not in unsure)
        if journal is not None:
            if node.outcome != "aborted":
                journal.failed(node, failed)
            journal.discarded(node, node.closing or "disposed", gone)

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
