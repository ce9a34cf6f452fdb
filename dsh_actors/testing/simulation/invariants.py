"""What must hold after every step of a simulated run, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.agents.actor import READY
from dsh_actors.lifecycle.disposal import STEPS
from dsh_actors.testing.simulation.drains import DrainWatch
from dsh_actors.testing.simulation.lives import LifeWatch
from dsh_actors.testing.simulation.wire import SimulatedWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.actor import AgentActor
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.system import ActorSystem
    from dsh_actors.testing.simulation.store import SimulatedStore

REMOVED = next(i for i, step in enumerate(STEPS) if step.__name__ == "remove_activation") + 1
RELEASED = next(i for i, step in enumerate(STEPS) if step.__name__ == "release_ownership") + 1


class Violation(AssertionError):
    """An invariant does not hold."""


def require(condition: object, what: str) -> None:
    """Raise if a condition does not hold."""
    if not condition:
        raise Violation(what)


class Watch:
    """Looks at a system from outside, after every step.

    Parameters:
        system: the simulated system.
    """

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._core = system._core
        # By generation: what was seen of each agent.
        self._seen: dict[int, Node] = {}
        self._closed_with: dict[int, tuple[int, int]] = {}
        self._settled: dict[int, int] = {}
        self.replies: list[tuple[str, Any]] = []
        self._found: list[Violation] = []
        self.lives = LifeWatch(system, require)
        self._drains = DrainWatch(self._core.tree, require)
        self.drained = self._drains.began
        self._spy()

    def _spy(self) -> None:
        """Stand between the core and its effects, to see each in its order."""
        teardown = self._system._supervisor.teardown
        for name, check in (
            ("remove", self._on_remove),
            ("notify_settlement", self._on_notice),
            ("release", self._on_release),
            ("settle", self._on_settle),
        ):
            setattr(teardown, name, self._checked(check, getattr(teardown, name)))

    def _checked(
        self, check: Callable[..., None], effect: Callable[..., Any]
    ) -> Callable[..., Any]:
        """An effect with a check before it. The core contains exceptions, so they are kept."""

        def checked(*args: Any) -> Any:
            try:
                check(*args)
            except Violation as violation:
                self._found.append(violation)
            return effect(*args)

        return checked

    # -- the order of a disposal -----------------------------------------------------------------

    def _on_remove(self, node: Node) -> None:
        require(not node.children, f"{node} left the map before its children were released")
        agent = node.agent
        require(agent.lost or agent.is_quiet(), f"{node} left the map with work: {agent}")

    def _on_notice(self, node: Node) -> None:
        require(
            self._core.tree.nodes.get(node.id) is not node,
            f"the notice of {node} came before it left the map",
        )
        owned = self._core.tree.roots if node.parent is None else node.parent.children or {}
        require(owned.get(node.id) is node, f"{node} was released before its notice")

    def _on_release(self, node: Node) -> None:
        require(not node.children, f"{node} was released before its children")

    def _on_settle(self, node: Node, failures: list[Exception]) -> None:
        count = self._settled[node.generation] = self._settled.get(node.generation, 0) + 1
        require(count == 1, f"{node} settled {count} times")
        require(not failures, f"steps of the disposal of {node} failed: {failures}")

    # -- after every step ------------------------------------------------------------------------

    def after_step(self) -> None:
        """Check what can be said of a state."""
        if self._found:
            raise self._found[0]
        tree = self._core.tree
        for node in list(tree.nodes.values()):
            self._seen[node.generation] = node
            parent = node.parent
            if parent is not None:
                require(
                    tree.nodes.get(parent.id) is parent,
                    f"{node} lives while its parent {parent} has left",
                )
                require(
                    (parent.children or {}).get(node.id) is node, f"{parent} does not own {node}"
                )
                if parent.closing is not None:
                    require(node.closing is not None, f"{node} is open below closing {parent}")
            self._check_cut_off(node)
        self._drains.check()
        self.lives.check()

    def _check_cut_off(self, node: Node) -> None:
        """Once an agent is closing it begins no turn and accepts nothing."""
        if node.closing is None or not hasattr(node.agent, "turns"):
            return
        agent = node.agent
        now = (agent.turns, agent.inbox.count)
        turns, waiting = self._closed_with.setdefault(node.generation, now)
        require(agent.turns == turns, f"{node} began a turn after it was closed")
        require(agent.inbox.count <= waiting, f"{node} accepted a message after it was closed")

    # -- when only time can pass -------------------------------------------------------------------

    def at_rest(self) -> None:
        """Nobody sleeps through work that it has accepted."""
        supervisor = self._system._supervisor
        for node in self._core.tree.nodes.values():
            if node.closing is None and hasattr(node.agent, "inbox"):
                self._check_awake(node.agent)
        for worker in supervisor.pool.workers.values():
            if isinstance(worker, SimulatedWorker) and worker.alive:
                for agent in worker.host._agents.values():
                    self._check_awake(agent)

    def _check_awake(self, agent: AgentActor) -> None:
        idle = agent.running is None and agent.state == READY
        free = agent.is_async or agent.host.permits.free > 0
        waiting = agent.inbox.waking and agent.meter is None
        require(not (idle and free and waiting), f"{agent} sleeps through its inbox")

    # -- at the end --------------------------------------------------------------------------------

    def at_end(self, store: SimulatedStore | None) -> None:
        """Check what must hold once the system has ended and nothing can happen any more."""
        core = self._core
        for name in ("nodes", "roots"):
            left = getattr(core.tree, name)
            require(not left, f"the system has ended, but {name} has {list(left.values())}")
        for name in (
            "specs", "runs", "progress", "uncommitted", "idle_waiters", "started_at", "sessions",
            "dormant",
        ):  # fmt: skip
            left = getattr(core, name)
            require(not left, f"the system has ended, but {name} has {left}")
        pool = self._system._supervisor.pool
        require(not pool.workers, f"the system has ended, but not {list(pool.workers.values())}")
        for generation, node in self._seen.items():
            require(self._settled.get(generation) == 1, f"{node} was never settled")
        require(not core.tree.sealed, f"the system has ended, but {core.tree.sealed} are sealed")
        require(core.draining is None, "the system has ended, but a drain goes on")
        self.lives.at_end()
        for what, reply in self.replies:
            require(reply.done(), f"never answered: {what}")
        if store is not None and store.reliable:
            for session, log in store.logs.items():
                _check_log(store, session, log)


def _check_log(store: SimulatedStore, session: str, log: list[tuple[str, bytes]]) -> None:
    """Balanced turns, no message twice, and none that was accepted without an end."""
    from dsh_actors import codec

    header = store.sessions[session]
    open_turn: int | None = None
    accepted: set[int] = set()
    claimed: set[int] = set()
    discarded: set[int] = set()
    lost = False
    for type, data in log:
        event = codec.decode(data)
        where = f"session {session} of {header.agent_id}"
        if type == "prompt/accepted":
            require(event["id"] not in accepted, f"{where}: message {event['id']} accepted twice")
            accepted.add(event["id"])
        elif type == "turn/start":
            require(open_turn is None, f"{where}: a turn began inside turn {open_turn}")
            open_turn = event["turn"]
            for id in event["messages"]:
                require(id not in claimed, f"{where}: message {id} was claimed twice")
                require(id not in discarded, f"{where}: message {id} ran after it was discarded")
                claimed.add(id)
        elif type == "turn/steered":
            require(open_turn == event["turn"], f"{where}: turn {event['turn']} is not open")
            for id in event["messages"]:
                require(id not in claimed, f"{where}: message {id} was claimed twice")
                require(id not in discarded, f"{where}: message {id} ran after it was discarded")
                claimed.add(id)
        elif type == "turn/end":
            require(open_turn == event["turn"], f"{where}: turn {event['turn']} ended unopened")
            open_turn = None
            if event["reason"] == "interrupted":  # failed next, or claimed again
                claimed.difference_update(event["messages"])
            else:
                claimed.update(event["messages"])  # with the steering input that it took on its way
        elif type in ("prompt/discarded", "prompt/failed"):
            require(event["id"] not in claimed, f"{where}: {event['id']} discarded after its claim")
            discarded.add(event["id"])
        elif type == "agent/ended":
            lost = event["outcome"] in ("lost", "failed") or "detail" in event
    require(open_turn is None, f"session {session}: turn {open_turn} has no end")
    open_messages = accepted - claimed - discarded
    require(lost or not open_messages, f"session {session}: nothing became of {open_messages}")
