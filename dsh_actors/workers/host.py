"""The worker's side: hosts agents, acts on frames, and ends with its supervisor."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from dsh_actors import codec, gates
from dsh_actors.actors.dispatcher import Dispatcher
from dsh_actors.actors.future import Future
from dsh_actors.agents import behaviour as behaviours
from dsh_actors.agents.handle import Agent
from dsh_actors.agents.host import AgentHost
from dsh_actors.agents.job import Job, Outcome
from dsh_actors.agents.message import Message
from dsh_actors.agents.waiting import Awaited, current_turn, wait_in_turn
from dsh_actors.errors import (
    AdmissionRefused,
    AgentFailed,
    AgentGone,
    AgentLost,
    AskCycle,
    BehaviourError,
    BudgetExceeded,
    Cancelled,
    DepthExceeded,
    DshActorsError,
    DuplicateId,
    InboxFull,
    PolicyError,
    StoreError,
    SystemClosed,
    TurnAborted,
    UsageError,
    WorkerStartError,
)
from dsh_actors.lifecycle.budget import Budget
from dsh_actors.lifecycle.policy import ISOLATIONS, Policy
from dsh_actors.processes.proctree import end_own_descendants
from dsh_actors.slots import Slots
from dsh_actors.workers import frames
from dsh_actors.workers.early import worker_name
from dsh_actors.workers.limits import apply as apply_limits
from dsh_actors.workers.link import Link
from dsh_actors.workers.meter import GrantedTurns
from dsh_actors.workers.process import import_parent_main
from dsh_actors.workers.reporter import Reporter

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from dsh_actors.agents.actor import AgentActor
    from dsh_actors.agents.message import Kind
    from dsh_actors.agents.turn import Request, Turn, TurnError

_ERRORS: dict[str, type[DshActorsError]] = {
    kind.__name__: kind
    for kind in (
        AdmissionRefused, AgentGone, AgentLost, AskCycle, BehaviourError, DuplicateId, InboxFull,
        PolicyError, StoreError, SystemClosed, UsageError, WorkerStartError,
    )
}  # fmt: skip


def serve(sock: socket.socket, params: dict[str, Any]) -> None:
    """Run a worker until its supervisor ends it or is gone. Called in the new process.

    Parameters:
        sock: the connection to the supervisor.
        params: ``worker`` (its number), ``marker``, ``max_turns`` (or a SETTINGS frame follows);
            ``slots`` if there are any, ``durable`` if there is a session store; ``limits`` as
            :func:`dsh_actors.workers.limits.apply` takes them; in tests, ``gates``.
    """
    apply_limits(params.get("limits"))
    name = worker_name(params["worker"])
    behaviours.find_main = import_parent_main
    if "gates" in params:
        gates.plan = gates.AskingPlan(params["gates"])
    host = WorkerHost(
        Dispatcher(name),
        params.get("max_turns", 1),
        lambda why: _exit(params["marker"], why),
        slots=Slots.from_plain(params.get("slots")),
    )
    host.durable = params.get("durable", False)
    link = Link(sock, on_messages=host.act, on_close=host.end, name=name)
    host.connect(link, Reporter(link, f"{name}-reporter"))
    link.run()
    # Not reached: the end of the link ends the process.


def _exit(marker: str, reason: BaseException | None) -> None:
    """The link has ended: end everything that was started here, then this process."""
    # Behaviours may still compute. With the usual interval this thread would wait 5 ms for them
    # after each of the many system calls that follow: seconds in all, where there is no time.
    sys.setswitchinterval(1e-6)
    status = 0
    if reason is not None:
        print(f"dsh-actors worker {os.getpid()}: {reason}", file=sys.stderr)  # noqa: T201
        status = 1
    try:
        end_own_descendants(marker)
    finally:
        sys.stderr.flush()
        os._exit(status)


class WorkerHost:
    """All agents of this worker, and their way to the supervisor.

    Parameters:
        dispatcher: the threads that run mailboxes and plain turns.
        max_turns: how many plain turns run at once.
        end: called with the reason when the link has ended, however that came.
        host: further parameters of :class:`AgentHost`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        max_turns: int,
        end: Callable[[BaseException | None], None],
        **host: Any,
    ) -> None:
        self.end = end
        self.durable = False
        self._host = AgentHost(self, dispatcher, max_turns=max_turns, **host)
        self._agents: dict[int, AgentActor] = {}
        # Futures of requests to the supervisor, by number.
        self._requests: dict[int, Job | Future[Any]] = {}
        self._number = 0
        self._acts: dict[int, Callable[..., None]] = {
            frames.START: self._start,
            frames.CANCEL: self._cancel,
            frames.RELEASE: self._release,
            frames.REPLY: self._reply,
            frames.TURN_GRANTED: self._turn_granted,
            frames.OVERDRAWN: self._overdrawn,
            frames.SETTINGS: self._settings,
            frames.PING: lambda number: self._send([frames.PONG, number]),
        }

    def connect(self, link: Link, reporter: Reporter) -> None:
        """Begin: tell the supervisor that this worker is ready."""
        self._reporter = reporter
        self._send = reporter.send
        self._send([frames.READY])

    # -- frames --------------------------------------------------------------------------------

    def act(self, batch: list[Any]) -> None:
        """Act on frames of the supervisor, in order."""
        rung: dict[int, AgentActor] = {}
        agents, deliver, lock = self._agents, frames.DELIVER, self._host.lock
        held = False  # one section for all deliveries that follow each other
        try:
            for frame in batch:
                if frame[0] == deliver:
                    if not held:
                        held = lock.acquire()
                    _, key, id, kind, body, chain = frame
                    agent = agents.get(key)
                    if agent is not None:
                        agent.inbox.put(Message(id, kind, body, None, tuple(chain)))
                        rung[key] = agent
                else:
                    if held:
                        lock.release()
                        held = False
                    self._acts[frame[0]](*frame[1:])
        finally:
            if held:
                lock.release()
        for agent in rung.values():
            agent.ring()
        self._reporter.flush()

    def _start(
        self, key: int, name: str, target: str, args: bytes | None, reports: bool, life: Any,
        limits: list[Any] | None = None,
    ) -> None:  # fmt: skip
        decoded = codec.decode(args) if args is not None else None
        found = behaviours.found_before(target)  # only then is there nothing to import
        agent = self._agents[key] = self._host.start(name, key, found or target, decoded)
        agent.reports = reports
        if life is not None:
            agent.turns, agent.remembered, calls = life
            if calls:
                from dsh_actors.agents.calls import Earlier

                agent.earlier = Earlier(calls)
        if limits is not None:
            agent.policy = Policy.from_plain(limits[0])
            agent.meter = GrantedTurns(key, self._send) if limits[1] else None
        if agent.is_set_up:
            self._reporter.queue(self._started_frame(agent))
        else:
            agent.ring()

    def _turn_granted(self, key: int, granted: bool) -> None:
        with self._host.lock:
            agent = self._agents.get(key)
            meter = agent.meter if agent is not None else None
            if agent is not None and isinstance(meter, GrantedTurns):
                meter.answered(granted, agent.inbox.waking > 0)
        if agent is not None:
            agent.ring()

    def _overdrawn(self, key: int, turn: int) -> None:
        due: list[Callable[[], None]] = []
        with self._host.lock:
            agent = self._agents.get(key)
            running = agent.running if agent is not None else None
            if running is not None and running.number == turn:
                due = running.signal.set("budget")
        for callback in due:
            callback()

    def _cancel(self, keys: list[int], cause: Any, keep_inbox: bool) -> None:
        callbacks = []
        discarded = []
        with self._host.lock:
            for key in keys:
                agent = self._agents.get(key)
                if agent is not None:
                    dropped, due = agent.cut(cause, keep_inbox)
                    callbacks.extend(due)
                    if dropped:
                        discarded.append([frames.DISCARDED, key, cause, [m.id for m in dropped]])
        for callback in callbacks:
            callback()
        if gates.plan is not None:
            for key in keys:
                gates.plan.reach("cancelled", self._name(key))
        for frame in discarded:
            self._send(frame)

    def _name(self, key: int) -> str:
        agent = self._agents.get(key)
        return agent.name if agent is not None else ""

    def _settings(
        self, max_turns: int, slots: dict[str, Any] | None, durable: bool, limits: Any
    ) -> None:
        apply_limits(limits)
        self.durable = durable
        self._host.slots = Slots.from_plain(slots)
        with self._host.lock:
            self._host.permits.resize(max_turns)

    def _release(self, key: int) -> None:
        agent = self._agents.pop(key, None)
        if agent is not None and agent.release():
            self.released(agent, None)

    def _reply(self, number: int, ok: bool, value: Any) -> None:
        waiting = self._requests.pop(number, None)
        if isinstance(waiting, Job):
            waiting._future.try_set_result(_outcome(value))
        elif waiting is not None:
            if ok:
                waiting.try_set_result(value)
            else:
                waiting.try_set_error(_error(value))

    # -- what agents tell: HostPort ------------------------------------------------------------

    def turn_started(self, agent: AgentActor, turn: Turn) -> None:
        """Tell which messages were claimed."""
        self._send([frames.TURN_STARTED, agent.key, turn.number, [m.id for m in turn._batch]])

    def turn_steered(self, agent: AgentActor, turn: Turn, messages: list[Message]) -> None:
        """Tell what was taken on."""
        ids = [message.id for message in messages]
        self._send([frames.TURN_STEERED, agent.key, turn.number, ids])

    def turn_ending(self, agent: AgentActor, turn: Turn) -> None:
        """Nothing to do here: the frame goes out when the agent is free."""

    def turn_ended(self, agent: AgentActor, turn: Turn, more: bool) -> None:
        """Report the turn, with one result for each message."""
        if turn._reason == "completed" and len(turn._batch) == 1:
            self._reporter.done(
                agent.key, turn.number, turn._batch[0].id, turn._results[0], more=more
            )
            return
        self._send(
            [
                frames.TURN_ENDED, agent.key, turn.number, turn._reason, turn._cause, turn._error,
                [m.id for m in turn._batch], turn._results,
            ]
        )  # fmt: skip

    def turn_refused(self, agent: AgentActor, turn: Turn) -> None:
        """Nothing is left for this turn: its messages are discarded."""
        with self._host.lock:
            agent.running = None
        self._send([frames.DISCARDED, agent.key, "budget", [m.id for m in turn._batch]])
        agent.ring()

    def spend(self, turn: Turn, tokens: int, cost: float) -> None:
        """Report it; what is too much comes back as a cancel of this turn."""
        self._send([frames.SPENT, turn._actor.key, turn.number, tokens, cost])

    def left(self, turn: Turn) -> Budget:
        """Ask the supervisor, which alone knows."""
        return Budget.from_plain(self._request(turn, frames.LEFT))

    @staticmethod
    def _started_frame(agent: AgentActor) -> list[Any]:
        hooks = agent.instance is not None
        interrupted = (
            type(agent.instance).interrupted
            if hooks
            else getattr(agent.call, "__dsh_interrupted__", None)
        )
        return [
            frames.STARTED, agent.key, hooks, agent.resumable, agent.takes_notices, interrupted,
        ]  # fmt: skip

    def started(self, agent: AgentActor, error: TurnError | None) -> None:
        """Report the start."""
        if error is None:
            self._send(self._started_frame(agent))
        else:
            self._send([frames.START_FAILED, agent.key, *error])

    def scoped(self, agent: AgentActor) -> None:
        """Report it, before the end of the turn that made it."""
        self._send([frames.SCOPED, agent.key])

    def released(self, agent: AgentActor, problem: str | None) -> None:
        """Report the release."""
        agent.retire()
        if gates.plan is not None:
            gates.plan.reach("handle-disposed", agent.name)
        self._send([frames.RELEASED, agent.key, problem])

    def progress(self, turn: Turn, done: int | None, total: int | None, note: str | None) -> None:
        """Pass it on."""
        self._send([frames.PROGRESS, turn._actor.key, done, total, note])

    def remember(self, turn: Turn, type: str, body: bytes) -> None:
        """Pass it on."""
        self._send([frames.REMEMBER, turn._actor.key, type, body])

    def call_end(self, turn: Turn, call: str, outcome: bytes) -> None:
        """Pass it on."""
        self._send([frames.CALL_ENDED, turn._actor.key, call, outcome])

    def shell_done(self, owner: str, notice: dict[str, Any]) -> None:
        """Have the supervisor deliver it, in order with everything else."""
        for agent in list(self._agents.values()):
            if agent.name == owner and agent.takes_shell_notices:
                self._send([frames.NOTICE, agent.key, codec.encode(notice)])

    def shell_ended(self, pid: int, ended: str, signal: str) -> None:
        """Pass it on."""
        self._send([frames.SHELL_ENDED, pid, ended, signal])

    # -- what agents ask -----------------------------------------------------------------------

    def run(self, turn: Turn, request: Request, body: bytes) -> Job:
        """Start a one-shot child, wherever the supervisor places it."""
        name = behaviours.reference(request.behaviour)
        job = Job(request.id or name.rpartition(":")[2], name)
        self._ask_supervisor(turn, job, frames.RUN, *self._child(turn, name, request, body))
        return job

    def spawn(self, turn: Turn, request: Request, body: bytes) -> Agent:
        """Start a continuable child and wait for its acceptance."""
        name = behaviours.reference(request.behaviour)
        return self._agent(
            self._request(turn, frames.SPAWN, *self._child(turn, name, request, body))
        )

    def checkpoint(self, turn: Turn) -> Future[None]:
        """Ask the supervisor, which has the store."""
        done: Future[None] = Future()
        self._ask_supervisor(turn, done, frames.CHECKPOINT)
        return done

    def call_begin(self, turn: Turn, call: str, intent: bytes) -> Future[None]:
        """Have it recorded by the supervisor."""
        done: Future[None] = Future()
        self._ask_supervisor(turn, done, frames.CALL, call, intent)
        return done

    def child(self, turn: Turn, id: str) -> Agent:
        """Find a live child."""
        return self._agent(self._request(turn, frames.CHILD, id))

    def agent_of(self, agent: AgentActor) -> Agent:
        """An agent of this worker; what its session is, only the supervisor knows."""
        return Agent(self, (agent.name, agent.key), agent.name, None)

    def _child(self, turn: Turn, name: str, request: Request, body: bytes) -> tuple[Any, ...]:
        args = codec.encode(request.args) if request.args else None
        if request.isolation is None or request.isolation in ISOLATIONS:
            turn.policy.check_isolation(request.isolation or "inline")
        asked = (
            name, request.id, request.isolation, request.restart, args, body, _chain(turn),
        )  # fmt: skip
        if request.policy is None and request.budget is None and request.interrupted is None:
            return asked
        limits = (
            None if each is None else each.to_plain() for each in (request.policy, request.budget)
        )
        return *asked, *limits, request.interrupted

    def _agent(self, found: Any) -> Agent:
        id, key, session = found
        return Agent(self, (id, key), id, session)

    def _request(self, turn: Turn | None, operation: int, *rest: Any) -> Any:
        """Ask the supervisor and wait for the answer, which it gives without waiting itself."""
        future: Future[Any] = Future()
        self._ask_supervisor(turn, future, operation, *rest)
        if turn is not None and not turn._is_async:
            return wait_in_turn(future, None)
        return future.result(30.0)

    def _ask_supervisor(
        self, turn: Turn | None, waiting: Job | Future[Any], operation: int, *rest: Any
    ) -> None:
        with self._host.lock:
            head = (0, 0, 0)
            if turn is not None:
                turn.check()
                # The epoch is read in the same section that registers the request: a cancel that
                # comes later makes the request stale at the supervisor.
                actor = turn._actor
                head = (actor.key, actor.epoch, turn.number if actor.running is turn else 0)
            self._number += 1
            number = self._number
            self._requests[number] = waiting
        self._send([frames.REQUEST, number, *head, operation, *rest])

    # -- how agents reach others: Post ---------------------------------------------------------

    def send(self, target: Any, kind: Kind, body: bytes) -> int:
        """Deliver through the supervisor."""
        id: int = self._request(current_turn.get(), frames.SEND, *target, kind, body)
        return id

    def ask(self, target: Any, kind: Kind, body: bytes) -> Future[Any]:
        """Deliver through the supervisor, with a reply."""
        turn = current_turn.get()
        encoded: Future[Any] = Future()
        chain = _chain(turn) if turn is not None else ()
        self._ask_supervisor(turn, encoded, frames.ASK, *target, kind, body, chain)
        reply: Future[Any] = Awaited()

        def settle(future: Future[Any]) -> None:
            error = future.exception(0)
            if error is not None:
                reply.try_set_error(error)
            else:
                reply.try_set_result(codec.decode(future.result(0)))

        encoded.add_done_callback(settle)
        return reply

    def cancel(self, target: Any, *, tree: bool, keep_inbox: bool) -> None:
        """Cancel through the supervisor."""
        self._request(current_turn.get(), frames.CANCEL_AGENT, *target, tree, keep_inbox)

    def status(self, target: Any) -> str:
        """Ask the supervisor for the status."""
        status: str = self._request(current_turn.get(), frames.STATUS, *target)
        return status

    def when_idle(self, target: Any) -> Future[None]:
        """Ask the supervisor to tell."""
        future: Future[None] = Awaited()
        self._ask_supervisor(current_turn.get(), future, frames.WHEN_IDLE, *target)
        return future


def _chain(turn: Turn) -> tuple[str, ...]:
    message = turn._message
    return (*(message.chain if message is not None else ()), turn.agent_id)


def _outcome(value: list[Any]) -> Outcome:
    kind, body, error_type, error, traceback = value
    return Outcome(
        kind, codec.decode(body) if body is not None else None, error_type, error, traceback or ""
    )


def _error(value: list[Any]) -> BaseException:
    name, message, extra = value
    if name == "AgentFailed":
        return AgentFailed(*extra)
    if name == "Cancelled":
        return Cancelled(extra[0])
    if name == "TurnAborted":
        return TurnAborted(extra[0], message)
    if name == "BudgetExceeded":
        return BudgetExceeded(message, resource=extra[0], left=extra[1], asked=extra[2])
    if name == "DepthExceeded":
        return DepthExceeded(message, depth=extra[0], cap=extra[1])
    return _ERRORS.get(name, DshActorsError)(message)
