"""How trees of agents come to be: as a tree file declares them, from their logs, or from both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.errors import SessionNotFound, StoreError, UsageError
from dsh_actors.supervisor.bounds import declared_limits
from dsh_actors.supervisor.preparation import Preparation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.agents.abort import AbortSignal
    from dsh_actors.agents.handle import AgentHandle
    from dsh_actors.config.spec import AgentSpec, TreeSpec
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.slots import LaunchIdentity, Slots
    from dsh_actors.supervisor.core import Core, Spec
    from dsh_actors.supervisor.ownership import AgentFactory, Ownership
    from dsh_actors.supervisor.plans import Place, Plan
    from dsh_actors.supervisor.resume import Resume
    from dsh_actors.supervisor.supervisor import Supervisor


class Opening:
    """The part of :class:`dsh_actors.ActorSystem` that starts and resumes trees."""

    _core: Core
    _supervisor: Supervisor
    _handle: Callable[[Node], AgentHandle]
    _check_fork: Callable[[], None]
    _initiator: Callable[[], tuple[Node | None, Callable[[], bool] | None]]

    if TYPE_CHECKING:

        @property
        def configuration(self) -> AgentFactory:
            """The factory of what tree files declare."""

        @property
        def slots(self) -> Slots:
            """What the launcher gave."""

    def resume(self, session_id: str) -> AgentHandle:
        """Bring the agent of a stored session back, with the whole tree below it.

        Each agent has the id, depth, policy and session that it had, and what is left of its
        budget. Prompts that had been accepted are in the inboxes again, under the same ids; a turn
        that was cut off is closed in the log as ``interrupted``, and its prompts are tried again
        or failed, as the agent's ``interrupted`` says. Children that were live are started again;
        those of ``turn.spawn`` sleep until somebody sends to them. What cannot come back, such as
        one-shot runs, is settled as ``lost``.

        The wall time of a budget goes on where it stood at the last event of the old system.

        Parameters:
            session_id: the session of the agent at the top. If that had ended, it comes back idle.

        Returns:
            The handle; its ``resumed`` says what came back.

        Raises:
            SessionNotFound: there is no such session. Nothing was created.
            SessionHeld: another process works on it.
            StoreError: it cannot be read, or is live in this system.
            BehaviourError: the behaviour of the agent at the top cannot be found any more.
            UsageError: this system has no store.
            DuplicateId, AdmissionRefused, SystemClosed, WorkerStartError: as for ``create``.
        """
        from dsh_actors.supervisor.plans import Place

        self._check_fork()
        parent, wanted = self._initiator()
        run = self._resumption(session_id, parent, wanted, ())
        plan: Plan | None = None
        try:
            plan = run.read(session_id)
            plan.judge(top=True)
            run.make_room([plan])
            node = run.bring(Place.of(plan))
        except BaseException as error:
            run.over()
            self._start_failed(None if plan is None else plan.id, session_id, error)
            raise
        report = run.end()
        handle = self._handle(node)
        handle.resumed = report
        return handle

    def start_tree(
        self,
        spec: TreeSpec,
        *,
        factory: AgentFactory | None = None,
        identities: Mapping[str, LaunchIdentity] | None = None,
    ) -> list[AgentHandle]:
        """Create the agents that a tree file declares, with their children below them.

        Parameters:
            spec: the loaded file.
            factory: what owns them; by default :attr:`configuration`.
            identities: the sessions that agents are bound to, by their configured ids; by default
                those of the :attr:`slots`. An agent that is to be resumed goes on with its log, as
                with :meth:`resume`: behaviour, isolation and arguments are the file's, and it may
                do what both allow. The others are created fresh.

        Returns:
            The handles of the roots, in the order of the file. They may be dropped.

        Raises:
            SessionNotFound: an agent is to be resumed, and has no log. Nothing was created.
            StoreError: a log cannot be read, or one that is to be new exists already.
            SessionHeld: another process works on it.
            UsageError: an agent is to be resumed, and this system has no store.
            BehaviourError, DuplicateId, SystemClosed, WorkerStartError: what had been created
                stays until its factory is disposed, or the system ends.
        """
        self._check_fork()
        owner = factory if factory is not None else self.configuration
        parent, wanted = self._initiator()
        bound = self.slots.identities if identities is None else identities
        if bound:
            return self._start_bound(spec, bound, parent, wanted, owner)
        handles = []
        for declared in spec.agents:
            made = self._spec(declared)
            node = self._publish(made, declared.id, parent, wanted, (owner,), None, None)
            handles.append(self._handle(node))
            self._supervisor.start_children(node, made.children)
        return handles

    def _start_bound(
        self,
        spec: TreeSpec,
        identities: Mapping[str, LaunchIdentity],
        parent: Node | None,
        wanted: Callable[[], bool] | None,
        owner: AgentFactory,
    ) -> list[AgentHandle]:
        if self._core.journal is None:
            for agent, identity in identities.items():
                if identity.resume:
                    error = UsageError(
                        f"agent {agent!r} cannot go on with session {identity.id!r}: this system "
                        "has no store"
                    )
                    self._start_failed(agent, identity.id, error)
                    raise error
            return self.start_tree(spec, factory=owner, identities={})
        run = self._resumption("", parent, wanted, (owner,))
        places: list[Place] = []
        nodes: list[Node] = []
        try:
            plans: list[Plan] = []
            places += [self._place(each, identities, run, None, plans) for each in spec.agents]
            run.make_room(plans)
            for place in places:
                try:
                    nodes.append(run.bring(place))
                except Exception as error:
                    self._tell_failed(place, error)
                    raise
        except BaseException:
            if nodes:
                run.end()  # what was created stays
            run.over()
            raise
        report = run.end()
        handles = []
        for node, place in zip(nodes, places, strict=True):
            handle = self._handle(node)
            if place.plan is not None:
                handle.resumed = report
            handles.append(handle)
        return handles

    def _place(
        self,
        declared: AgentSpec,
        identities: Mapping[str, LaunchIdentity],
        run: Resume,
        found: Plan | None,
        plans: list[Plan],
    ) -> Place:
        """Where a declared agent gets its history from, and those below it.

        Parameters:
            found: what the log of its parent has for it.
            plans: gets every log that is read.
        """
        from dsh_actors.supervisor.plans import LIVE, LOST, Place

        identity = identities.get(declared.id)
        plan, session = found, None
        if identity is not None and (found is None or found.session != identity.id):
            plan = None
            try:
                if identity.resume:
                    plan = run.read(identity.id)
                    plan.declared = declared
                    plan.judge(top=True)
                    plans.append(plan)
                else:
                    self._check_new(identity.id)
                    session = identity.id
            except Exception as error:
                self._start_failed(declared.id, identity.id, error)
                raise
        place = Place(plan, declared, session)
        newest: dict[str, Plan] = {}
        if plan is not None:
            plan.declared = declared
            newest = {
                child.header.agent_id: child
                for child in plan.children
                if not child.one_shot and not child.settles
            }
        taken = set()
        for child in declared.children:
            known = newest.get(child.id)
            if known is not None and known.state != LOST:
                # The file says that it is to be there, whatever its log says of its end.
                known.declared = child
                known.state = LIVE
                taken.add(known.session)
            else:
                known = None
            place.children.append(self._place(child, identities, run, known, plans))
        if plan is not None:
            left = [child for child in plan.children if child.session not in taken]
            place.children += [Place.of(child) for child in left]
        return place

    def _check_new(self, session_id: str) -> None:
        """Logs are never overwritten.

        Raises:
            SessionHeld: somebody works on it.
            StoreError: there is such a session.
        """
        core = self._core
        assert core.journal is not None
        store = core.journal.store
        with core.lock:
            live = session_id in core.resuming or session_id in core.sessions.values()
        if live:
            raise StoreError(f"session {session_id!r} is live in this system already")
        try:
            store.family(session_id)
        except SessionNotFound:
            return
        store.acquire([session_id])  # names who holds it, if somebody does
        store.release(session_id)
        raise StoreError(
            f"session {session_id!r} exists already, and a log is never overwritten; resume it, or "
            "choose another id"
        )

    def _resumption(
        self,
        session_id: str,
        parent: Node | None,
        wanted: Callable[[], bool] | None,
        ownerships: tuple[Ownership, ...],
    ) -> Resume:
        from dsh_actors.supervisor.resume import Resume

        if self._core.journal is None:
            raise UsageError(
                f"session {session_id!r} cannot be resumed: this system has no store; give it the "
                "one that the session is in"
            )
        return Resume(self._core, self._supervisor, parent, wanted, ownerships)

    def _tell_failed(self, place: Place, error: BaseException) -> None:
        if place.plan is not None:
            self._start_failed(place.plan.id, place.plan.session, error)
        elif place.session is not None:
            assert place.declared is not None
            self._start_failed(place.declared.id, place.session, error)

    def _start_failed(self, agent: str | None, session: str, error: BaseException) -> None:
        self._core.emit("agent/start-failed", agent=agent, session=session, error=str(error))

    # -- declared trees ------------------------------------------------------------------------

    def _publish(
        self,
        spec: Spec,
        id: str | None,
        parent: Node | None,
        wanted: Callable[[], bool] | None,
        ownerships: tuple[Ownership, ...],
        signal: AbortSignal | None,
        setup: Callable[[Preparation], Any] | None,
    ) -> Node:
        maker = self._supervisor.factory
        preparation = Preparation(self._core, self._supervisor, ownerships, signal, setup)
        return preparation.publish(
            lambda made: maker.create(
                spec, id=id, parent=parent, still_wanted=wanted, preparation=made
            )
        )

    def _spec(self, declared: AgentSpec) -> Spec:
        spec = self._supervisor.factory.spec(
            declared.behaviour,
            declared.isolation,
            declared.restart,
            dict(declared.args) or None,
            declared_limits(declared.policy, declared.budget),
            declared.interrupted,
        )
        spec.declared = True
        spec.children = tuple((child.id, self._spec(child)) for child in declared.children)
        return spec
