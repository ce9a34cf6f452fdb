"""What goes into the session store: every accepted prompt, turn start, end and result."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.agents.message import kind_name
from dsh_actors.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.supervisor.core import Core, Spec


class Journal:
    """Writes the sessions of a system's agents. Appending never blocks.

    Parameters:
        core: the shared state.
        store: where the sessions go; it is closed by whoever made it.
    """

    def __init__(self, core: Core, store: SessionStore) -> None:
        self._core = core
        self.store = store
        # By generation: the sessions of agents that are not published, and had no event.
        self._pending: dict[int, SessionHeader] = {}
        self._opening = allocate_lock()

    def open_locked(self, node: Node, spec: Spec, *, announced: bool = True) -> None:
        """Begin the session of a new agent.

        Parameters:
            node: the agent.
            spec: what it is to be.
            announced: whether the agent is published with this; if it is not, its session is
                stored with its publication or its first event, so that a refused one leaves
                nothing.
        """
        from dsh_actors.agents.behaviour import resolve
        from dsh_actors.sessions.events import ACTIVE, SessionHeader

        sessions = self._core.sessions
        life = node.continuable
        if life is not None and life.session is not None:
            # A next life continues the session.
            sessions[node.generation] = life.session
            self.store.set_status(life.session, ACTIVE)
            self.append(node, "agent/resumed", {"turns": life.turns})
            return
        id = self._core.runtime.session_id()
        parent = sessions.get(node.parent.generation) if node.parent is not None else None
        top = node
        while top.parent is not None:
            top = top.parent
        name = spec.behaviour
        if self._pending and node.parent is not None:
            self._open(node.parent)
        header = SessionHeader(
            id=id,
            agent_id=node.id,
            system_id=self._core.system_id,
            root=sessions.get(top.generation, id),
            parent=parent,
            depth=node.depth,
            behaviour=name if isinstance(name, str) else resolve(name).name,
            created=self._core.runtime.now(),
            policy=node.bounds.policy.to_plain() if node.bounds is not None else {},
            options={
                "isolation": spec.isolation,
                "restart": spec.restart,
                "one_shot": node.one_shot,
                "args": spec.args or {},
                **(spec.limits.to_plain() if spec.limits is not None else {}),
            },
        )
        if announced:
            self.store.create(header)
        else:
            self._pending[node.generation] = header
        sessions[node.generation] = id
        if life is not None:
            life.session = id

    def publish_locked(self, node: Node) -> None:
        """An agent is published, and so is its session.

        Raises:
            StoreError: it cannot be stored.
        """
        self._open(node)

    def _open(self, node: Node) -> None:
        with self._opening:
            header = self._pending.get(node.generation)
            if header is not None:
                self.store.create(header)
                del self._pending[node.generation]

    def append(
        self,
        node: Node,
        type: str,
        data: Any,
        on_commit: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Append an event to an agent's session; a failing store is logged and told."""
        self.append_encoded(node, type, codec.encode(data), on_commit)

    def append_encoded(
        self,
        node: Node,
        type: str,
        data: bytes,
        on_commit: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """The same, with data that is encoded already."""
        session = self._core.sessions.get(node.generation)
        try:
            if session is None:
                raise StoreError(f"agent {node.id!r} has no session; the event {type} is lost")
            if self._pending:
                self._open(node)
            self.store.append(session, type, data, on_commit=on_commit)
        except StoreError as error:
            self._core.log.error(
                "an event was not stored", agent=node.id, event_type=type, error=str(error)
            )
            if on_commit is not None:
                on_commit(error)

    def accepted(
        self, node: Node, message: Message, on_commit: Callable[[BaseException | None], None]
    ) -> None:
        """A message was accepted; the acceptance counts from its commit.

        Raises:
            StoreError: it was refused; ``on_commit`` is not called.
        """
        data = {"id": message.id, "kind": kind_name(message.kind), "body": message.body}
        session = self._core.sessions[node.generation]
        self.store.append(session, "prompt/accepted", codec.encode(data), on_commit=on_commit)

    def turn_started(self, node: Node, turn: int, messages: list[int]) -> None:
        """A turn has claimed these messages."""
        self.append(node, "turn/start", {"turn": turn, "messages": messages})

    def turn_ended(
        self,
        node: Node,
        turn: int,
        reason: str,
        cause: str | None,
        error: Any,
        messages: list[int],
        results: list[bytes],
    ) -> None:
        """A turn has ended.

        Parameters:
            messages: all that it has worked on, steering input that came on the way included.
            results: the encoded results of the first ones of them, as far as it came.
        """
        data: dict[str, Any] = {"turn": turn, "reason": reason, "messages": messages}
        if cause is not None:
            data["cause"] = cause
        if error is not None:
            data["error"] = {"type": error[0], "message": error[1], "traceback": error[2]}
        data["results"] = [
            {"id": id, "result": body} for id, body in zip(messages, results, strict=False)
        ]
        self.append(node, "turn/end", data)

    def discarded(self, node: Node, cause: str, messages: list[int]) -> None:
        """A cancel has emptied the inbox: one event for each message."""
        for id in messages:
            self.append(node, "prompt/discarded", {"id": id, "cause": cause})

    def ended(self, node: Node, on_commit: Callable[[BaseException | None], None]) -> None:
        """The agent has ended its work; its session is complete with this event's commit."""
        if self._pending and self._pending.pop(node.generation, None) is not None:
            on_commit(None)  # it was refused, and nothing ever happened in it
            return
        outcome = node.outcome or "completed"
        data = {"outcome": outcome, **({"detail": node.detail} if node.detail else {})}
        self.append(node, "agent/ended", data, on_commit)
        session = self._core.sessions.get(node.generation)
        if session is not None:
            self.store.set_status(session, outcome)
