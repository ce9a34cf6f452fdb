"""What callers hold: the agent, which may be shared, and the handle, which can dispose it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dsh_actors import codec
from dsh_actors.agents.message import FOLLOW_UP, INJECT, STEER, Kind

if TYPE_CHECKING:
    from dsh_actors.actors.future import Future
    from dsh_actors.agents.resumed import ResumeReport
    from dsh_actors.agents.scope import Scope


class Post(Protocol):
    """Delivers for an :class:`Agent`: the supervisor itself, or a worker's way to it."""

    def send(self, target: Any, kind: Kind, body: bytes) -> int:
        """Deliver, and return the message's id once it is accepted."""

    def ask(self, target: Any, kind: Kind, body: bytes) -> Future[Any]:
        """Deliver, with a reply."""

    def cancel(self, target: Any, *, tree: bool, keep_inbox: bool) -> None:
        """Cancel at once, without waiting for anything."""

    def status(self, target: Any) -> str:
        """The public status."""

    def when_idle(self, target: Any) -> Future[None]:
        """A future of the next complete rest."""


class Agent:
    """An agent to talk to. It may be shared freely: with it, nobody can tear the agent down.

    All methods may be called from any thread.
    """

    __slots__ = ("_post", "_target", "id", "session_id")

    def __init__(self, post: Post, target: Any, id: str, session_id: str | None) -> None:
        self._post = post
        self._target = target
        self.id = id
        self.session_id = session_id

    def send(self, message: Any) -> int:
        """Deliver a message for a turn of its own.

        Returns:
            The message's id, once the message is accepted (and committed, if there is a store).

        Raises:
            MessageError: the message cannot be carried.
            AgentGone: the agent is stopping or has ended.
            InboxFull: its inbox is at the limit; nothing was dropped.
        """
        return self._post.send(self._target, FOLLOW_UP, codec.encode(message))

    def ask(self, message: Any) -> Future[Any]:
        """Deliver a message, and get its reply as a future.

        Returns:
            A future that settles with the turn that handled the message: with what the
            behaviour returned, or with :class:`AgentFailed`, :class:`TurnAborted` or
            :class:`AgentLost`. Use ``result(timeout=)`` or ``await``.

        Raises:
            MessageError, AgentGone, InboxFull: as for :meth:`send`.
            AskCycle: the agent waits, through others, for the asking one.
        """
        return self._post.ask(self._target, FOLLOW_UP, codec.encode(message))

    def steer(self, message: Any) -> int:
        """Deliver a message for the next step of the running turn; wakes an idle agent."""
        return self._post.send(self._target, STEER, codec.encode(message))

    def inject(self, message: Any) -> int:
        """Deliver a message for the next step or turn, without waking the agent."""
        return self._post.send(self._target, INJECT, codec.encode(message))

    def interrupt(self) -> None:
        """Cancel the running turn and keep the inbox for the turns after the next message."""
        self._post.cancel(self._target, tree=False, keep_inbox=True)

    def cancel(self, *, tree: bool = False, keep_inbox: bool = False) -> None:
        """Cancel the agent's work: clear its inbox and set the signal of its turn.

        It has taken effect when it returns, and waits for nothing. The agent lives on.

        Parameters:
            tree: also cancel the work of every agent below it, top-down.
            keep_inbox: leave what is queued; it is handled, in order, after the next message
                that wakes the agent. If no turn runs, nothing happens.
        """
        self._post.cancel(self._target, tree=tree, keep_inbox=keep_inbox)

    def when_idle(self) -> Future[None]:
        """A future that settles when the agent is completely quiet: no turn, no accepted work."""
        return self._post.when_idle(self._target)

    @property
    def status(self) -> str:
        """preparing, idle, running, waiting, stopping, settled or lost."""
        return self._post.status(self._target)

    def __repr__(self) -> str:
        return f"<Agent {self.id}>"


class Keeper(Protocol):
    """The system that made an agent, as its handle needs it."""

    def _dispose_of(self, agent: Agent) -> Future[Any]:
        """Stop it; a future of the receipt."""

    def _scope_of(self, agent: Agent) -> Scope:
        """What is registered for it."""


class AgentHandle:
    """The capability to tear one agent down. Keep it to yourself, share :attr:`agent`."""

    __slots__ = ("_disposed", "_keeper", "agent", "resumed")

    def __init__(self, agent: Agent, keeper: Keeper) -> None:
        self.agent = agent
        self._keeper = keeper
        self._disposed: Future[Any] | None = None
        self.resumed: ResumeReport | None = None
        """What came back with it, if it was resumed."""

    def dispose(self) -> Future[Any]:
        """Stop the agent and everything below it: cancel top-down, release child-first.

        However many callers there are, there is one teardown, and all get its outcome.

        Returns:
            A future of the :class:`~dsh_actors.Receipt`, resolved once nothing of the subtree
            runs any more, or with the survivors named after the grace period.
        """
        if self._disposed is None:
            self._disposed = self._keeper._dispose_of(self.agent)
        return self._disposed

    @property
    def scope(self) -> Scope:
        """What is registered for the agent, and taken back when it ends; made when first used.

        Raises:
            UsageError: the agent lives in a worker process.
            ScopeInactive: it has ended.
        """
        return self._keeper._scope_of(self.agent)

    def __repr__(self) -> str:
        return f"<AgentHandle of {self.agent.id}>"
