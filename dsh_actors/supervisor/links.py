"""What workers tell and ask. Runs on the readers of their links, in frame order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.actors.future import Future
from dsh_actors.agents.turn import Request
from dsh_actors.errors import (
    AdmissionRefused,
    AgentFailed,
    AgentGone,
    BudgetExceeded,
    Cancelled,
    DepthExceeded,
    DshActorsError,
    TurnAborted,
)
from dsh_actors.lifecycle.budget import Budget
from dsh_actors.lifecycle.policy import Policy
from dsh_actors.supervisor.notices import give_notice
from dsh_actors.workers import frames
from dsh_actors.workers.limits import in_words
from dsh_actors.workers.pool import EndedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.behaviour import InterruptedPolicy
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor
    from dsh_actors.workers.process import WorkerProcess
    from dsh_actors.workers.remote import RemoteAgent
    from dsh_actors.workers.worker import Worker


class ForwardedReply:
    """The answer to an ask that came from a worker: it goes back there, still encoded."""

    __slots__ = ("_number", "_worker")

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number

    def answer(self, body: bytes) -> None:
        """Send the result back."""
        _reply(self._worker, self._number, True, body)

    def fail(self, error: BaseException) -> None:
        """Send the error back."""
        _reply(self._worker, self._number, False, _packed(error))


class Links:
    """Implements ``WorkerEvents``."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self._acts: dict[int, Callable[..., None]] = {
            frames.READY: self._ready,
            frames.STARTED: self._started,
            frames.START_FAILED: self._start_failed,
            frames.TURN_STARTED: self._turn_started,
            frames.TURN_STEERED: self._turn_steered,
            frames.TURN_ENDED: self._turn_ended,
            frames.TURNS_DONE: self._turns_done,
            frames.DISCARDED: self._discarded,
            frames.SCOPED: self._scoped,
            frames.RELEASED: self._released,
            frames.PROGRESS: self._progress,
            frames.REMEMBER: self._remember,
            frames.CALL_ENDED: self._call_ended,
            frames.NOTICE: self._notice,
            frames.SHELL_ENDED: self._shell_ended,
            frames.TURN_WANTED: self._turn_wanted,
            frames.SPENT: self._spent,
            frames.REQUEST: self._request,
            frames.PONG: _heard,
        }
        self._operations: dict[int, Callable[..., Any]] = {
            frames.RUN: self._run,
            frames.SPAWN: self._spawn,
            frames.CHILD: self._child,
            frames.SEND: self._send,
            frames.ASK: self._ask,
            frames.CANCEL_AGENT: self._cancel,
            frames.STATUS: self._status,
            frames.WHEN_IDLE: self._when_idle,
            frames.LEFT: self._left,
            frames.CHECKPOINT: self._checkpoint,
            frames.CALL: self._call,
        }

    # -- WorkerEvents --------------------------------------------------------------------------

    def starting(self, worker: Worker) -> None:
        """Have it watched from now on."""
        self._supervisor.heartbeats.watch(worker)

    def frames(self, worker: Worker, batch: list[Any]) -> None:
        """Act on each frame, in order."""
        worker.heard = True
        acts = self._acts
        for frame in batch:
            acts[frame[0]](worker, *frame[1:])
        worker.flush()

    def gone(self, worker: Worker, reason: BaseException | None) -> None:
        """The worker has ended, or its link is broken, which comes to the same."""
        process = worker.process
        assert process is not None
        worker.dead = True
        if process.wait(0.5) is None:
            # It lives on without a link, or is just ending: it is of no use any more.
            how = f"its link to worker {worker.pid} broke ({reason or 'closed'})"
        else:
            how = f"its worker process {worker.pid} {self._ended(worker, process)}"
        expected = worker.ending is not None and worker.fault is None
        if not worker.ready and not expected:
            how = str(process.start_error(worker.fault))
        elif worker.fault is not None:
            how = f"its worker process {worker.pid} {worker.fault}"
        if expected:
            how += f": {worker.ending}"
        self._supervisor.heartbeats.ready(worker)  # it never will be
        self._core.emit("worker/ended", pid=worker.pid, how=how, expected=expected)
        self._supervisor.post(self._supervisor.teardown.worker_gone, worker, how)

    def _ended(self, worker: Worker, process: WorkerProcess) -> str:
        how = process.describe_exit()
        if not how.startswith("killed"):
            return how
        cpu_seconds = self._core.settings.worker_limits.cpu_seconds
        if cpu_seconds is not None and how == "killed by SIGXCPU":
            return f"used more than {cpu_seconds} s of CPU"
        size = worker.resident
        return f"was {how}" if size is None else f"was {how}, {in_words(size)} resident"

    # -- what a worker tells -------------------------------------------------------------------

    def _notice(self, worker: Worker, key: int, body: bytes) -> None:
        seat = worker.seats.get(key)
        if seat is not None:
            give_notice(self._supervisor, seat.node, body)

    def _shell_ended(self, worker: Worker, pid: int, ended: str, signal: str) -> None:
        self._supervisor.pool.ended.append(EndedProcess(pid, "shell", ended, signal))

    def _ready(self, worker: Worker) -> None:
        worker.ready = True
        self._supervisor.heartbeats.ready(worker)
        self._core.emit("worker/started", pid=worker.pid, worker=worker.number)

    def _started(
        self, worker: Worker, key: int, hooks: bool, resumable: bool, takes_notices: bool,
        interrupted: InterruptedPolicy | None,
    ) -> None:  # fmt: skip
        seat = worker.seats.get(key)
        if seat is not None:
            seat.hooks = hooks
            seat.resumable, seat.takes_notices = resumable, takes_notices
            seat.started = True
            if interrupted is not None:
                self._says_interrupted(seat.node, interrupted)
            self._supervisor.turns.is_set_up(seat.node)

    def _says_interrupted(self, node: Node, interrupted: InterruptedPolicy) -> None:
        """What only the behaviour in the worker knows: on the record, unless it was overruled."""
        spec, journal = self._core.specs.get(node.generation), self._core.journal
        if spec is not None and spec.interrupted is None:
            spec.interrupted = interrupted
            if journal is not None:
                journal.append(node, "agent/options", {"interrupted": interrupted})

    def _start_failed(self, worker: Worker, key: int, *error: str) -> None:
        seat = worker.seats.get(key)
        if seat is not None:
            self._supervisor.post(self._supervisor.teardown.start_failed, seat.node, error)

    def _turn_started(self, worker: Worker, key: int, turn: int, messages: list[int]) -> None:
        seat = worker.seats.get(key)
        if seat is None:
            return
        seat.turn = turn
        seat.begun = messages
        if self._core.journal is not None:
            self._core.journal.turn_started(seat.node, turn, messages)
        if self._core.observer is not None:
            self._core.emit_turn_start(seat.node.id, turn)

    def _turn_steered(self, worker: Worker, key: int, turn: int, messages: list[int]) -> None:
        seat = worker.seats.get(key)
        if seat is None:
            return
        seat.begun = [*seat.begun, *messages]
        if self._core.journal is not None:
            self._core.journal.steered(seat.node, turn, messages)

    def _turn_ended(
        self,
        worker: Worker,
        key: int,
        turn: int,
        reason: str,
        cause: str | None,
        error: Any,
        ids: list[int],
        results: list[bytes],
    ) -> None:
        seat = worker.seats.get(key)
        if seat is None:
            return
        node = seat.node
        with self._core.lock:
            messages = seat.take(ids)
            seat.turn = 0
            seat.begun = []
        if node.bounds is not None:
            reason, cause, error = self._supervisor.boundaries.judged(node, reason, cause, error)
        turns = self._supervisor.turns
        turns.ending(node, turn, reason, cause, error, messages, results)
        turns.ended(node, turn, reason, cause, error, messages, results)

    def _turns_done(
        self, worker: Worker, key: int, last: int, ids: list[int], results: list[bytes]
    ) -> None:
        seat = worker.seats.get(key)
        if seat is None:
            return
        node, core = seat.node, self._core
        if (
            core.journal is not None
            or core.observer is not None
            or node.one_shot
            or node.life is not None
            or node.bounds is not None
        ):
            for turn, id, result in zip(
                range(last - len(ids) + 1, last + 1), ids, results, strict=True
            ):
                self._turn_ended(worker, key, turn, "completed", None, None, [id], [result])
            return
        with core.lock:
            messages = seat.take(ids)
            seat.turn = 0
            seat.begun = []
        node.outcome, node.detail = "completed", None
        answers = dict(zip(ids, results, strict=True))
        for message in messages:
            if message.reply is not None:
                message.reply.answer(answers[message.id])
        if node.closing is not None or node.children or core.idle_waiters:
            self._supervisor.post(self._supervisor.teardown.turn_over, node, last)

    def _discarded(self, worker: Worker, key: int, cause: str, ids: list[int]) -> None:
        seat = worker.seats.get(key)
        if seat is None:
            return
        with self._core.lock:
            messages = seat.take(ids)
        supervisor = self._supervisor
        supervisor.teardown.dropped(seat.node, cause)
        supervisor.delivery.discarded(seat.node, messages, cause)
        supervisor.post(supervisor.teardown.turn_over, seat.node, 0)

    def _scoped(self, worker: Worker, key: int) -> None:
        seat = worker.seats.get(key)
        if seat is not None:
            seat.scoped = True

    def _released(self, worker: Worker, key: int, problem: str | None) -> None:
        seat = worker.seats.get(key)
        if seat is not None and (seat.hooks or seat.scoped):
            self._supervisor.post(self._supervisor.teardown.handle_released, seat.node, problem)

    def _progress(
        self, worker: Worker, key: int, done: int | None, total: int | None, note: str | None
    ) -> None:
        seat = worker.seats.get(key)
        if seat is not None:
            self._supervisor.turns.progressed(seat.node, done, total, note)

    def _remember(self, worker: Worker, key: int, type: str, body: bytes) -> None:
        seat = worker.seats.get(key)
        if seat is not None:
            self._supervisor.turns.remembered(seat.node, type, body)

    def _call_ended(self, worker: Worker, key: int, call: str, outcome: bytes) -> None:
        seat = worker.seats.get(key)
        if seat is not None:
            self._supervisor.turns.calls.end(seat.node, call, outcome)

    def _turn_wanted(self, worker: Worker, key: int) -> None:
        with self._core.lock:
            seat = worker.seats.get(key)
            if seat is not None:
                granted = self._supervisor.boundaries.turn_wanted_locked(seat)
                worker.queue([frames.TURN_GRANTED, key, granted])

    def _spent(self, worker: Worker, key: int, turn: int, tokens: int, cost: float) -> None:
        with self._core.lock:
            seat = worker.seats.get(key)
            if seat is None:
                return
            if self._core.journal is not None:
                self._core.journal.spent(seat.node, tokens, cost)
            over = self._supervisor.boundaries.spend_locked(seat.node, tokens, cost)
            if over and (seat.turn == turn or turn <= 0):
                seat.node.bounds.overdrawn = turn > 0
                worker.queue([frames.OVERDRAWN, key, turn])

    # -- what a worker asks --------------------------------------------------------------------

    def _request(
        self,
        worker: Worker,
        number: int,
        key: int,
        epoch: int,
        turn: int,
        operation: int,
        *rest: Any,
    ) -> None:
        seat = worker.seats.get(key)
        try:
            if seat is None:
                raise AgentGone("the asking agent has ended")
            if turn > 0:
                seat.turn = turn
        except AgentGone as error:
            self._refuse(worker, number, operation, error)
            return
        if operation in (frames.RUN, frames.SPAWN) and self._supervisor.listeners.wanted:
            # Listeners are user code, which may take its time: not on the reader of a link.
            self._supervisor.creations.do(
                lambda: self._perform(worker, number, seat, epoch, operation, rest)
            )
        else:
            self._perform(worker, number, seat, epoch, operation, rest)

    def _perform(
        self,
        worker: Worker,
        number: int,
        seat: RemoteAgent,
        epoch: int,
        operation: int,
        rest: tuple[Any, ...],
    ) -> None:
        try:
            self._operations[operation](worker, number, seat, epoch, *rest)
        except (DshActorsError, Cancelled) as error:
            self._refuse(worker, number, operation, error)
        except Exception as error:  # it must not end the link, and with it the whole worker
            self._core.log.exception("a request of a worker failed", operation=operation)
            self._refuse(worker, number, operation, error)

    def _refuse(self, worker: Worker, number: int, operation: int, error: BaseException) -> None:
        if operation == frames.RUN:
            _reply(worker, number, True, _refused(error))
        else:
            _reply(worker, number, False, _packed(error))

    def _run(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, behaviour: str,
        id: str | None, isolation: str | None, restart: Any, args: bytes | None, body: bytes,
        chain: list[str], policy: Any = None, budget: Any = None, interrupted: Any = None,
    ) -> None:  # fmt: skip
        request = Request(
            behaviour, id, isolation, restart, _decoded(args),
            None if policy is None else Policy.from_plain(policy),
            None if budget is None else Budget.from_plain(budget), interrupted,
        )  # fmt: skip
        self._supervisor.factory.run(
            seat.node, seat.turn, request, body, tuple(chain),
            lambda outcome: _reply(worker, number, True, list(outcome)),
            lambda: seat.epoch == epoch,
        )  # fmt: skip

    def _spawn(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, behaviour: str,
        id: str | None, isolation: str | None, restart: Any, args: bytes | None, body: bytes,
        chain: list[str], policy: Any = None, budget: Any = None, interrupted: Any = None,
    ) -> None:  # fmt: skip
        request = Request(
            behaviour, id, isolation, restart, _decoded(args),
            None if policy is None else Policy.from_plain(policy),
            None if budget is None else Budget.from_plain(budget), interrupted,
        )  # fmt: skip
        node = self._supervisor.factory.spawn(seat.node, request, body, lambda: seat.epoch == epoch)
        _reply(worker, number, True, self._address(node))

    def _child(self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, id: str) -> None:
        node = self._supervisor.turns.find_child(seat.node, id)
        if node.closing is not None and node.life is not None and node.life.stored:
            with self._core.lock:  # asleep: from here on it is known by this
                self._core.dormant.setdefault(seat.key, {})[node.generation] = node
        _reply(worker, number, True, self._address(node))

    def _address(self, node: Node) -> list[Any]:
        session = self._core.sessions.get(node.generation)
        if session is None and node.life is not None:
            session = node.life.session
        return [node.id, node.generation, session]

    def _target(self, seat: RemoteAgent, id: str, generation: int) -> Node:
        """The live agent that an agent in a worker means, or a child of its that may go on."""
        node = self._core.tree.exact(id, generation)
        if node is None:
            with self._core.lock:
                node = self._core.dormant.get(seat.key, {}).get(generation)
            if node is not None:
                return node.latest
            successor = self._core.tree.nodes.get(id)
            more = "; a successor with the same id is alive" if successor is not None else ""
            raise AgentGone(f"agent {id!r} has ended; the message was refused{more}")
        return node

    def _send(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, id: str, generation: int,
        kind: Any, body: bytes,
    ) -> None:  # fmt: skip
        node = self._target(seat, id, generation)
        self._supervisor.settlement.check_delivery(seat.node, node)
        delivery = self._supervisor.delivery
        if self._core.journal is None:
            _reply(worker, number, True, delivery.deliver(node, kind, body, None))
            return
        # The reader may not wait for the commit: the acknowledgement follows it.
        committed: Future[None] = Future()
        message = delivery.deliver(node, kind, body, None, committed=committed)

        def acknowledge(future: Future[None]) -> None:
            error = future.exception(0)
            _reply(worker, number, error is None, message if error is None else _packed(error))

        committed.add_done_callback(acknowledge)

    def _ask(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, id: str, generation: int,
        kind: Any, body: bytes, chain: list[str],
    ) -> None:  # fmt: skip
        node = self._target(seat, id, generation)
        self._supervisor.settlement.check_delivery(seat.node, node)
        self._supervisor.delivery.deliver(
            node, kind, body, ForwardedReply(worker, number), tuple(chain)
        )

    def _cancel(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, id: str, generation: int,
        tree: bool, keep_inbox: bool,
    ) -> None:  # fmt: skip
        node = self._core.tree.exact(id, generation)
        if node is not None:  # an absent target is a silent no-op
            self._supervisor.settlement.check_interrupt(seat.node, node)
            self._supervisor.teardown.cancel_work(
                node, tree=tree, keep_inbox=keep_inbox, cause="parent"
            )
        _reply(worker, number, True, None)

    def _left(self, worker: Worker, number: int, seat: RemoteAgent, epoch: int) -> None:
        _reply(worker, number, True, self._supervisor.boundaries.left(seat.node).to_plain())

    def _checkpoint(self, worker: Worker, number: int, seat: RemoteAgent, epoch: int) -> None:
        _reply_with(worker, number, self._supervisor.turns.calls.checkpoint(seat.node, seat.turn))

    def _call(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, call: str, intent: bytes
    ) -> None:
        _reply_with(worker, number, self._supervisor.turns.calls.begin(seat.node, call, intent))

    def _status(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, id: str, generation: int
    ) -> None:
        node = self._core.tree.exact(id, generation)
        status = self._supervisor.status(node) if node is not None else "settled"
        _reply(worker, number, True, status)

    def _when_idle(
        self, worker: Worker, number: int, seat: RemoteAgent, epoch: int, id: str, generation: int
    ) -> None:
        node = self._core.tree.exact(id, generation)
        if node is None:
            _reply(worker, number, True, None)
            return
        self._supervisor.when_idle(node).add_done_callback(
            lambda _: _reply(worker, number, True, None)
        )


def _heard(worker: Worker, number: int) -> None:
    """The answer to a heartbeat: that it came was noted with its batch."""


def _decoded(args: bytes | None) -> dict[str, Any] | None:
    decoded: dict[str, Any] | None = codec.decode(args) if args is not None else None
    return decoded


def _reply(worker: Worker, number: int, ok: bool, value: Any) -> None:
    worker.queue([frames.REPLY, number, ok, value])
    worker.flush()


def _reply_with(worker: Worker, number: int, future: Future[None]) -> None:
    """Reply once the future is settled: the reader of a link may not wait."""

    def settled(future: Future[None]) -> None:
        error = future.exception(0)
        _reply(worker, number, error is None, None if error is None else _packed(error))

    future.add_done_callback(settled)


def _packed(error: BaseException) -> list[Any]:
    extra: list[Any] = []
    if isinstance(error, AgentFailed):
        extra = [error.type_name, error.message, error.traceback_text]
    elif isinstance(error, TurnAborted | Cancelled):
        extra = [error.cause]
    elif isinstance(error, BudgetExceeded):
        extra = [error.resource, error.left, error.asked]
    elif isinstance(error, DepthExceeded):
        extra = [error.depth, error.cap]
    return [type(error).__name__, str(error), extra]


def _refused(error: BaseException) -> list[Any]:
    aborted = isinstance(error, (AdmissionRefused, Cancelled, AgentGone, BudgetExceeded))
    return ["aborted" if aborted else "failed", None, type(error).__name__, str(error), ""]
