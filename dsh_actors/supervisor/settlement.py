"""Continuable children: they settle by themselves, tell their parent, and go on when asked again.

A child that is quiet and owns no live child is disposed through the ordinary path. Its parent
gets one settlement notice for that life, before the ownership is released. A later message starts
a next life of it, which continues its session; a stop by the user leaves a tombstone instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.agents.message import FOLLOW_UP, NOTICE, STEER, Message
from dsh_actors.errors import AgentGone, NotAuthorized
from dsh_actors.workers.remote import RemoteAgent

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core, Spec
    from dsh_actors.supervisor.supervisor import Supervisor


class Continuable:
    """What outlives one activation of a continuable child: handed on from life to life."""

    __slots__ = ("last", "remembered", "session", "spec", "tombstone", "turns")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.session: str | None = None
        # Its own events, as type and encoded data, in order: replayed into the next life.
        self.remembered: list[tuple[str, bytes]] = []
        # How many turns it has had, so that their numbers go on.
        self.turns = 0
        # The encoded result of its last turn, for the notice.
        self.last: bytes | None = None
        # Why it may not go on any more, once a stop was asked for.
        self.tombstone: Cause | None = None


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
            teardown.cut_locked(order, "disposed", keep_inbox=False)
        teardown.disposals.begin(node)

    def released(self, node: Node) -> None:
        """A child has left its parent's owned set: the parent may be through now."""
        parent = node.parent
        if parent is not None and parent.continuable is not None and parent.closing is None:
            self._supervisor.post(self.consider, parent)

    def removed_locked(self, node: Node) -> None:
        """A child has left the map: keep it for a parent in a worker, which may go on with it."""
        parent = node.parent
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
        agent = parent.agent
        if not agent.takes_notices:
            return
        with core.lock:
            if parent.closing is not None:
                # Not woken: its own teardown has this on the record, and nobody acts on it.
                discarded = True
            else:
                discarded = False
                kind: Any = (STEER if agent.is_running else FOLLOW_UP) | NOTICE
                message = Message(core.next_message(), kind, body)
                self._supervisor.delivery.accept_locked(parent, message)
        if discarded:
            core.log.info("a notice for a closing agent was discarded", agent=parent.id)
            if journal is not None:
                journal.append(parent, "notice/discarded", {"child": node.id})
        elif journal is None:
            agent.ring()

    # -- the next life -----------------------------------------------------------------------------

    def revives_locked(self, node: Node) -> bool:
        """Whether a message for this closing or settled child starts a next life of it."""
        life, parent = node.continuable, node.parent
        return (
            life is not None
            and life.tombstone is None
            and node.closing == "disposed"
            and node.outcome not in ("lost", "failed")
            and parent is not None
            and self._core.tree.admits(parent)
            and node.agent.resumable
        )

    def revive(self, node: Node) -> None:
        """Start the next life of a settled child, on the supervisor's thread."""
        if node.successor is None and node.continuable is not None:
            self._supervisor.restart(node, node.continuable.spec, None)

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
