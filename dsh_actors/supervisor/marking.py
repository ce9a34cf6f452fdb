"""The mark phase of cancels and stops, and the notify phase after it.

*Mark*: under the lock, top-down over a frozen snapshot, every token is set and every cancel frame
queued. *Notify*: callbacks and observers, once all are marked. Nothing here waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.errors import TurnAborted
from dsh_actors.lifecycle.causes import EMITTED
from dsh_actors.workers.remote import RemoteAgent, cancel_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.disposal import Disposals
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.stops import Stop
    from dsh_actors.supervisor.supervisor import Supervisor
    from dsh_actors.workers.worker import Worker


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


class Marking:
    """Marks and notifies; the lowest part of :class:`~dsh_actors.supervisor.teardown.Teardown`."""

    disposals: Disposals

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
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
                held, publishing[node.generation] = publishing[node.generation], []
                if node.life is not None and node.life.logged is not None:
                    # What an earlier life had accepted is on the record.
                    dropped = dropped + [m for m in held if node.life.is_logged(m.id)]
                    held = [m for m in held if node.life.taken_over(m.id) is None]
                marked.held.append((node, held))
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
                self._supervisor.post(self._supervisor.teardown.turn_over, node, 0)
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

    def is_quiet_locked(self, node: Node) -> bool:
        """Whether it runs nothing, has no accepted work, and is published."""
        core = self._core
        return (
            node.agent.is_quiet()
            and node.generation not in core.uncommitted
            and node.generation not in core.publishing
        )
