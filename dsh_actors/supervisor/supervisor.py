"""The supervisor actor of one system: it performs effects, in order, and never waits for an agent.

Any thread may enter the shared state to create, deliver or mark, in one short section. What has
to happen in order (disposals, ends of turns, deaths of workers, restarts) is posted here and done
on one thread at a time.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING, Any

from dsh_actors.actors.pooled import PooledActor
from dsh_actors.agents.containment import passes
from dsh_actors.agents.handle import Agent
from dsh_actors.agents.host import AgentHost
from dsh_actors.agents.waiting import Awaited, current_turn
from dsh_actors.errors import AgentGone, AgentLost, DshActorsError
from dsh_actors.supervisor.bounds import Boundaries
from dsh_actors.supervisor.delivery import Delivery
from dsh_actors.supervisor.drain import Drains
from dsh_actors.supervisor.factory import Factory
from dsh_actors.supervisor.heartbeats import Heartbeats
from dsh_actors.supervisor.links import Links
from dsh_actors.supervisor.listeners import Listeners
from dsh_actors.supervisor.lives import Life
from dsh_actors.supervisor.notifier import Notifier
from dsh_actors.supervisor.preparation import Preparation
from dsh_actors.supervisor.settlement import Settlement
from dsh_actors.supervisor.teardown import Teardown
from dsh_actors.supervisor.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.dispatcher import Dispatcher
    from dsh_actors.actors.future import Future
    from dsh_actors.agents.message import Kind
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.slots import Slots
    from dsh_actors.supervisor.core import Core, OneShot, Spec


class Supervisor(PooledActor):
    """Owns the tree machine and everything around it.

    Parameters:
        core: the shared state.
        dispatcher: the threads of the system.
        ended: called, on the supervisor's thread, when the last agent of a closed system has
            ended.
        slots: what the launcher knows.
    """

    registered_with_pykka = False

    def __init__(
        self, core: Core, dispatcher: Dispatcher, ended: Callable[[], None], slots: Slots
    ) -> None:
        super().__init__(dispatcher=dispatcher)
        self.core = core
        self.all_ended = ended
        self._work: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        runtime = core.runtime
        self.timers = runtime.timers(f"{dispatcher.name}-timers")
        self.heartbeats = Heartbeats(core, self, self.timers)
        self.delivery = Delivery(core)
        self.turns = Turns(core, self)
        self.teardown = Teardown(core, self)
        self.drains = Drains(core, self)
        self.host = AgentHost(
            self.turns,
            dispatcher,
            core.lock,
            max_turns=core.settings.max_turns,
            loop=runtime.loop(f"{dispatcher.name}-loop"),
            turns_per_visit=runtime.turns_per_visit,
            slots=slots,
        )
        params: dict[str, Any] = {
            "max_turns": core.settings.max_turns, "durable": core.journal is not None,
        }  # fmt: skip
        launched = slots.to_plain()
        if launched is not None:
            params["slots"] = launched
        limits = core.settings.worker_limits.of_the_kernel
        if limits is not None:
            params["limits"] = limits
        self.pool = runtime.pool(core.settings.workers, core.system_id, Links(core, self), params)
        self.factory = Factory(core, self.host, self.pool, self.delivery)
        self.listeners = Listeners(core, self)
        self.settlement = self.delivery.settlement = Settlement(core, self)
        self.delivery.revive = lambda node: self.post(self.settlement.revive, node)
        self.factory.listeners_wanted = lambda: self.listeners.wanted
        # One after the other, off the threads that links and disposals need.
        self.creations = Notifier(core, self, "dsh-creations")
        self._thread = 0
        # The parent of a child, and the link that it may be behind, do not wait for a roll-back.
        self.factory.prepare = lambda is_root: Preparation(
            core, self, (), None, None, waits=is_root
        )
        self.boundaries = self.factory.boundaries = Boundaries(core, self)
        self.delivery.why_over_budget = self.boundaries.why
        self.factory.discard = lambda node: self.post(self.teardown.end_naturally, node)
        self.delivery.not_stored = lambda node, error: self.post(
            self.teardown.not_stored, node, error
        )

    # -- work in order -------------------------------------------------------------------------

    def post(self, work: Callable[..., Any], *args: Any) -> None:
        """Have something done on the supervisor's thread, after what was posted before."""
        self._work.append((work, args))
        self.actor_inbox.ring()

    def on_doorbell(self) -> None:
        """Do what was posted. One failing piece is logged and fails nothing else."""
        work = self._work
        for _ in range(self.core.runtime.work_per_visit):
            try:
                function, args = work.popleft()
            except IndexError:
                return
            try:
                function(*args)
            except BaseException as error:
                if passes(error):
                    self.actor_inbox.ring()
                    raise
                self.core.log.exception("an effect of the supervisor failed")
        self.actor_inbox.ring()

    def serve(self) -> bool:
        """Do what was posted; notes on which thread, since nothing may wait there."""
        self._thread = get_ident()
        try:
            return super().serve()
        finally:
            self._thread = 0

    def may_wait(self) -> bool:
        """Whether this thread may wait for a teardown: not if the teardown needs it."""
        here = get_ident()
        return (
            self.core.runtime.may_wait
            and here != self._thread
            and here != self.host.loop.ident
            and not self.listeners.notifier.is_here
        )

    # -- restart -------------------------------------------------------------------------------

    def restart(self, node: Node, spec: Spec, run: OneShot | None) -> None:
        """Start an agent again, with its id, its place and the prompts that it had not begun."""
        if self.listeners.wanted:
            # They are user code, which may take its time: not on this thread.
            self.creations.do(lambda: self._restart(node, spec, run))
        else:
            self._restart(node, spec, run)

    def _restart(self, node: Node, spec: Spec, run: OneShot | None) -> None:
        if node.successor is not None:
            return
        parent = node.parent
        kept = bool(node.agent.kept)
        if run is not None:
            run.outcome = None
        try:
            if node.life is not None and node.life.stored and self.core.journal is not None:
                self.core.journal.store.acquire([node.life.session])
            successor = self.factory.create(
                spec,
                id=node.id,
                parent=parent,
                one_shot=run,
                turn=node.turn,
                still_wanted=lambda: (
                    node.restarting and (run is None or parent is None or _runs(parent, node.turn))
                ),
                follows=node,
            )
        except BaseException as error:
            if passes(error):
                raise
            self.core.log.warning("an agent was not restarted", agent=node.id, error=str(error))
            with self.core.lock:
                for ownership in self.core.owned.pop(node.generation, ()):
                    ownership.untrack_locked(node)
            if node.bounds is not None:
                with self.core.lock:
                    self.boundaries.close_locked(node)
            self.fail_kept(node)
            if run is not None:
                run.sink(("lost", None, None, node.detail, ""))
            return
        what = "agent/restarted" if node.outcome == "lost" else "agent/resumed"
        self.core.emit(what, agent=node.id, pid=successor.agent.pid, reason=node.detail)
        if run is not None and (node.agent.kept or not kept):
            node.agent.kept = []
            self.factory.give_message(successor, run)
        if node.agent.kept:
            self.fail_kept(node)
        if spec.children:
            self.start_children(successor, spec.children)

    def fail_kept(self, node: Node) -> None:
        """Nobody takes over what a lost agent had accepted."""
        with self.core.lock:
            node.restarting = False
            kept, node.agent.kept = node.agent.kept, []
            life = node.life
            logged = (
                [each.id for each in kept if life.taken_over(each.id) is not None]
                if life is not None
                else []
            )
        journal = self.core.journal
        if journal is not None:
            journal.discarded(node, node.closing or "disposed", logged)
            if life is not None and life.unended:
                life.unended = False
                journal.end(node)
        failure: DshActorsError = AgentLost(f"agent {node.id!r} was lost: {node.detail}")
        if node.outcome != "lost":
            failure = AgentGone(f"agent {node.id!r} has settled and cannot go on any more")
        for message in kept:
            if message.reply is not None:
                message.reply.fail(failure)
            if message.committed is not None:
                message.committed.try_set_error(failure)

    # -- Post: what agents in this process reach others by --------------------------------------

    def agent(self, node: Node) -> Agent:
        """The agent of a node, to talk to."""
        session = self.core.sessions.get(node.generation)
        if session is None and node.life is not None:
            session = node.life.session
        return Agent(self, node, node.id, session)

    def send(self, target: Node, kind: Kind, body: bytes) -> int:
        """See :class:`~dsh_actors.agents.handle.Post`."""
        if target.continuable is not None:
            self.settlement.check_delivery(self.sender(), target.latest)
        if self.core.journal is None:
            return self.delivery.deliver(target, kind, body, None)
        return self.delivery.send(target, kind, body)

    def ask(self, target: Node, kind: Kind, body: bytes) -> Future[Any]:
        """See :class:`~dsh_actors.agents.handle.Post`."""
        if target.continuable is not None:
            self.settlement.check_delivery(self.sender(), target.latest)
        return self.delivery.ask(target, kind, body)

    def cancel(self, target: Node, *, tree: bool, keep_inbox: bool) -> None:
        """See :class:`~dsh_actors.agents.handle.Post`."""
        sender = self.sender()
        self.settlement.check_interrupt(sender, target.latest)
        cause: Cause = "user" if sender is None else "parent"
        self.cancel_as(target, cause, tree=tree, keep_inbox=keep_inbox)

    def sender(self) -> Node | None:
        """The agent of this system on whose behalf the calling code runs; None for the user."""
        turn = current_turn.get()
        if turn is None or turn._actor.host is not self.host:
            return None
        node: Node = turn._actor.key
        return node

    def cancel_as(self, target: Node, cause: Cause, *, tree: bool, keep_inbox: bool) -> None:
        """Cancel with a cause."""
        self.teardown.cancel_work(target.latest, tree=tree, keep_inbox=keep_inbox, cause=cause)

    def status(self, target: Node) -> str:
        """The public status of an agent."""
        node = target.latest
        with self.core.lock:
            return self.status_locked(node)

    def status_locked(self, node: Node) -> str:
        """The same, with the lock held."""
        if node.disposal is not None and node.disposal.done:
            return "lost" if node.outcome == "lost" else "settled"
        if node.closing is not None:
            return "stopping"
        agent = node.agent
        if agent.lost:
            return "stopping"
        if not agent.is_set_up or node.generation in self.core.publishing:
            return "preparing"
        if agent.is_running:
            return "running"
        return "waiting" if node.children else "idle"

    def when_idle(self, target: Node) -> Future[None]:
        """See :class:`~dsh_actors.agents.handle.Post`."""
        node = target.latest
        waiter: Future[None] = Awaited()
        with self.core.lock:
            quiet = (
                node.disposal is not None and node.disposal.done
            ) or self.teardown.is_quiet_locked(node)
            if not quiet:
                self.core.idle_waiters.setdefault(node.generation, []).append(waiter)
        if quiet:
            waiter.set_result(None)
        return waiter

    # -- declared trees ------------------------------------------------------------------------

    def start_children(self, parent: Node, specs: tuple[tuple[str, Spec], ...]) -> None:
        """Start the declared children of an agent, and theirs.

        Those of an agent that was started again go on with their sessions.
        """
        for id, spec in specs:
            life = self.declared_life(parent, spec)
            if life is not None and life.tombstone is not None:
                continue
            child = self.factory.create(spec, id=id, parent=parent, life=life)
            if spec.children:
                self.start_children(child, spec.children)

    def declared_life(self, parent: Node, spec: Spec) -> Life | None:
        """What a declared child goes on with if its parent is started again."""
        if self.core.journal is not None and parent.life is not None:
            if spec.life is None:
                spec.life = Life(spec, settles=False)
            spec.life.goes_on = True
        return spec.life


def _runs(parent: Node, turn: int) -> bool:
    """Whether the turn of the parent that started a one-shot still runs and is not cancelled."""
    agent = parent.agent
    if hasattr(agent, "running"):
        running = agent.running
        return running is not None and running.number == turn and running.signal.cause is None
    return bool(agent.turn == turn)
