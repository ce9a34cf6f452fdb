"""What goes into the session store: every accepted prompt, turn start, end and result."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, TypeAlias

from dsh_actors import codec
from dsh_actors.agents.message import kind_name
from dsh_actors.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.sessions.events import SessionHeader
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.supervisor.core import Core, Spec

OnCommit: TypeAlias = "Callable[[BaseException | None], None]"


class Journal:
    """Writes the sessions of a system's agents. Appending never blocks.

    Parameters:
        core: the shared state.
        store: where the sessions go; it is closed by whoever made it.
    """

    def __init__(self, core: Core, store: SessionStore) -> None:
        self._core = core
        self.store = store
        # How the system was launched; kept with the sessions that its launcher has chosen.
        self.launch: Mapping[str, Any] | None = None
        # By generation: the sessions of agents that are not published, and had no event.
        self._pending: dict[int, SessionHeader] = {}
        self._opening = allocate_lock()
        from dsh_actors.sessions.transitions import Transitions  # needed only with a store

        self._transitions = Transitions()
        # Turns come one after another; calls of one agent may come from several threads.
        self._calling = allocate_lock()

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
        life = node.life
        if life is not None and life.session is not None:
            # A next life continues the session.
            sessions[node.generation] = life.session
            if not life.unended:
                self.store.set_status(life.session, ACTIVE)
            life.unended = False
            resumed: dict[str, Any] = {"turns": life.turns}
            if life.after is not None:
                resumed |= {"system": self._core.system_id, "after": life.after}
                life.after = None
            self.append(node, "agent/resumed", resumed)
            return
        id = spec.session or self._core.runtime.session_id()
        if spec.session is not None and id in sessions.values():
            raise StoreError(f"session {id!r} is live in this system already")
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
            options=self._options(node, spec),
        )
        if announced:
            self.store.create(header)
        else:
            self._pending[node.generation] = header
        sessions[node.generation] = id
        if life is not None:
            life.session = id

    def _options(self, node: Node, spec: Spec) -> dict[str, Any]:
        """What a resume needs to know; what is usual is left out."""
        options: dict[str, Any] = {
            "isolation": spec.isolation,
            "restart": spec.restart,
            "one_shot": node.one_shot,
            "interrupted": spec.interrupted,
            "args": spec.args or {},
        }
        if node.continuable is not None:
            options["continuable"] = True
        if spec.declared:
            options["declared"] = True
        if spec.session is not None and self.launch is not None:
            options["launch"] = self.launch
        if spec.limits is not None:
            options |= spec.limits.to_plain()
        return options

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
        try:
            self._record(node, type, data, on_commit)
        except StoreError as error:
            self._lost(node, type, error)
            if on_commit is not None:
                on_commit(error)

    def record(self, node: Node, type: str, data: Any, on_commit: OnCommit | None = None) -> None:
        """The same, for who has to know.

        Raises:
            StoreError: the event was refused; ``on_commit`` is not called.
        """
        self._record(node, type, codec.encode(data), on_commit)

    def _record(
        self, node: Node, type: str, data: bytes, on_commit: OnCommit | None = None
    ) -> None:
        session = self._session(node)
        if session is None:
            raise StoreError(f"agent {node.id!r} has no session; the event {type} is lost")
        if self._pending:
            self._open(node)
        self.store.append(session, type, data, on_commit=on_commit)

    def _lost(self, node: Node, type: str, error: StoreError) -> None:
        self._core.log.error(
            "an event was not stored", agent=node.id, event_type=type, error=str(error)
        )

    def write(self, session: str, type: str, data: Any) -> None:
        """Append to a session that no live agent has.

        Raises:
            StoreError: it cannot be stored.
        """
        self.store.append(session, type, codec.encode(data))

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
        try:
            self.start_turn(node, turn, messages)
        except StoreError as error:
            self._lost(node, "turn/start", error)

    def start_turn(self, node: Node, turn: int, messages: list[int]) -> None:
        """The same, for who has to know.

        Raises:
            IllegalTransition: this turn cannot begin now; nothing was appended.
            StoreError: the store has refused it.
        """
        self._transitions.check_start(node.generation, turn)
        self.record(node, "turn/start", {"turn": turn, "messages": messages})
        self._transitions.did_start(node.generation, turn)

    def steered(self, node: Node, turn: int, messages: list[int]) -> None:
        """A turn has taken on these messages beside those that it began with."""
        try:
            self._transitions.check_open(node.generation, turn, "turn/steered")
            self.record(node, "turn/steered", {"turn": turn, "messages": messages})
        except StoreError as error:
            self._lost(node, "turn/steered", error)

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
        try:
            self.end_turn(node, turn, data)
        except StoreError as error:
            self._lost(node, "turn/end", error)

    def end_turn(self, node: Node, turn: int, data: dict[str, Any]) -> None:
        """The same, for who has to know.

        Raises:
            IllegalTransition: this turn is not open; nothing was appended.
            StoreError: the store has refused it.
        """
        self._transitions.check_open(node.generation, turn, "turn/end")
        self.record(node, "turn/end", data)
        self._transitions.did_end(node.generation, turn)

    # -- calls of tools ------------------------------------------------------------------------

    def called(self, node: Node, call: str, intent: bytes, on_commit: OnCommit) -> None:
        """A call is about to be made: its intent and its dispatch, one after the other.

        Parameters:
            node: the agent.
            call: the id of the call.
            intent: the encoded data of its event.
            on_commit: called once both are durable.

        Raises:
            IllegalTransition: there is such a call already.
            StoreError: the store has refused it; the call must not be made.
        """
        key, transitions = node.generation, self._transitions
        with self._calling:
            transitions.check_call(key, call)
            self._record(node, "tool/call", intent)
            transitions.did_call(key, call)
        self.dispatched(node, call, on_commit)

    def dispatched(self, node: Node, call: str, on_commit: OnCommit | None = None) -> None:
        """A recorded call is made from here on.

        Raises:
            IllegalTransition: it is not open, or was dispatched before.
            StoreError: the store has refused it; the call must not be made.
        """
        with self._calling:
            self._transitions.check_dispatch(node.generation, call)
            self.record(node, "tool/dispatch", {"call": call}, on_commit)
            self._transitions.did_dispatch(node.generation, call)

    def call_ended(self, node: Node, call: str, outcome: bytes) -> None:
        """A call has its result.

        Raises:
            IllegalTransition: it is not open.
            StoreError: the store has refused it.
        """
        with self._calling:
            self._transitions.check_result(node.generation, call)
            self._record(node, "tool/result", outcome)
            self._transitions.did_result(node.generation, call)

    def spent(self, node: Node, tokens: int, cost: float) -> None:
        """A turn has used this much."""
        self.append(node, "budget/spent", {"tokens": tokens, "cost": cost})

    def cut_off(self, node: Node) -> None:
        """The process of an agent has ended: nobody will tell how its open calls ended."""
        with self._calling:
            calls = self._transitions.open_calls(node.generation)
        if not calls:
            return
        from dsh_actors.sessions.recovery import ABORTED, UNKNOWN

        for call, dispatched in calls:
            error = UNKNOWN if dispatched else ABORTED
            outcome = codec.encode({"call": call, "ok": False, "error": error})
            try:
                self.call_ended(node, call, outcome)
            except StoreError as failure:
                self._lost(node, "tool/result", failure)

    def forget(self, generation: int) -> None:
        """An agent has ended, and is through with its session."""
        self._transitions.forget(generation)

    # -- ends ----------------------------------------------------------------------------------

    def discarded(self, node: Node, cause: str, messages: list[int]) -> None:
        """A cancel has emptied the inbox: one event for each message."""
        for id in messages:
            self.append(node, "prompt/discarded", {"id": id, "cause": cause})

    def failed(self, node: Node, messages: list[int]) -> None:
        """A crash has cut off the turn of these messages, and they are not tried again."""
        for id in messages:
            self.append(node, "prompt/failed", {"id": id, "reason": "interrupted"})

    def ended(self, node: Node, on_commit: Callable[[BaseException | None], None]) -> None:
        """The agent has ended its work; its session is complete with this event's commit."""
        if self._pending and self._pending.pop(node.generation, None) is not None:
            on_commit(None)  # it was refused, and nothing ever happened in it
            return
        life = node.life
        if life is not None and node.outcome == "lost" and node.restarting:
            # Its next life goes on right here. If none comes after all, that is said then.
            life.unended = True
            on_commit(None)
            return
        self.end(node, on_commit)

    def end(
        self, node: Node, on_commit: Callable[[BaseException | None], None] | None = None
    ) -> None:
        """The same; nothing of the agent follows."""
        outcome = node.outcome or "completed"
        data: dict[str, Any] = {"outcome": outcome}
        if node.detail:
            data["detail"] = node.detail
        if _is_final(node):
            data["final"] = True
        self.append(node, "agent/ended", data, on_commit)
        session = self._session(node)
        if session is not None:
            self.store.set_status(session, outcome)

    def _session(self, node: Node) -> str | None:
        """The session of an agent, also once it is forgotten if a next life was to follow."""
        session = self._core.sessions.get(node.generation)
        if session is None and node.life is not None:
            session = node.life.session
        return session


def _is_final(node: Node) -> bool:
    """Whether this end is a child's own, so that it does not come back with its parent."""
    life, parent = node.continuable, node.parent
    if life is not None:
        return life.tombstone is not None
    return parent is not None and parent.closing is None
