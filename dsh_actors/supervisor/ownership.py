"""Who owns agents together with their parent: factories and owners.

An agent belongs to the factory that made it and to the owner in whose name it was made. Either
one that ends takes it along, and whoever holds its handle can: all reach one teardown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.agents.waiting import Awaited
from dsh_actors.errors import AdmissionRefused
from dsh_actors.supervisor.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
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
        self._waiting: set[Future[bool]] = set()
        self._end: Future[Receipt] | None = None

    # -- membership, with the lock held ------------------------------------------------------------

    def check_locked(self, core: Core) -> None:
        """Whether a creation of this system may begin.

        Raises:
            AdmissionRefused: this has ended, or is about to; or it is another system's.
        """
        if core is not self._core:
            raise AdmissionRefused(f"{self.name!r} belongs to another system")
        if not self._accepting:
            raise AdmissionRefused(self._gone)

    def track_locked(self, preparation: Preparation) -> None:
        """Take a creation in, before anything of it is visible."""
        self._preparing[preparation] = None

    def entered_locked(self, node: Node) -> None:
        """What was prepared is visible now; it is not published yet."""
        self._live[node.generation] = node

    def settled_locked(self, preparation: Preparation) -> None:
        """A creation is through: published, or rolled back."""
        self._preparing.pop(preparation, None)

    def succeeded_locked(self, node: Node, successor: Node) -> None:
        """An agent was started again: the ownership goes on."""
        self._live.pop(node.generation, None)
        self._live[successor.generation] = successor

    def untrack_locked(self, node: Node) -> None:
        """An agent is completely gone."""
        self._live.pop(node.generation, None)

    # -- use ---------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether agents can still be made here."""
        return self._accepting

    @property
    def agents(self) -> list[str]:
        """The ids of the agents that it owns, those of which nothing is visible left out."""
        with self._core.lock:
            return [node.id for node in self._live.values()]

    @property
    def preparing(self) -> int:
        """How many creations are under way."""
        with self._core.lock:
            return len(self._preparing)

    def while_active(self, waiting: Future[Any]) -> Future[bool]:
        """Wait for something as long as this is active.

        Returns:
            A future of True once ``waiting`` is done, or of False once this has begun to end.
        """
        result: Future[bool] = Awaited()
        with self._core.lock:
            if self._accepting:
                self._waiting.add(result)
            else:
                result.try_set_result(False)

        def done(_: Future[Any]) -> None:
            with self._core.lock:
                self._waiting.discard(result)
            result.try_set_result(True)

        waiting.add_done_callback(done)
        return result

    def when_free(self, id: str) -> Future[bool]:
        """Wait, as long as this is active, until an agent that is ending has left its id free.

        Returns:
            A future of whether the id is free: True at once if nobody has it, False at once if
            whoever has it is not ending, and False once this has begun to end.
        """
        core = self._core
        with core.lock:
            node = core.tree.nodes.get(id)
            ending = node is not None and node.closing is not None
        if node is not None and ending:
            # Joins the stop that is under way, and takes nothing back that may follow it.
            stop = self._supervisor.teardown.stop(node, "disposed", lost=True)
            return self.while_active(stop)
        result: Future[bool] = Awaited()
        result.set_result(node is None)
        return result

    def start_up(self, task: Future[Any]) -> None:
        """Have the end of this wait for a start-up task.

        Raises:
            AdmissionRefused: this has ended, or is about to.
        """
        with self._core.lock:
            self.check_locked(self._core)
            self._starting.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: Future[Any]) -> None:
        with self._core.lock:
            self._starting.discard(task)

    def dispose(self) -> Future[Receipt]:
        """End it. All callers share one outcome, and what is new is refused from here on.

        In this order: creations under way are aborted, whoever waits while this is active is
        released, and everything that lives is stopped at once; then all are awaited, together
        with the start-up tasks.

        Returns:
            A future of the receipt of all those stops, done when every agent is torn down, every
            creation rolled back and every start-up task settled. Its error is an
            ``ExceptionGroup`` of what failed, if anything did.
        """
        with self._core.lock:
            if self._end is not None:
                return self._end
            end = self._end = Awaited()
            self._accepting = False
            preparing = list(self._preparing)
            live = list(self._live.values())
            starting = list(self._starting)
            waiting = list(self._waiting)
        for preparation in preparing:
            preparation.abort(AdmissionRefused(self._gone))
        for each in waiting:
            each.try_set_result(False)
        stops = self._supervisor.teardown.stop_several(live, "disposed")
        waits = [*stops, *starting, *(each.rolled_back for each in preparing)]
        when_all(waits, lambda: settle(end, stops, waits))
        return end


class Owner(Ownership):
    """In whose name agents are made: a plugin, a request, a part of a program.

    Made by :meth:`dsh_actors.ActorSystem.owner`. When it is unloaded, its agents end.
    """

    def __init__(
        self, core: Core, supervisor: Supervisor, name: str, create: Callable[..., AgentHandle]
    ) -> None:
        super().__init__(core, supervisor, name, f"owner {name!r} was unloaded")
        self._create = create

    def create(self, behaviour: Any, **options: Any) -> AgentHandle:
        """Create an agent in its name; see :meth:`dsh_actors.ActorSystem.create`."""
        return self._create(behaviour, owner=self, **options)

    def unload(self) -> Future[Receipt]:
        """End it with all of its agents: another name of :meth:`dispose`."""
        return self.dispose()


class AgentFactory(Ownership):
    """Makes agents, and tears all of them down when it is disposed.

    Made by :meth:`dsh_actors.ActorSystem.factory`.
    """

    def __init__(
        self, core: Core, supervisor: Supervisor, name: str, create: Callable[..., AgentHandle]
    ) -> None:
        super().__init__(core, supervisor, name, f"factory {name!r} is not active")
        self._create = create

    def create(self, behaviour: Any, **options: Any) -> AgentHandle:
        """Create an agent that this tracks from its preparation to the end of its teardown."""
        return self._create(behaviour, factory=self, **options)


def when_all(waits: list[Future[Any]], then: Callable[[], None]) -> None:
    """Call once every one of several futures is done."""
    left = [None] * len(waits)
    if not waits:
        then()

    def one_more(_: Future[Any]) -> None:
        left.pop()  # atomic, where a counter would not be
        if not left:
            then()

    for wait in waits:
        wait.add_done_callback(one_more)


def settle(end: Future[Receipt], stops: list[Future[Receipt]], waits: list[Future[Any]]) -> None:
    """Settle the end of an ownership: with all that failed, or with what was stopped."""
    failures = [error for error in (wait.exception(0) for wait in waits) if error is not None]
    if failures:
        end.try_set_error(BaseExceptionGroup("not everything ended well", failures))
        return
    receipts = [stop.result(0) for stop in stops]
    end.try_set_result(
        Receipt(
            tuple(dict.fromkeys(agent for each in receipts for agent in each.agents)),
            tuple(dict.fromkeys(process for each in receipts for process in each.processes)),
            tuple(dict.fromkeys(survivor for each in receipts for survivor in each.survivors)),
        )
    )
