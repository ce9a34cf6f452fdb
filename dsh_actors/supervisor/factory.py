"""Creation and restart. The factory co-owns every agent that it made, from prepared to torn down.

Admission, registration and everything that depends on them are one critical section: an agent
is either seen by the mark of a stop, or refused by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import codec, gates
from dsh_actors.agents.actor import STARTING
from dsh_actors.agents.behaviour import INTERRUPTED, interrupted_by, reference, resolve
from dsh_actors.agents.message import FOLLOW_UP
from dsh_actors.errors import AgentGone, Cancelled, DshActorsError, StoreError, UsageError
from dsh_actors.supervisor.bounds import Boundaries, Limits
from dsh_actors.supervisor.core import OneShot, Spec
from dsh_actors.supervisor.lives import Life
from dsh_actors.supervisor.sleepers import wakes_locked
from dsh_actors.workers.remote import RemoteAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.behaviour import InterruptedPolicy
    from dsh_actors.agents.host import AgentHost
    from dsh_actors.agents.message import Message
    from dsh_actors.agents.turn import Request
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.delivery import Delivery
    from dsh_actors.supervisor.preparation import Preparation
    from dsh_actors.workers.pool import WorkerPool

ISOLATIONS = ("inline", "pool", "own")
RESTARTS = ("permanent", "transient", "temporary")


class Factory:
    """Makes agents. From any thread."""

    def __init__(self, core: Core, host: AgentHost, pool: WorkerPool, delivery: Delivery) -> None:
        self._core = core
        self._host = host
        self._pool = pool
        self._delivery = delivery
        self.prepare: Callable[[bool], Preparation] | None = None
        """Makes the preparation of an agent that is to be announced; True for a root."""
        self.listeners_wanted: Callable[[], bool] = bool
        """Whether anybody listens to creations."""
        self.discard: Callable[[Node], None]
        """Takes an agent back that got no first message."""
        self.boundaries: Boundaries
        """Limits what agents may do and use."""
        self._max_depth = core.settings.max_depth

    def create(
        self,
        spec: Spec,
        *,
        id: str | None = None,
        parent: Node | None = None,
        one_shot: OneShot | None = None,
        turn: int = 0,
        still_wanted: Callable[[], bool] | None = None,
        follows: Node | None = None,
        preparation: Preparation | None = None,
        life: Life | None = None,
    ) -> Node:
        """Make one agent, live and addressable when this returns.

        Parameters:
            spec: what it is to be.
            id: its id; None makes one from the name of its behaviour.
            parent: its owner; None for a root.
            one_shot: makes it a one-shot run, with its only message.
            turn: the parent's turn that starts a one-shot run.
            still_wanted: asked in the section that registers the agent; False refuses it.
            follows: the earlier life of this agent, whose accepted messages it takes over.
            preparation: what may abort it, and announces it; made if anybody listens.
            life: what its lives share, for a child that settles or one from the store.

        Raises:
            BehaviourError: the behaviour cannot be found, or not run in that isolation.
            DuplicateId, AdmissionRefused, SystemClosed: it was refused, and nothing is left.
            DepthExceeded, PolicyError, BudgetExceeded: it may not start; nothing was carved.
            WorkerStartError: its process cannot be started.
            Cancelled: it is not wanted any more.
        """
        if not (id is None or (isinstance(id, str) and id)):
            raise UsageError(f"the id of an agent is a text, not {id!r}")
        core = self._core
        if preparation is None and self.prepare is not None and self.listeners_wanted():
            return self.prepare(parent is None).publish(
                lambda made: self.create(
                    spec, id=id, parent=parent, one_shot=one_shot, turn=turn,
                    still_wanted=still_wanted, follows=follows, preparation=made,
                    life=life,
                )
            )  # fmt: skip
        if follows is not None:
            life = follows.life
        elif life is None and spec.restart != "temporary" and spec.isolation != "inline":
            life = Life(spec, settles=False)
        node: Node | None = None
        if spec.isolation == "inline":
            target = resolve(spec.behaviour)
            if core.journal is not None and spec.interrupted is None:
                spec.interrupted = interrupted_by(target.target)
            id = id or core.next_name(target.name)
            if gates.plan is not None:
                gates.plan.reach("prepared", id)
            with core.lock:
                if preparation is not None:
                    preparation.assert_live()
                node = self._enter_locked(
                    id, parent, spec, one_shot, turn, still_wanted, life, follows,
                    preparation is not None,
                )  # fmt: skip
                agent = node.agent = self._host.start(id, node, target, spec.args)
                if node.bounds is not None:
                    agent.policy = node.bounds.policy
                    agent.meter = node.bounds if node.bounds.account is not None else None
                if life is not None:
                    agent.turns, agent.remembered = life.turns, life.remembered
                    if life.calls:
                        from dsh_actors.agents.calls import Earlier

                        agent.earlier = Earlier(life.calls)
                agent.reports = core.journal is not None or core.observer is not None
                if preparation is not None:
                    preparation.entered_locked(node)
                self._register_locked(node, spec, one_shot, follows)
            if agent.state == STARTING or follows is not None:
                agent.ring()
            name = target.name
        else:
            name = reference(spec.behaviour)
            if not isinstance(spec.behaviour, str):
                resolve(spec.behaviour)  # what is wrong with it is better said here
            args = codec.encode(spec.args) if spec.args else None
            id = id or core.next_name(name)
            if follows is None:
                self.boundaries.check(parent, spec)  # before a process starts for it
            while node is None:
                worker = self._pool.place(spec.isolation == "own")
                if gates.plan is not None:
                    gates.plan.reach("prepared", id)
                try:
                    with core.lock:
                        if worker.dead:
                            continue  # it died in between, and takes no agents any more
                        if preparation is not None:
                            preparation.assert_live()
                        node = self._enter_locked(
                            id, parent, spec, one_shot, turn, still_wanted, life, follows,
                            preparation is not None,
                        )  # fmt: skip
                        remote = node.agent = RemoteAgent(worker, node)
                        earlier = None
                        if life is not None and (life.turns or life.remembered or life.calls):
                            earlier = [life.turns, life.remembered, life.calls]
                        bounds = node.bounds
                        remote.start(
                            id, name, args, reports=core.reports(spec) or bounds is not None,
                            life=earlier, limits=None if bounds is None else bounds.to_plain(),
                        )  # fmt: skip
                        core.specs[node.generation] = spec
                        if preparation is not None:
                            preparation.entered_locked(node)
                        self._register_locked(node, spec, one_shot, follows)
                finally:
                    if worker.own and node is None:
                        self._pool.end(worker, "not needed", force=False)
            worker.flush()
        if gates.plan is not None:
            gates.plan.reach("entered", id)
        if core.observer is not None:
            core.emit(
                "agent/started", agent=id, parent=parent.id if parent is not None else None,
                isolation=spec.isolation, pid=node.agent.pid, behaviour=name,
            )  # fmt: skip
        if gates.plan is not None and preparation is None:
            gates.plan.reach("announced", id)
        node.creating = False
        if core.draining is not None:
            core.draining.created(node)
        return node

    def _enter_locked(
        self,
        id: str,
        parent: Node | None,
        spec: Spec,
        one_shot: OneShot | None,
        turn: int,
        still_wanted: Callable[[], bool] | None,
        life: Life | None,
        follows: Node | None,
        pending: bool,
    ) -> Node:
        if still_wanted is not None and not still_wanted():
            raise Cancelled("parent")
        tree = self._core.tree
        node = tree.prepare(id, parent, one_shot=one_shot is not None)
        if spec.limits is not None or (
            parent is not None and (parent.bounds is not None or node.depth > self._max_depth)
        ):
            self.boundaries.open_locked(node, spec, follows)
        try:
            tree.enter(node)
            node.turn = turn
            if life is not None:
                node.life = life
                node.continuable = life if life.settles else None
            if self._core.journal is not None:
                self._core.journal.open_locked(node, spec, announced=not pending)
        except BaseException:  # nobody has seen it yet
            if tree.remove(node):
                tree.release(node)
            if node.bounds is not None:
                self.boundaries.undo_locked(node, spec, follows)
            raise
        return node

    def _register_locked(
        self, node: Node, spec: Spec, one_shot: OneShot | None, follows: Node | None
    ) -> None:
        core = self._core
        if one_shot is not None:
            core.runs[node.generation] = one_shot
        if core.observer is not None:
            core.started_at[node.generation] = core.runtime.now()
        if follows is not None:
            # In one section: what was kept is taken over, and whatever comes now comes here.
            follows.successor = node
            if follows.life is not None:
                wakes_locked(follows, node)
            owned = core.owned.pop(follows.generation, ())
            for ownership in owned:
                ownership.succeeded_locked(follows, node)
            if owned:
                core.owned[node.generation] = owned
            kept = follows.agent.kept
            follows.agent.kept = [
                message for message in kept if not self._accepted_locked(node, message)
            ]

    def _accepted_locked(self, node: Node, message: Message) -> bool:
        held = self._core.publishing.get(node.generation)
        if held is not None:
            held.append(message)
            return True
        try:
            self._delivery.accept_locked(node, message)
        except StoreError:
            return False
        return True

    def spec(
        self,
        behaviour: Any,
        isolation: str | None,
        restart: str,
        args: dict[str, Any] | None,
        limits: Limits | None = None,
        interrupted: InterruptedPolicy | None = None,
    ) -> Spec:
        """Check what was asked for.

        Raises:
            UsageError: a value that is none of the possible ones.
        """
        isolation = isolation or "inline"
        if isolation not in ISOLATIONS:
            raise UsageError(f"isolation must be one of {', '.join(ISOLATIONS)}, not {isolation!r}")
        if restart not in RESTARTS:
            raise UsageError(f"restart must be one of {', '.join(RESTARTS)}, not {restart!r}")
        spec = Spec(behaviour, isolation, restart, args)  # type: ignore[arg-type]
        spec.limits = limits
        if interrupted is not None:
            if interrupted not in INTERRUPTED:
                raise UsageError(
                    f"interrupted must be one of {', '.join(INTERRUPTED)}, not {interrupted!r}"
                )
            spec.interrupted = interrupted
        elif self._core.journal is not None and not isinstance(behaviour, str):
            spec.interrupted = interrupted_by(behaviour)
        return spec

    def _spec_of(self, request: Request) -> Spec:
        limits = None
        if request.policy is not None or request.budget is not None:
            limits = Limits.asked(request.policy, request.budget)
        return self.spec(
            request.behaviour, request.isolation, request.restart, request.args, limits,
            request.interrupted,
        )  # fmt: skip

    def run(
        self,
        parent: Node,
        turn: int,
        request: Request,
        body: bytes,
        chain: tuple[str, ...],
        sink: Callable[[tuple[Any, ...]], None],
        still_wanted: Callable[[], bool],
    ) -> Node:
        """Start a one-shot child of a turn and give it its message."""
        spec = self._spec_of(request)
        one_shot = OneShot(sink, body, chain)
        node = self.create(
            spec, id=request.id, parent=parent, one_shot=one_shot, turn=turn,
            still_wanted=still_wanted,
        )  # fmt: skip
        self.give_message(node, one_shot)
        return node

    def give_message(self, node: Node, one_shot: OneShot) -> None:
        """Deliver the only message of a one-shot run. If that fails, that is its end."""
        try:
            self._delivery.deliver(node, FOLLOW_UP, one_shot.body, None, one_shot.chain)
        except AgentGone:
            # Marked between its creation and here. Its disposal settles the outcome.
            return
        except StoreError as error:
            self._delivery.not_stored(node, error)

    def spawn(
        self, parent: Node, request: Request, body: bytes, still_wanted: Callable[[], bool]
    ) -> Node:
        """Start a continuable child and give it its first message."""
        spec = self._spec_of(request)
        node = self.create(
            spec,
            id=request.id,
            parent=parent,
            still_wanted=still_wanted,
            life=Life(spec, settles=True),
        )
        try:
            self._delivery.deliver(node, FOLLOW_UP, body, None)
        except DshActorsError:
            self.discard(node)
            raise
        return node
