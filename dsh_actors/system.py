"""The front door of the library: one system of supervised agents."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dsh_actors.agents.actor import AgentActor
from dsh_actors.agents.handle import Agent, AgentHandle
from dsh_actors.agents.waiting import current_turn
from dsh_actors.errors import AgentGone, ForkedSystemError, UsageError
from dsh_actors.slots import NO_SLOTS
from dsh_actors.supervisor.bounds import Limits
from dsh_actors.supervisor.closing import Closing
from dsh_actors.supervisor.core import Core, Settings
from dsh_actors.supervisor.journal import Journal
from dsh_actors.supervisor.opening import Opening
from dsh_actors.supervisor.ownership import AgentFactory, Owner, Ownership
from dsh_actors.supervisor.receipt import Receipt
from dsh_actors.supervisor.runtime import Runtime
from dsh_actors.supervisor.sleepers import find_locked
from dsh_actors.supervisor.supervisor import Supervisor
from dsh_actors.workers.limits import NO_LIMITS
from dsh_actors.workers.pool import default_workers
from dsh_actors.workers.process import importing_main

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.abort import AbortSignal
    from dsh_actors.agents.behaviour import InterruptedPolicy
    from dsh_actors.agents.initiator import InitiatorRegistry
    from dsh_actors.agents.scope import Scope
    from dsh_actors.lifecycle.budget import Budget
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.lifecycle.policy import Policy
    from dsh_actors.lifecycle.supervision import RestartType
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.slots import Slots
    from dsh_actors.supervisor.listeners import LifeEvent
    from dsh_actors.supervisor.preparation import Preparation
    from dsh_actors.supervisor.stops import Stop
    from dsh_actors.workers.limits import WorkerLimits


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One live agent, as :meth:`ActorSystem.tree` shows it.

    Attributes:
        id: its id.
        status: preparing, idle, running, waiting, stopping, settled or lost.
        isolation: ``inline``, ``pool`` or ``own``.
        pid: the process that hosts it.
        progress: ``{done, total, note}`` as it last reported, or None.
        queued: how many messages wait in its inbox or are worked on.
        started: when it was started, in Unix seconds; 0.0 if nobody watches the system.
        children: the agents below it.
        session: where it is recorded; None without a store.
    """

    id: str
    status: str
    isolation: str
    pid: int
    progress: dict[str, Any] | None
    queued: int
    started: float
    children: list[TreeNode] = field(default_factory=list)
    session: str | None = None


class ActorSystem(Opening, Closing):
    """A system of supervised agents, with its worker processes.

    Use it as a context manager, or end it with :meth:`shutdown`. It can be made in any thread
    and in any process that is no half-started worker of another system: in a script, in a
    daemonic multiprocessing process, in a pool's worker. It installs no signal handlers.

    Parameters:
        workers: how many shared worker processes there may be, started when first needed; by
            default one for each processor.
        name: begins the id of the system.
        store: where sessions are recorded; None records nothing. Who made the store closes it.
        stop_grace: how long an agent gets to end after its cancel before its worker process is
            ended by force, in seconds.
        max_turns: how many plain turns run at once in one process.
        inbox_limit: how many messages may wait for one agent before more are refused.
        max_depth: the greatest depth that an agent may have, where a root has 0.
        ready_deadline: how long a worker process may take until it is ready, in seconds. One
            that takes longer is ended, and its agents are lost.
        heartbeat: seconds between two heartbeats of a worker process; None switches them off.
        heartbeat_deadline: how long a worker may give no sign of life, in seconds, before it is
            ended and its agents are lost or started again. A busy behaviour does not keep a
            worker from answering; native code that holds the interpreter lock does.
        worker_limits: what each worker process may use; by default there is no limit.
        on_event: called with each event as a mapping with a ``type``, on a thread of the
            library; it must not block.
        slots: what only a launcher knows, such as the session of each configured agent. They
            are there before anything from configuration is.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        name: str = "dsh",
        store: SessionStore | None = None,
        stop_grace: float = 5.0,
        max_turns: int = 64,
        inbox_limit: int = 100_000,
        max_depth: int = 128,
        ready_deadline: float = 60.0,
        heartbeat: float | None = 5.0,
        heartbeat_deadline: float = 30.0,
        worker_limits: WorkerLimits = NO_LIMITS,
        on_event: Callable[[Mapping[str, Any]], None] | None = None,
        slots: Slots = NO_SLOTS,
        _runtime: Runtime | None = None,
    ) -> None:
        if importing_main():
            raise UsageError(
                "an ActorSystem was made while a worker imports the main script to find a "
                "behaviour in it; put what starts the system under `if __name__ == '__main__':`"
            )
        for what, value, least in (
            ("workers", workers, 1), ("stop_grace", stop_grace, 0), ("max_turns", max_turns, 1),
            ("inbox_limit", inbox_limit, 1), ("max_depth", max_depth, 0),
        ):  # fmt: skip
            if value is not None and value < least:
                raise UsageError(f"{what} must be at least {least}, not {value}")
        for what, seconds in (
            ("ready_deadline", ready_deadline), ("heartbeat", heartbeat),
            ("heartbeat_deadline", heartbeat_deadline),
        ):  # fmt: skip
            if seconds is not None and not seconds > 0:
                raise UsageError(f"{what} must be more than 0 s, not {seconds}")
        settings = Settings(
            workers=workers or default_workers(),
            stop_grace=stop_grace,
            max_turns=max_turns,
            inbox_limit=inbox_limit,
            max_depth=max_depth,
            ready_deadline=ready_deadline,
            heartbeat=heartbeat,
            heartbeat_deadline=heartbeat_deadline,
            worker_limits=worker_limits,
        )
        runtime = _runtime or Runtime()
        self._core = Core(name, settings, on_event, runtime)
        if store is not None:
            self._core.journal = Journal(self._core, store)
            self._core.journal.launch = slots.launch
        self._dispatcher = runtime.dispatcher(f"dsh-{self._core.system_id}")
        self._supervisor = Supervisor(self._core, self._dispatcher, self._all_ended, slots)
        self._supervisor.launch()
        self._lock = threading.Lock()
        self._shutdown: Future[Receipt] | None = None
        self._stop: Stop | None = None  # of all agents, once it is marked
        self._agents_ended = False
        self._closing = False
        self._configuration: AgentFactory | None = None

    @property
    def id(self) -> str:
        """The id of this system: unique on this machine."""
        return self._core.system_id

    @property
    def slots(self) -> Slots:
        """What the launcher gave; empty in a system that is embedded."""
        return self._supervisor.host.slots

    # -- creation ------------------------------------------------------------------------------

    def create(
        self,
        behaviour: Any,
        *,
        id: str | None = None,
        args: dict[str, Any] | None = None,
        isolation: str = "inline",
        restart: RestartType = "temporary",
        policy: Policy | None = None,
        budget: Budget | None = None,
        owner: Owner | None = None,
        factory: AgentFactory | None = None,
        setup: Callable[[Preparation], Any] | None = None,
        signal: AbortSignal | None = None,
        interrupted: InterruptedPolicy | None = None,
    ) -> AgentHandle:
        """Create an agent: prepare it in private, make it visible, announce it.

        It is a root, unless this is called on behalf of an agent: in a turn, or within
        ``initiators.with_initiator()``. Then it is a child of that agent, and ends with it;
        ``without_initiator()`` makes it a root there too.

        Parameters:
            behaviour: a function ``(turn, message)``, a :class:`Behaviour` class, or a
                reference to one: ``module:name`` or ``./file.py:name``.
            id: its id among the live agents; by default the behaviour's name with a number.
            args: arguments for the behaviour.
            isolation: ``inline`` (this process), ``pool`` (a shared worker) or ``own`` (a
                worker process of its own).
            restart: ``transient`` or ``permanent`` start it again when its process ends under
                it; ``temporary`` does not.
            policy: what it and those below it may do; None allows everything.
            budget: how much it and those below it may use; None is unlimited.
            owner: in whose name it is made; it ends with that owner at the latest.
            factory: what makes it; it ends with that factory at the latest.
            setup: called with the :class:`Preparation` before anything is visible, on a thread
                of its own. If it raises, nothing is created. It is abandoned when the creation
                is aborted. A function that it returns is called if nothing comes of the
                creation, to undo what it did.
            signal: aborts the creation; without effect once this has returned.
            interrupted: what becomes of a message whose turn a crash cuts off: ``fail`` or
                ``retry``; by default what the behaviour says, or else ``fail``.

        Returns:
            The handle: ``handle.agent`` to talk to it, ``handle.dispose()`` to end it.

        Raises:
            BehaviourError, DuplicateId, SystemClosed, WorkerStartError: nothing was created.
            AdmissionRefused: its owner or factory has ended, or the agent that it was to be a
                child of; or it was disposed by a listener.
            Cancelled: the turn that this was called in is cancelled.
            DepthExceeded, BudgetExceeded, PolicyError: the agent that it was to be a child of
                may have no such child.
            Exception: what the set-up hook or a listener raised, or the reason of the signal.
        """
        self._check_fork()
        maker = self._supervisor.factory
        limits = None
        if policy is not None or budget is not None:
            limits = Limits.asked(policy, budget)
        spec = maker.spec(behaviour, isolation, restart, args, limits, interrupted)
        parent, wanted = self._initiator()
        if owner is None and factory is None and setup is None and signal is None:
            return self._handle(maker.create(spec, id=id, parent=parent, still_wanted=wanted))
        ownerships: tuple[Ownership, ...] = tuple(each for each in (owner, factory) if each)
        return self._handle(self._publish(spec, id, parent, wanted, ownerships, signal, setup))

    @property
    def initiators(self) -> InitiatorRegistry:
        """On whose behalf code runs: what it creates belongs to that agent."""
        return self._supervisor.host.initiators

    def _initiator(self) -> tuple[Node | None, Callable[[], bool] | None]:
        """Who owns what is created here, and whether it is still wanted by then."""
        turn, run = self._supervisor.host.initiators.place()
        if turn is None and run is None:
            return None, None
        wanted = None if turn is None else lambda: turn.signal.cause is None
        if run is None:
            return turn._actor.key if turn is not None else None, wanted
        if run.agent is None:
            return None, wanted
        if run.agent._post is not self._supervisor:
            raise UsageError(f"agent {run.agent.id!r} is not of system {self.id}")
        return run.agent._target.latest, wanted

    def owner(self, name: str) -> Owner:
        """A name to make agents in: a plugin, a request. Unloading it ends them."""
        return Owner(self._core, self._supervisor, name, self.create)

    def factory(self, name: str) -> AgentFactory:
        """A factory of agents, which tears down what it has made when it is disposed."""
        return AgentFactory(self._core, self._supervisor, name, self.create)

    def on(self, event: str, listener: Callable[[LifeEvent], Any]) -> Callable[[], None]:
        """Listen to the lives of agents.

        Parameters:
            event: ``session/created``, ``agent/created``, ``session-start`` (called on the
                creating thread, in this order; a listener that raises ends the creation),
                ``agent/disposed``, ``session/disposed`` or ``cancel_requested`` (told, and a
                failure is logged).
            listener: gets a :class:`LifeEvent`. It may dispose the agent, but not wait for it.
                Disposed events come on a thread of their own, once the id is free; a listener
                that takes longer than 5 seconds is left behind there. The others hold up who
                creates or cancels, and should be quick.

        Returns:
            A function that takes the listener out again.
        """
        return self._supervisor.listeners.on(event, listener)

    def observe(self, listener: Callable[[Mapping[str, Any]], Any]) -> Callable[[], None]:
        """Listen to the events of the system, beside whoever listens already.

        Parameters:
            listener: called as ``on_event`` is. Its failure is logged and starves nobody. The
                starts of turns are not told of agents that were created in a worker while
                nobody listened, if there is no store.

        Returns:
            A function that takes the listener out again; it may be told of an event that is
            just under way. Calling it twice is harmless.
        """
        self._check_fork()
        return self._core.observers.add(listener)

    @property
    def configuration(self) -> AgentFactory:
        """The factory of this system that owns what tree files declare. Nobody needs a handle."""
        with self._lock:
            if self._configuration is None:
                self._configuration = self.factory("configuration")
            return self._configuration

    def _handle(self, node: Node) -> AgentHandle:
        return AgentHandle(self._supervisor.agent(node), self)

    def _dispose_of(self, agent: Agent) -> Future[Receipt]:
        return self._watched(agent._target.latest, "disposed")

    def _scope_of(self, agent: Agent) -> Scope:
        node: Node = agent._target.latest
        if not isinstance(node.agent, AgentActor):
            raise UsageError(
                f"agent {node.id!r} lives in a worker process; register what it needs in its own "
                "turns, with turn.scope"
            )
        return node.agent.scope_for(None)

    def prestart(self, workers: int) -> None:
        """Start shared workers before they are needed, so that the first agents wait less."""
        self._check_fork()
        self._supervisor.pool.prestart(workers)

    # -- looking -------------------------------------------------------------------------------

    def agent(self, id: str) -> Agent:
        """The agent with this id: a live one, or a resumed child that sleeps.

        Raises:
            AgentGone: there is none.
        """
        return self._supervisor.agent(self._find(id, asleep=True))

    def _find(self, id: str, *, asleep: bool = False) -> Node:
        self._check_fork()
        node = self._core.tree.nodes.get(id)
        if node is None and asleep:
            with self._core.lock:
                node = find_locked(self._core, id)
        if node is None:
            raise AgentGone(f"there is no live agent {id!r} in system {self.id}")
        return node

    def tree(self) -> list[TreeNode]:
        """A snapshot of all live agents: the roots, each with those below it.

        Children that a resume brought back asleep are in it as well, as ``settled``.
        """
        self._check_fork()
        core = self._core
        roots: list[TreeNode] = []
        made: dict[int, TreeNode] = {}
        with core.lock:
            order = list(core.tree.roots.values())
            for node in order:
                if node.children:
                    order.extend(node.children.values())
                if node.life is not None and node.life.asleep is not None:
                    order.extend(node.life.asleep.values())
                shown = made[node.generation] = self._shown_locked(node)
                parent = made.get(node.parent.generation) if node.parent is not None else None
                (roots if parent is None else parent.children).append(shown)
        return roots

    def _shown_locked(self, node: Node) -> TreeNode:
        core = self._core
        progress = core.progress.get(node.generation)
        spec = node.life.spec if node.life is not None else core.specs.get(node.generation)
        return TreeNode(
            id=node.id,
            status=self._supervisor.status_locked(node),
            isolation=spec.isolation if spec is not None else "inline",
            pid=node.agent.pid,
            progress=None
            if progress is None
            else dict(zip(("done", "total", "note"), progress, strict=True)),
            queued=node.agent.size,
            started=core.started_at.get(node.generation, 0.0),
            session=core.sessions.get(node.generation)
            or (node.life.session if node.life is not None else None),
        )

    def receipt(self) -> Receipt:
        """Everything that has ended so far, and who has not."""
        core = self._core
        with core.lock:
            order = list(core.tree.nodes.values())
        survivors = self._supervisor.teardown.survivors(order)
        return Receipt(tuple(core.ended), tuple(self._supervisor.pool.ended), tuple(survivors))

    # -- cancel and stop -----------------------------------------------------------------------

    def cancel(self, agent_id: str, *, tree: bool = True, keep_inbox: bool = False) -> None:
        """Cancel an agent's work, and by default that of everything below it. All live on.

        Raises:
            AgentGone: there is no such live agent.
        """
        node = self._find(agent_id)
        self._supervisor.cancel(node, tree=tree, keep_inbox=keep_inbox)

    def stop(self, agent_id: str, *, grace: float | None = None) -> Future[Receipt]:
        """Stop an agent and everything below it.

        Parameters:
            agent_id: the agent.
            grace: seconds before force; None takes the system's.

        Returns:
            A future of the receipt.

        Raises:
            AgentGone: there is no such live agent.
        """
        node = self._find(agent_id, asleep=True)
        self._supervisor.settlement.lay_to_rest(node)
        return self._watched(node, "user", grace)

    def _watched(self, node: Node, cause: Cause, grace: float | None = None) -> Future[Receipt]:
        return self._supervisor.teardown.stop(node, cause, grace)

    def _check_fork(self) -> None:
        if self._core.runtime.pid != self._core.pid:
            raise ForkedSystemError(
                "this ActorSystem belongs to the process that forked this one; make a new one here"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        turn = current_turn.get()
        if turn is not None and turn._actor.host is self._supervisor.host:
            raise UsageError("an agent cannot wait for the end of its own system; call shutdown()")
        self.shutdown().result()

    def __repr__(self) -> str:
        return f"<ActorSystem {self.id}, {len(self._core.tree.nodes)} agents>"


def agents_in(tree: Sequence[TreeNode]) -> int:
    """How many agents a snapshot shows."""
    return sum(1 + agents_in(node.children) for node in tree)
