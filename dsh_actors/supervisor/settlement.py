"""Continuable children: they settle by themselves, tell their parent, and go on when asked again.

A child that is quiet and owns no live child is disposed through the ordinary path. Its parent
gets one settlement notice for that life, before the ownership is released. A later message starts
a next life of it, which continues its session; a stop by the user leaves a tombstone instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors import codec
from dsh_actors.errors import AgentGone, NotAuthorized
from dsh_actors.supervisor.notices import give_notice
from dsh_actors.supervisor.sleepers import keep_locked, leaves_locked
from dsh_actors.workers.remote import RemoteAgent

if TYPE_CHECKING:
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor


class Settlement:
    """Decides when a child settles, tells its parent, and wakes it up again."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor

    # -- settling ----------------------------------------------------------------------------------

    def consider(self, node: Node) -> None:
        """Something changed: settle a continuable child if it is through.

        On the supervisor's thread. All that it depends on is read in the section that closes the
        node: nothing can be accepted, and no child enter, between the judgement and the cut-off.
        """
        core, teardown = self._core, self._supervisor.teardown
        with core.lock:
            if (
                node.closing is not None
                or node.continuable is None
                or node.outcome is None  # it has had no turn yet
                or node.children
                or not node.agent.resumable
                or not teardown.is_quiet_locked(node)
            ):
                return
            order = core.tree.mark([node], "disposed")
            marked = teardown.cut_locked(order, "disposed", keep_inbox=False)
        teardown.notify(marked, "disposed")  # quiet messages may have waited for a next turn
        teardown.disposals.begin(node)

    def released(self, node: Node) -> None:
        """A child has left its parent's owned set: the parent may be through now."""
        parent = node.parent
        if parent is not None and parent.continuable is not None and parent.closing is None:
            self._supervisor.post(self.consider, parent)

    def removed_locked(self, node: Node) -> None:
        """A child has left the map: keep it for a parent in a worker, which may go on with it."""
        parent = node.parent
        if node.life is not None and node.life.stored and self.may_go_on(node):
            keep_locked(node)
        if (
            node.continuable is not None
            and parent is not None
            and parent.closing is None
            and isinstance(parent.agent, RemoteAgent)
        ):
            self._core.dormant.setdefault(parent.generation, {})[node.generation] = node

    # -- the notice --------------------------------------------------------------------------------

    def notify(self, node: Node) -> None:
        """Give the parent its notice of this life; what cannot be delivered is dropped."""
        parent, core = node.parent, self._core
        if parent is None or node.continuable is None:
            return
        last = node.continuable.last
        notice = {
            "child": node.id,
            "outcome": node.outcome or "completed",
            "detail": node.detail,
            "last": codec.decode(last) if last is not None else None,
        }
        body = codec.encode(notice)
        journal = core.journal
        if journal is not None:
            journal.append_encoded(parent, "child/settled", body)
        if parent.agent.takes_notices:
            self._give(parent, node.id, body)

    def _give(self, parent: Node, child: str, body: bytes) -> None:
        core = self._core
        if give_notice(self._supervisor, parent, body):
            return
        # Its own teardown has this on the record.
        core.log.info("a notice for a closing agent was discarded", agent=parent.id)
        if core.journal is not None:
            core.journal.append(parent, "notice/discarded", {"child": child})

    def give_notices(self, node: Node) -> None:
        """A resumed agent is set up: tell it which of its children's lives the crash has ended."""
        core = self._core
        with core.lock:
            if node.generation in core.publishing or not node.agent.is_set_up:
                return  # they come when it is
            notices, node.life.notices = node.life.notices, None
        if notices and node.agent.takes_notices:
            for body in notices:
                self._give(node, codec.decode(body)["child"], body)

    # -- the next life -----------------------------------------------------------------------------

    def revives_locked(self, node: Node) -> bool:
        """Whether a message for this closing or settled child starts a next life of it."""
        parent = node.parent
        return self.may_go_on(node) and parent is not None and self._core.tree.admits(parent)

    def may_go_on(self, node: Node) -> bool:
        """Whether this closing or settled child is one that may have a next life."""
        life = node.continuable
        return (
            life is not None
            and life.tombstone is None
            and node.closing == "disposed"
            and node.outcome not in ("lost", "failed")
            and bool(node.agent.resumable)
        )

    def revive(self, node: Node) -> None:
        """Start the next life of a settled child, on the supervisor's thread."""
        if node.successor is None and node.continuable is not None:
            self._supervisor.restart(node, node.continuable.spec, None)

    def lay_to_rest(self, node: Node) -> None:
        """The user stops a child: if it sleeps, it does not go on any more."""
        with self._core.lock:
            if not leaves_locked(node):
                return
            node.life.tombstone = "user"
        if self._core.journal is not None:
            self._core.journal.end(node)

    # -- authority ---------------------------------------------------------------------------------

    def check_delivery(self, sender: Node | None, target: Node) -> None:
        """Only the user and the exact live direct parent may deliver to a continuable child.

        Raises:
            NotAuthorized: the sender is another agent.
        """
        if sender is None or target.continuable is None:
            return
        if target.parent is not sender:
            raise NotAuthorized(
                f"agent {sender.id!r} may not deliver to {target.id!r}: only its direct parent may"
            )

    def check_interrupt(self, sender: Node | None, target: Node) -> None:
        """Only the user and an exact live ancestor may interrupt, cancel or stop a child.

        Raises:
            NotAuthorized: the sender is another agent.
        """
        if sender is None or target.parent is None:
            return
        if sender not in target.ancestors():
            raise NotAuthorized(
                f"agent {sender.id!r} may not interrupt {target.id!r}: only an ancestor may"
            )

    def gone(self, node: Node) -> AgentGone | None:
        """What a message to a tombstone gets; None if there is none."""
        life = node.continuable
        if life is None or life.tombstone is None:
            return None
        return AgentGone(
            f"agent {node.id!r} was stopped (cause: {life.tombstone}) and does not go on; "
            "the message was refused"
        )
