"""What a turn may do: the object that a behaviour gets as its first argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors import codec
from dsh_actors.agents.signal import Signal
from dsh_actors.agents.waiting import park
from dsh_actors.errors import Cancelled, UsageError
from dsh_actors.lifecycle.budget import UNLIMITED, Budget, check_amount

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Generator

    from dsh_actors.agents.actor import AgentActor
    from dsh_actors.agents.behaviour import InterruptedPolicy
    from dsh_actors.agents.calls import TurnCalls, UnknownCall
    from dsh_actors.agents.handle import Agent
    from dsh_actors.agents.job import Job
    from dsh_actors.agents.message import Message
    from dsh_actors.agents.scope import Scope
    from dsh_actors.agents.shell import AgentShell
    from dsh_actors.lifecycle.causes import Cause, TurnReason
    from dsh_actors.lifecycle.policy import Policy
    from dsh_actors.lifecycle.supervision import RestartType
    from dsh_actors.slots import Slots


class TurnError(NamedTuple):
    """What a behaviour raised, in the form in which it crosses processes."""

    type_name: str
    message: str
    traceback_text: str


class Request(NamedTuple):
    """What a turn asks for when it starts a child."""

    behaviour: Any
    id: str | None
    isolation: str | None
    restart: RestartType
    args: dict[str, Any] | None
    policy: Policy | None = None
    budget: Budget | None = None
    interrupted: InterruptedPolicy | None = None


class _Done:
    """An awaitable that has nothing to wait for."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Turn:
    """One turn of an agent: its cancel signal, its children, its progress.

    A turn works on a batch of accepted messages; a behaviour is called once for each of them.
    """

    # Defaults of the class and not slots: a turn sets only what is not usual.
    _message: Message | None = None
    _reason: TurnReason = "completed"
    _cause: Cause | None = None
    _error: TurnError | None = None
    _task: asyncio.Task[None] | None = None
    _thread = 0  # the ident of the thread that runs a plain turn
    _calls: TurnCalls | None = None

    def __init__(self, actor: AgentActor, number: int, batch: list[Message]) -> None:
        self.number = number
        self.signal = Signal()
        self._actor = actor
        self._batch = batch
        self._is_async = actor.is_async
        # One encoded result for each message that was handled, in the order of the batch.
        self._results: list[bytes] = []

    @property
    def agent_id(self) -> str:
        """The id of the agent that this is a turn of."""
        return self._actor.name

    @property
    def args(self) -> dict[str, Any]:
        """The arguments that the agent was created with."""
        return dict(self._actor.args or {})

    def check(self) -> None:
        """Return at once, or raise if this turn is cancelled. Call it between pieces of work.

        Raises:
            Cancelled: the turn is cancelled (``asyncio.CancelledError`` in an async one).
        """
        cause = self.signal.cause
        if cause is not None:
            if self._is_async:
                import asyncio

                raise asyncio.CancelledError(cause)
            raise Cancelled(cause)

    def _check_running(self) -> None:
        self.check()
        if self._actor.running is not self:
            raise UsageError(
                f"turn {self.number} of agent {self.agent_id!r} is over, so nothing more starts; "
                "wait in the behaviour for the tasks and threads that it starts"
            )

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Sleep, woken early by the cancel signal. ``await`` it in an async behaviour.

        Parameters:
            seconds: how long, in seconds.

        Raises:
            Cancelled: the turn is cancelled.
        """
        if self._is_async:
            import asyncio

            return asyncio.sleep(seconds)
        self.check()
        park(self, None, seconds)
        self.check()
        return _Done()

    def run(
        self,
        behaviour: Any,
        message: Any = None,
        *,
        id: str | None = None,
        isolation: str | None = None,
        restart: RestartType = "temporary",
        args: dict[str, Any] | None = None,
        policy: Policy | None = None,
        budget: Budget | None = None,
        interrupted: InterruptedPolicy | None = None,
    ) -> Job:
        """Start a one-shot child: one message in, one outcome out, then it is gone.

        The child follows this turn's signal and does not outlive the turn.

        Parameters:
            behaviour: a function, a Behaviour class, or a reference to one.
            message: its only message, plain data.
            id: its id; by default the name of the behaviour with a number.
            isolation: ``inline`` (default), ``pool`` or ``own``.
            restart: what to do when its process ends under it; ``transient`` starts it again
                with the same message, up to three times.
            args: for the behaviour, as ``turn.args`` or the arguments of its class.
            policy: what it may do; it gets what this agent's policy allows of it, and no more.
            budget: what it and those below it may use, carved out of this agent's; what is not
                used comes back when it ends. What it has no budget for it shares.
            interrupted: what becomes of a message whose turn a crash cuts off: ``fail`` or
                ``retry``; by default what the behaviour says, or else ``fail``.

        Returns:
            A :class:`Job`, at once. Whatever becomes of the child is its outcome.

        Raises:
            Cancelled: this turn is cancelled.
            MessageError: the message cannot be carried.
            BehaviourError: the behaviour cannot run in that isolation.
            PolicyError, DepthExceeded, BudgetExceeded: it was refused, and nothing was carved. In
                a worker only the first is raised here; the others are the job's outcome.
        """
        self._check_running()
        request = Request(behaviour, id, isolation, restart, args, policy, budget, interrupted)
        return self._actor.host.port.run(self, request, codec.encode(message))

    def spawn(
        self,
        behaviour: Any,
        message: Any,
        *,
        id: str | None = None,
        isolation: str | None = None,
        restart: RestartType = "temporary",
        args: dict[str, Any] | None = None,
        policy: Policy | None = None,
        budget: Budget | None = None,
        interrupted: InterruptedPolicy | None = None,
    ) -> Agent:
        """Start a continuable child and give it its first message.

        It stays addressable after this turn and ends with its parent at the latest.
        Parameters and errors are those of :meth:`run`.
        """
        self._check_running()
        request = Request(behaviour, id, isolation, restart, args, policy, budget, interrupted)
        return self._actor.host.port.spawn(self, request, codec.encode(message))

    @property
    def shell(self) -> AgentShell:
        """Runs commands for this agent: see :class:`~dsh_actors.agents.shell.AgentShell`.

        Raises:
            UsageError: this turn is over.
        """
        from dsh_actors.agents.shell import shell_of

        return shell_of(self)

    @property
    def scope(self) -> Scope:
        """What is registered for this agent, and taken back when it ends; made when first used.

        Raises:
            UsageError: this turn is over. A scope that it took out before may still be used.
        """
        return self._actor.scope_for(self)

    def child(self, id: str) -> Agent:
        """The live child with this id, for example one that the tree file declares.

        Raises:
            AgentGone: this agent has no such live child.
        """
        self.check()
        return self._actor.host.port.child(self, id)

    @property
    def policy(self) -> Policy:
        """What this agent and those below it may do: fixed when it was started."""
        return self._actor.policy

    @property
    def budget(self) -> Budget:
        """What this agent and those below it may still use; None in it is unlimited."""
        return self._actor.host.port.left(self) if self._actor.meter is not None else UNLIMITED

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Report what this turn has used. It counts even if there was not enough.

        If the budget is overdrawn by it, this turn is cancelled with the cause ``budget`` and
        ends with the reason ``limit``, whatever the behaviour does; what it returns is kept. In a
        worker the cancel comes a moment later.

        Parameters:
            tokens: how many tokens.
            cost: how much money, in the unit of the budget.

        Raises:
            Cancelled: this turn is cancelled.
            UsageError: an amount that is negative, or no number.
        """
        check_amount("tokens", tokens, whole=True)
        check_amount("cost", cost, whole=False)
        if self._actor.meter is not None:
            self._actor.host.port.spend(self, tokens, cost)
        self.check()

    def progress(
        self, done: int | None = None, total: int | None = None, note: str | None = None
    ) -> None:
        """Report how far this turn is, for whoever watches. Cheap; may be called often.

        Parameters:
            done: how many pieces of work are done.
            total: how many there are.
            note: what it is doing, in a few words.
        """
        self._actor.host.port.progress(self, done, total, note)

    def checkpoint(self) -> Awaitable[None]:
        """Return once all that this agent has done so far is durable; fail if it cannot be.

        Call it before something that must not be done without a record of what led to it.
        ``await`` it in an async behaviour. Without a session store it does nothing.

        Raises:
            StoreError: it is not durable, and may not become so.
            Cancelled: the turn is cancelled.
        """
        self.check()
        if not self._actor.host.port.durable:
            return _Done()
        from dsh_actors.agents.calls import checkpoint

        return checkpoint(self) or _Done()

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call something that acts on the world, on the record. ``await`` it in async behaviours.

        That it is about to be called, with what, is durable before it is; then its result is
        recorded. If a crash cuts the turn off and the message is tried again (see
        ``interrupted`` in :meth:`run`), then a call that had ended is not made again, and gives
        the recorded result; one that may have been made raises :class:`OutcomeUnknown`. Without
        a session store it is just called.

        Parameters:
            name: what is called, for the record.
            function: what to call with the other arguments; it may be async in an async
                behaviour. It returns plain data. Recorded data has no tuples, but lists.
            key: tells the calls of one message apart, e.g. the id that a model gave to the call
                of a tool. By default the name with the number of calls of that name so far, which
                needs a behaviour that makes the same calls again. A second call with the same key
                gets the result of the first.
            idempotent: that it may be called again if nobody knows whether it has been.

        Returns:
            What the function returns.

        Raises:
            StoreError: the intent cannot be made durable; the function was not called.
            OutcomeUnknown: it was called in a turn that was cut off, and how it ended is unknown.
            CallFailed: it had raised in the turn that was cut off.
            MessageError: its result cannot be recorded, since it is no plain data.
            Cancelled: the turn is cancelled; the function was not called.
            Exception: what the function raises.
        """
        from dsh_actors.agents.calls import call

        return call(self, name, function, args, kwargs, key, idempotent)

    @property
    def unknown_calls(self) -> tuple[UnknownCall, ...]:
        """The calls that earlier lives may have made, and nobody knows how they ended.

        A crash has cut them off. They are reported here until a life begins after a turn that
        has completed, whatever became of their message; tell them to the model, or look after
        them.
        """
        earlier = self._actor.earlier
        return earlier.unknown if earlier is not None else ()

    def remember(self, type: str, data: Any) -> None:
        """Append an event of its own to the agent's session.

        Parameters:
            type: the name of the event, e.g. ``"reviewed"``.
            data: plain data.

        Raises:
            MessageError: the data cannot be carried.
        """
        self._actor.host.port.remember(self, f"custom/{type}", codec.encode(data))

    @property
    def slots(self) -> Slots:
        """What only the launcher knows: the sessions that agents are bound to, the exit line.

        They are there before any agent is. In a system that nobody has launched they are empty.
        """
        return self._actor.host.slots

    @property
    def log(self) -> Any:
        """A structlog logger that is bound to this agent and turn; it writes to stderr."""
        from dsh_actors.observe.logging import get_logger

        return get_logger("dsh_actors.agent").bind(agent=self.agent_id, turn=self.number)

    def __repr__(self) -> str:
        return f"<Turn {self.number} of {self.agent_id}>"
