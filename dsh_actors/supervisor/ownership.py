"""Who owns agents together with their parent: factories and owners.

An agent belongs to the factory that made it and to the owner in whose name it was made. Either
one that ends takes it along, and whoever holds its handle can: all reach one teardown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.actors.future import Future
from dsh_actors.errors import AdmissionRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.handle import AgentHandle
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.preparation import Preparation
    from dsh_actors.supervisor.supervisor import Supervisor


class Ownership:
    """Tracks agents from *prepared* to *torn down*, and tears down what is left when it ends.

    Parameters:
        name: names it in errors.
        gone: what a refused creation is told, e.g. ``owner plugin-a was unloaded``.
    """

    def __init__(self, core: Core, supervisor: Supervisor, name: str, gone: str) -> None:
        self.name = name
        self._core = core
        self._supervisor = supervisor
        self._gone = gone
        # The rest is guarded by the lock of the tree, in one section with each admission.
        self._accepting = True
        self._preparing: dict[Preparation, None] = {}
        self._live: dict[int, Node] = {}
        self._starting: set[Future[Any]] = set()
        self._inactive: Future[None] = Future()
        self._end: Future[None] | None = None

    # -- membership, with the lock held ------------------------------------------------------------

    def track_locked(self, preparation: Preparation) -> None:
        """Take a creation in, before anything of it is visible.

        Raises:
            AdmissionRefused: this has ended, or is about to.
        """
        if not self._accepting:
            raise AdmissionRefused(self._gone)
        self._preparing[preparation] = None

    def entered_locked(self, preparation: Preparation, node: Node) -> None:
        """What was prepared lives now."""
        self._preparing.pop(preparation, None)
        self._live[node.generation] = node

    def untrack_locked(self, preparation: Preparation | None, node: Node | None) -> None:
        """A creation was rolled back, or an agent is completely gone."""
        if preparation is not None:
            self._preparing.pop(preparation, None)
        if node is not None:
            self._live.pop(node.generation, None)

    # -- use ---------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether agents can still be made here."""
        return self._accepting

    @property
    def agents(self) -> list[str]:
        """The ids of the agents that it owns, those in preparation left out."""
        with self._core.lock:
            return [node.id for node in self._live.values()]

    def create(self, behaviour: Any, **options: Any) -> AgentHandle:
        """Create an agent that this co-owns; see :meth:`dsh_actors.ActorSystem.create`."""
        raise NotImplementedError

    def while_active(self, waiting: Future[Any]) -> Future[bool]:
        """Wait for something as long as this is active.

        Returns:
            A future of True once ``waiting`` is done, or of False once this has begun to end.
        """
        result: Future[bool] = Future()
        waiting.add_done_callback(lambda _: result.try_set_result(True))
        self._inactive.add_done_callback(lambda _: result.try_set_result(False))
        return result

    def start_up(self, task: Future[Any]) -> None:
        """Have the end of this wait for a start-up task.

        Raises:
            AdmissionRefused: this has ended, or is about to.
        """
        with self._core.lock:
            if not self._accepting:
                raise AdmissionRefused(self._gone)
            self._starting.add(task)
        task.add_done_callback(lambda done: self._started(task))

    def _started(self, task: Future[Any]) -> None:
        with self._core.lock:
            self._starting.discard(task)

    def dispose(self) -> Future[None]:
        """End it: refuse what is new, abort what is in preparation, tear down what lives.

        All callers share one outcome. Order and parallelism are those of the seed's
        ``FactoryOwnership.dispose``.

        Returns:
            A future that is done when every agent is torn down and every start-up task has
            settled; an ``ExceptionGroup`` of what failed, if anything did.
        """
        with self._core.lock:
            if self._end is not None:
                return self._end
            end = self._end = Future()
            self._accepting = False
            preparing = list(self._preparing)
            live = list(self._live.values())
            starting = list(self._starting)
        for preparation in preparing:
            preparation.abort(AdmissionRefused(self._gone))
        self._inactive.try_set_result(None)
        stops = self._supervisor.teardown.stop_several(live, "disposed")
        waits: list[Future[Any]] = [*stops, *starting, *(p.rolled_back for p in preparing)]
        settle_together(waits, end)
        return end


def settle_together(waits: list[Future[Any]], end: Future[None]) -> None:
    """Settle one future when several are done: with what failed of them, if anything did."""
    left = len(waits)
    if not left:
        end.try_set_result(None)
        return
    arrived: list[None] = []

    def one_more(_: Future[Any]) -> None:
        arrived.append(None)  # atomic, where a counter would not be
        if len(arrived) == left:
            failures = [error for error in (wait.exception(0) for wait in waits) if error]
            problems = [error for error in failures if isinstance(error, Exception)]
            if problems:
                end.try_set_error(ExceptionGroup("not everything ended well", problems))
            else:
                end.try_set_result(None)

    for wait in waits:
        wait.add_done_callback(one_more)


class Owner(Ownership):
    """In whose name agents are made: a plugin, a request, a part of a program.

    Made by :meth:`dsh_actors.ActorSystem.owner`. When it is unloaded, its agents end.
    """

    def __init__(
        self,
        core: Core,
        supervisor: Supervisor,
        name: str,
        create: Callable[..., AgentHandle],
    ) -> None:
        super().__init__(core, supervisor, name, f"owner {name!r} was unloaded")
        self._create = create

    def create(self, behaviour: Any, **options: Any) -> AgentHandle:
        """Create an agent that this owner and its factory co-own."""
        return self._create(behaviour, owner=self, **options)

    def unload(self) -> Future[None]:
        """End it with all of its agents: another name of :meth:`dispose`."""
        return self.dispose()


class AgentFactory(Ownership):
    """Makes agents, and tears all of them down when it is disposed.

    Made by :meth:`dsh_actors.ActorSystem.factory`.
    """

    def __init__(
        self,
        core: Core,
        supervisor: Supervisor,
        name: str,
        create: Callable[..., AgentHandle],
    ) -> None:
        super().__init__(core, supervisor, name, f"factory {name!r} is not active")
        self._create = create

    def create(self, behaviour: Any, **options: Any) -> AgentHandle:
        """Create an agent that this factory tracks from its preparation on."""
        return self._create(behaviour, factory=self, **options)
