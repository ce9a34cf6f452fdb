"""How a message becomes accepted work, and what becomes of it if it never runs."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.actors.future import Future
from dsh_actors.agents.message import Kind, Message, ReplyTo
from dsh_actors.agents.waiting import Awaited, current_turn
from dsh_actors.errors import (
    AgentGone,
    AskCycle,
    BudgetExceeded,
    ForkedSystemError,
    InboxFull,
    StoreError,
    TurnAborted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.settlement import Settlement

COMMIT_DEADLINE = 30.0
"""Seconds that a send waits for the commit of its message before it says that it is unknown."""


class Reply(Awaited[Any]):
    """The future of an answer, decoded for whoever asked in this process."""

    __slots__ = ()

    def answer(self, body: bytes) -> None:
        """Settle with an encoded result."""
        self.try_set_result(codec.decode(body))

    def fail(self, error: BaseException) -> None:
        """Settle with an error."""
        self.try_set_error(error)


class Delivery:
    """Accepts messages for agents, wherever those live. From any thread."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._limit = core.settings.inbox_limit
        self.settlement: Settlement | None = None
        self.revive: Callable[[Node], None]
        """Starts the next life of a settled child, soon."""
        self.not_stored: Callable[[Node, StoreError], None]
        """Told of an agent whose message could not be stored, so that it never comes."""
        self.why_over_budget: Callable[[Node], BudgetExceeded]
        """Says what an agent has nothing left of."""

    def send(self, node: Node, kind: Kind, body: bytes) -> int:
        """Deliver; returns the message's id once it is accepted, and committed, with a store."""
        if self._core.journal is None:
            return self.deliver(node, kind, body, None)
        committed: Future[None] = Future()
        id = self.deliver(node, kind, body, None, committed=committed)
        turn = current_turn.get()
        if turn is not None and turn._is_async:  # it may not block its loop
            return id
        if self._core.announcing and self._announced_here(node):  # committed with its publication
            return id
        committed.result(COMMIT_DEADLINE)
        return id

    def _announced_here(self, node: Node) -> bool:
        return node in self._core.announcing.get(get_ident(), ())

    def ask(self, node: Node, kind: Kind, body: bytes) -> Future[Any]:
        """Deliver with a reply."""
        turn = current_turn.get()
        chain: tuple[str, ...] = ()
        if turn is not None:
            message = turn._message
            chain = (*(message.chain if message is not None else ()), turn.agent_id)
        reply = Reply()
        self.deliver(node, kind, body, reply, chain)
        return reply

    def deliver(
        self,
        node: Node,
        kind: Kind,
        body: bytes,
        reply: ReplyTo | None,
        chain: tuple[str, ...] = (),
        committed: Future[None] | None = None,
    ) -> int:
        """Accept a message, or raise.

        Parameters:
            node: the agent.
            kind: which list it goes to, and whether it wakes the agent.
            body: the encoded message.
            reply: settled with the turn that handles it.
            chain: the ids of the agents that wait for the answer.
            committed: settled once the acceptance is durable.

        Raises:
            AgentGone, InboxFull, AskCycle, StoreError: and nothing was accepted.
        """
        core = self._core
        if chain and node.id in chain:
            path = " -> ".join((*chain[chain.index(node.id) :], node.id))
            raise AskCycle(
                f"this ask could never be answered, since each waits for the next: {path}; "
                "use send, or answer before asking back"
            )
        with core.lock:
            if node.successor is not None:
                node = node.latest
            agent = node.agent
            if node.closing is not None or agent.lost:
                if not node.restarting and not self._revives_locked(node):
                    raise self._gone(node)
                # It is about to be started again: its next life takes this over, in order.
                message = Message(core.next_message(), kind, body, reply, chain, committed)
                agent.kept = [*agent.kept, message]
                return message.id
            size = agent.size
            if core.uncommitted:
                size += len(core.uncommitted.get(node.generation, ()))
            if core.publishing:
                size += len(core.publishing.get(node.generation, ()))
            if size >= self._limit:
                raise InboxFull(
                    f"the inbox of agent {node.id!r} is full ({size} messages); nothing was "
                    "dropped: wait for replies before sending more, or raise inbox_limit"
                )
            message = Message(core.next_message(), kind, body, reply, chain, committed)
            if core.publishing and node.generation in core.publishing:
                core.publishing[node.generation].append(message)
                return message.id
            if core.journal is None:
                agent.accept(message)
            else:
                self.accept_locked(node, message)
                return message.id
        agent.ring()
        return message.id

    def accept_locked(self, node: Node, message: Message) -> None:
        """Make a message accepted work: at once, or with the commit of its acceptance.

        Without a journal the caller rings, after it has released the lock.
        """
        core = self._core
        if core.journal is None:
            node.agent.accept(message)
            return
        if node.life is not None and node.life.logged is not None:
            committed = node.life.taken_over(message.id)
            if committed:
                node.agent.accept(message)
                return
            if committed is not None:  # its commit is still to come
                core.uncommitted.setdefault(node.generation, []).append(message)
                return
        waiting = core.uncommitted.setdefault(node.generation, [])
        waiting.append(message)
        try:
            core.journal.accepted(
                node, message, lambda error: self._committed(node, message, error)
            )
        except BaseException:
            waiting.pop()
            if not waiting:
                del core.uncommitted[node.generation]
            raise

    def _revives_locked(self, node: Node) -> bool:
        """Whether this message makes a settling or settled child go on in a next life."""
        settlement = self.settlement
        if node.continuable is None or settlement is None or not settlement.revives_locked(node):
            return False
        node.restarting = True
        if node.disposal is not None and node.disposal.done:
            self.revive(node)
        return True

    def _gone(self, node: Node) -> Exception:
        core = self._core
        if core.pid != core.runtime.pid:
            return ForkedSystemError(
                "this actor system belongs to the process that forked this one; make a new "
                "ActorSystem in the child"
            )
        tombstone = self.settlement.gone(node) if self.settlement is not None else None
        if tombstone is not None:
            return tombstone
        if node.disposal is not None and node.disposal.done:
            return AgentGone(
                f"agent {node.id!r} has ended ({node.outcome or 'completed'}); the message was "
                "refused: start a new agent to go on"
            )
        return AgentGone(f"agent {node.id!r} is stopping; the message was refused")

    def _committed(self, node: Node, message: Message, error: BaseException | None) -> None:
        core = self._core
        with core.lock:
            if node.life is not None:
                node = node.latest
                if node.life.is_logged(message.id):
                    self._still_kept_locked(node, message, error)
            waiting = core.uncommitted.get(node.generation)
            alive = waiting is not None and message in waiting
            if waiting is not None and alive:
                waiting.remove(message)
                if not waiting:
                    del core.uncommitted[node.generation]
                if error is None:
                    node.agent.accept(message)
        if alive and error is None:
            node.agent.ring()
        if error is not None:
            failure = StoreError(f"the message to agent {node.id!r} was not stored: {error}")
            if message.reply is not None:
                message.reply.fail(failure)
            if message.committed is not None:
                message.committed.try_set_error(failure)
            if alive:
                self.not_stored(node, failure)
        elif message.committed is not None:
            message.committed.try_set_result(None)

    def _still_kept_locked(self, node: Node, message: Message, error: BaseException | None) -> None:
        """The commit of a message that waits for the next life."""
        if error is None:
            node.life.logged[message.id] = True
        else:
            node.life.taken_over(message.id)
            node.agent.kept = [each for each in node.agent.kept if each is not message]

    def discarded(self, node: Node, messages: Iterable[Message], cause: str) -> None:
        """Messages were discarded by a cancel: on the record, and told to who asked."""
        journal = self._core.journal
        messages = list(messages)
        if journal is not None and messages:
            journal.discarded(node, cause, [message.id for message in messages])
        if cause == "budget":
            self.refused(node, messages)
            return
        for message in messages:
            if message.reply is not None:
                message.reply.fail(
                    TurnAborted(
                        cause, f"agent {node.id!r} was cancelled before its turn (cause: {cause})"
                    )
                )

    def refused(self, node: Node, messages: Iterable[Message]) -> None:
        """Nothing is left for the turns of these messages: told to who asked."""
        for message in messages:
            if message.reply is not None:
                message.reply.fail(self.why_over_budget(node))
