"""The shared state of one system: the tree behind its one lock, and what all parts need."""

from __future__ import annotations

import itertools
from _thread import allocate_lock
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsh_actors.agents.containment import passes
from dsh_actors.lifecycle.tree import Tree
from dsh_actors.observe.logging import get_logger
from dsh_actors.supervisor.forks import watch
from dsh_actors.supervisor.observers import Observers
from dsh_actors.workers.limits import NO_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.behaviour import InterruptedPolicy
    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.lifecycle.supervision import Intensity, RestartType
    from dsh_actors.supervisor.bounds import Limits
    from dsh_actors.supervisor.drain import Drains
    from dsh_actors.supervisor.journal import Journal
    from dsh_actors.supervisor.lives import Life
    from dsh_actors.supervisor.ownership import Ownership
    from dsh_actors.supervisor.preparation import Preparation
    from dsh_actors.supervisor.receipt import AgentEnd
    from dsh_actors.supervisor.runtime import Runtime
    from dsh_actors.workers.limits import WorkerLimits

HISTORY = 200_000
"""How many ended agents a system remembers for its final receipt."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a system was made with; see :class:`dsh_actors.ActorSystem`. Times in seconds."""

    workers: int
    stop_grace: float = 5.0
    max_turns: int = 8
    inbox_limit: int = 100_000
    max_depth: int = 128
    flush_deadline: float = 5.0
    ready_deadline: float = 60.0
    heartbeat: float | None = 5.0
    heartbeat_deadline: float = 30.0
    worker_limits: WorkerLimits = NO_LIMITS
    restarts: int = 3
    restart_period: float = 5.0


class Spec:
    """How an agent was asked for: enough to start it again."""

    __slots__ = (
        "args", "behaviour", "children", "declared", "intensity", "interrupted", "isolation",
        "life", "limits", "restart", "session",
    )  # fmt: skip

    def __init__(
        self, behaviour: Any, isolation: str, restart: RestartType, args: dict[str, Any] | None
    ) -> None:
        self.behaviour = behaviour
        self.isolation = isolation
        self.restart = restart
        self.args = args
        # The policy, budget and depth that were asked for; None if none was.
        self.limits: Limits | None = None
        # The children that the tree file declares below it: id and spec.
        self.children: tuple[tuple[str, Spec], ...] = ()
        # What becomes of a message whose turn a crash cut off; None for what was not said.
        self.interrupted: InterruptedPolicy | None = None
        # Whether a tree file declares it; and what its lives share, for one whose parent may be
        # started again.
        self.declared = False
        self.life: Life | None = None
        # The id that its session is to have; None mints one.
        self.session: str | None = None
        # Counts its restarts; made with the first one, and handed on from life to life.
        self.intensity: Intensity | None = None


class OneShot:
    """A one-shot run: where its outcome goes, and what to run again after a crash."""

    __slots__ = ("body", "chain", "outcome", "sink")

    def __init__(
        self, sink: Callable[[tuple[Any, ...]], None], body: bytes, chain: tuple[str, ...]
    ) -> None:
        # Takes (kind, body | None, error type, error, traceback).
        self.sink = sink
        self.body = body
        self.chain = chain
        self.outcome: tuple[Any, ...] | None = None


class Core:
    """Everything that is shared, and nothing that acts.

    There is one lock. It guards the tree, every node, every inline agent's inbox and phase, and
    what is known of every remote one. No user code, listener or blocking call runs under it, and
    it is never taken twice: functions whose name ends in ``_locked`` expect it to be held.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        observer: Callable[[Mapping[str, Any]], None] | None,
        runtime: Runtime,
    ) -> None:
        self.runtime = runtime
        self.lock = allocate_lock()
        watch(self)
        self.tree = Tree()
        self.settings = settings
        self.pid = runtime.pid
        self.system_id = f"{name}-{self.pid}-{runtime.token()}"
        self.observer = observer
        self.observers = Observers(self)
        self.journal: Journal | None = None
        # Told of creations and ends, as long as a drain is under way.
        self.draining: Drains | None = None
        self.log = get_logger("dsh_actors.supervisor")
        self.next_message: Callable[[], int] = itertools.count(1).__next__
        """Makes a new message id."""
        self._names = itertools.count(1)
        # By generation, for the agents that have one:
        self.specs: dict[int, Spec] = {}
        self.runs: dict[int, OneShot] = {}
        self.progress: dict[int, tuple[int | None, int | None, str | None]] = {}
        self.uncommitted: dict[int, list[Message]] = {}
        # Creations that are admitted and may have to be rolled back, in order.
        self.preparing: dict[Preparation, None] = {}
        # Agents that are being announced, with what they accept meanwhile.
        self.publishing: dict[int, list[Message]] = {}
        # By the ident of its thread: whom each announcement that is under way is about.
        self.announcing: dict[int, list[Node]] = {}
        # What owns an agent beside its parent.
        self.owned: dict[int, tuple[Ownership, ...]] = {}
        # Children that have left the map and may go on, by generation, for a parent in a worker:
        # it knows them by that, while one in this process holds them itself.
        self.dormant: dict[int, dict[int, Node]] = {}
        self.idle_waiters: dict[int, list[Future[None]]] = {}
        self.started_at: dict[int, float] = {}
        self.sessions: dict[int, str] = {}
        # The sessions that are being resumed.
        self.resuming: set[str] = set()
        self.ended: deque[AgentEnd] = deque(maxlen=HISTORY)

    def next_name(self, behaviour: str) -> str:
        """A new id for an agent that was given none."""
        return f"{behaviour.rpartition(':')[2].rpartition('.')[2]}-{next(self._names)}"

    def skip_names(self, number: int) -> None:
        """Give no name with a number up to this one: a resumed agent may have it."""
        self._names = itertools.count(max(next(self._names), number + 1))

    def reports(self, spec: Spec) -> bool:
        """Whether workers have to say what each turn of such an agent begins with."""
        return self.journal is not None or self.observer is not None or spec.restart != "temporary"

    def emit_turn_start(self, agent: str, turn: int) -> None:
        """Tell the observer that a turn has begun."""
        self.emit("turn/start", agent=agent, turn=turn)

    def emit(self, type: str, **what: Any) -> None:
        """Tell the observer. Its failure is logged and changes nothing. Never under the lock."""
        observer = self.observer
        if observer is None:
            return
        try:
            observer({"type": type, **what})
        except BaseException as error:
            if passes(error):
                raise
            self.log.exception("the observer of the system failed", event_type=type)

    def forget_locked(self, node: Node) -> None:
        """Drop all that is kept about an ended agent."""
        generation = node.generation
        for table in (
            self.specs, self.runs, self.progress, self.uncommitted, self.started_at, self.sessions,
            self.dormant,
        ):  # fmt: skip
            table.pop(generation, None)
        if self.journal is not None:
            self.journal.forget(generation)
