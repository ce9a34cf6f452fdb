"""The ends of turns, wherever they ran; and what agents in this process tell and ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.agents.actor import AgentActor
from dsh_actors.agents.behaviour import resolve
from dsh_actors.agents.job import Job, Outcome
from dsh_actors.agents.turn import TurnError
from dsh_actors.errors import AgentFailed, AgentGone, Cancelled, TurnAborted
from dsh_actors.supervisor.calls import Calls
from dsh_actors.supervisor.notices import give_notice
from dsh_actors.workers.pool import EndedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.handle import Agent
    from dsh_actors.agents.message import Message
    from dsh_actors.agents.turn import Request, Turn
    from dsh_actors.lifecycle.budget import Budget
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.supervisor import Supervisor

_OUTCOMES = {
    "completed": "completed", "aborted": "aborted", "limit": "aborted", "error": "failed",
}  # fmt: skip
_WITH_RESULT = ("completed", "limit")  # in the latter case it is what there was so far


def inline_sink(job: Job) -> Any:
    """Where the outcome of a one-shot goes whose parent lives in this process."""

    def settle(outcome: tuple[Any, ...]) -> None:
        kind, body, error_type, error, traceback = outcome
        value = codec.decode(body) if body is not None else None
        job._future.try_set_result(Outcome(kind, value, error_type, error, traceback or ""))

    return settle


class Turns:
    """The port of the inline host, and the one place where turns end."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self.calls = Calls(core)

    @property
    def durable(self) -> bool:
        """Whether there is a session store."""
        return self._core.journal is not None

    # -- the end of a turn, inline or remote ---------------------------------------------------

    def ending(
        self,
        node: Node,
        number: int,
        reason: str,
        cause: str | None,
        error: Any,
        messages: list[Message],
        results: list[bytes],
    ) -> None:
        """Record a turn's end: its outcome on the node, its event in the session."""
        core = self._core
        node.outcome = _OUTCOMES.get(reason, "failed")  # type: ignore[assignment]
        node.detail = f"{error[0]}: {error[1]}" if error is not None else cause
        if node.one_shot:
            run = core.runs.get(node.generation)
            if run is not None:
                body = results[-1] if results and reason in _WITH_RESULT else None
                run.outcome = (
                    (node.outcome, body, *error)
                    if error is not None
                    else (node.outcome, body, None, cause and f"cancelled (cause: {cause})", "")
                )
        life = node.life
        if life is not None:
            life.turns = number
            life.last = results[-1] if results and reason in _WITH_RESULT else None
            if life.calls:
                self.calls.over(node, reason == "completed")
        if core.journal is not None:
            ids = [message.id for message in messages]
            core.journal.turn_ended(node, number, reason, cause, error, ids, results)

    def ended(
        self,
        node: Node,
        number: int,
        reason: str,
        cause: str | None,
        error: Any,
        messages: list[Message],
        results: list[bytes],
    ) -> None:
        """The agent is free: settle the replies, and go on with what waited for this."""
        for index, message in enumerate(messages):
            reply = message.reply
            if reply is None:
                continue
            if reason == "completed":
                reply.answer(results[index])
            elif reason == "aborted":
                reply.fail(
                    TurnAborted(
                        cause or "user", f"agent {node.id!r} was cancelled (cause: {cause})"
                    )
                )
            elif reason == "limit":
                if index < len(results):
                    reply.answer(results[index])
                else:
                    reply.fail(self._supervisor.boundaries.why(node))
            else:
                reply.fail(AgentFailed(*error))
        core = self._core
        if core.observer is not None:
            core.emit(
                "turn/end", agent=node.id, turn=number, reason=reason,
                error=None if error is None else f"{error[0]}: {error[1]}",
            )  # fmt: skip
        if (
            node.one_shot
            or node.closing is not None
            or node.children
            or node.continuable is not None
            or core.idle_waiters
        ):
            self._supervisor.post(self._supervisor.teardown.turn_over, node, number)

    # -- HostPort: what inline agents tell ------------------------------------------------------

    def turn_started(self, agent: AgentActor, turn: Turn) -> None:
        """Record the claim."""
        core = self._core
        if core.journal is not None:
            core.journal.turn_started(agent.key, turn.number, [m.id for m in turn._batch])
        if core.observer is not None:
            core.emit_turn_start(agent.name, turn.number)

    def turn_steered(self, agent: AgentActor, turn: Turn, messages: list[Message]) -> None:
        """Record what was taken on."""
        journal = self._core.journal
        if journal is not None:
            journal.steered(agent.key, turn.number, [message.id for message in messages])

    def turn_ending(self, agent: AgentActor, turn: Turn) -> None:
        """See :meth:`ending`."""
        node = agent.key
        if (
            turn._reason == "completed"
            and not agent.reports
            and not node.one_shot
            and node.continuable is None
        ):
            node.outcome, node.detail = "completed", None
            return
        if turn._reason == "limit" and turn._error is None:
            error = self._supervisor.boundaries.why(node)
            turn._error = TurnError(type(error).__name__, str(error), "")
        self.ending(
            agent.key, turn.number, turn._reason, turn._cause, turn._error, turn._batch,
            turn._results,
        )  # fmt: skip

    def turn_ended(self, agent: AgentActor, turn: Turn, more: bool) -> None:
        """See :meth:`ended`."""
        if turn._reason == "completed" and not agent.reports:
            # The usual case, without a detour.
            node = agent.key
            for message, result in zip(turn._batch, turn._results, strict=True):
                if message.reply is not None:
                    message.reply.answer(result)
            if (
                node.one_shot or node.closing is not None or node.children
                or node.continuable is not None or self._core.idle_waiters
            ):  # fmt: skip
                self._supervisor.post(self._supervisor.teardown.turn_over, node, turn.number)
            return
        self.ended(
            agent.key, turn.number, turn._reason, turn._cause, turn._error, turn._batch,
            turn._results,
        )  # fmt: skip

    def turn_refused(self, agent: AgentActor, turn: Turn) -> None:
        """Nothing is left for this turn: on the record, and told to who asked."""
        node, supervisor = agent.key, self._supervisor
        supervisor.teardown.dropped(node, "budget")
        supervisor.delivery.discarded(node, turn._batch, "budget")
        with self._core.lock:
            agent.running = None
        supervisor.post(supervisor.teardown.turn_over, node, 0)
        agent.ring()

    def spend(self, turn: Turn, tokens: int, cost: float) -> None:
        """Count it. What is overdrawn cancels this turn, and no later one."""
        agent = turn._actor
        due: list[Callable[[], None]] = []
        if self._core.journal is not None:
            self._core.journal.spent(agent.key, tokens, cost)
        with self._core.lock:
            over = self._supervisor.boundaries.spend_locked(agent.key, tokens, cost)
            if over and agent.running is turn:
                due = turn.signal.set("budget")
        for callback in due:
            callback()

    def left(self, turn: Turn) -> Budget:
        """What the agent may still use."""
        return self._supervisor.boundaries.left(turn._actor.key)

    def started(self, agent: AgentActor, error: TurnError | None) -> None:
        """An inline agent has set up, or failed to."""
        if error is not None:
            self._supervisor.post(self._supervisor.teardown.start_failed, agent.key, tuple(error))
        else:
            self.is_set_up(agent.key)

    def is_set_up(self, node: Node) -> None:
        """An agent anywhere has set up: whoever waits for it to be quiet may have to know."""
        if node.life is not None:
            self._life_is_set_up(node)
        if node.one_shot or node.closing is not None or self._core.idle_waiters:
            self._supervisor.post(self._supervisor.teardown.turn_over, node, 0)

    def _life_is_set_up(self, node: Node) -> None:
        core = self._core
        if node.life.notices:
            self._supervisor.settlement.give_notices(node)
        if core.journal is not None and node.continuable is not None and not node.agent.resumable:
            # Whoever resumes it one day has to know.
            core.journal.append(node, "agent/started", {"resumable": False})

    def scoped(self, agent: AgentActor) -> None:
        """Nothing to do here: whoever releases it looks."""

    def released(self, agent: AgentActor, problem: str | None) -> None:
        """The stop hook of an inline agent has run, and its scope has ended."""
        self._supervisor.post(self._supervisor.teardown.handle_released, agent.key, problem)

    def progress(self, turn: Turn, done: int | None, total: int | None, note: str | None) -> None:
        """Keep it for who looks, and tell who watches."""
        self.progressed(turn._actor.key, done, total, note)

    def progressed(self, node: Node, done: int | None, total: int | None, note: str | None) -> None:
        """The same, for an agent anywhere."""
        core = self._core
        before = core.progress.get(node.generation, (None, None, None))
        core.progress[node.generation] = (  # what a report leaves out stays as it was
            before[0] if done is None else done,
            before[1] if total is None else total,
            before[2] if note is None else note,
        )
        if core.observer is not None:
            core.emit("progress", agent=node.id, done=done, total=total, note=note)

    def remember(self, turn: Turn, type: str, body: bytes) -> None:
        """Keep an event of the agent's own: for its next life, and in its session."""
        self.remembered(turn._actor.key, type, body)

    def remembered(self, node: Node, type: str, body: bytes) -> None:
        """The same, for an agent anywhere."""
        life = node.life
        if life is not None and life.goes_on:
            life.keeps(type, body)
        if self._core.journal is not None:
            self._core.journal.append_encoded(node, type, body)

    def call_end(self, turn: Turn, call: str, outcome: bytes) -> None:
        """Record how a call has ended."""
        self.calls.end(turn._actor.key, call, outcome)

    def shell_done(self, owner: str, notice: dict[str, Any]) -> None:
        """A command has ended in the background: who owns it is looked up now, and may be gone."""
        with self._core.lock:
            node = self._core.tree.nodes.get(owner)
            agent = node.agent if node is not None else None
        if node is not None and isinstance(agent, AgentActor) and agent.takes_shell_notices:
            give_notice(self._supervisor, node, codec.encode(notice))

    def shell_ended(self, pid: int, ended: str, signal: str) -> None:
        """For the receipt."""
        self._supervisor.pool.ended.append(EndedProcess(pid, "shell", ended, signal))

    # -- HostPort: what inline agents ask -------------------------------------------------------

    def checkpoint(self, turn: Turn) -> Future[None]:
        """A future that is settled once all that the agent has done so far is durable."""
        return self.calls.checkpoint(turn._actor.key, turn.number)

    def call_begin(self, turn: Turn, call: str, intent: bytes) -> Future[None]:
        """Record that a call is about to be made; the future is settled once that is durable."""
        return self.calls.begin(turn._actor.key, call, intent)

    def run(self, turn: Turn, request: Request, body: bytes) -> Job:
        """Start a one-shot child."""
        name = request.behaviour
        job = Job("", name if isinstance(name, str) else resolve(name).name)
        chain = (*(turn._message.chain if turn._message is not None else ()), turn.agent_id)
        try:
            node = self._supervisor.factory.run(
                turn._actor.key, turn.number, request, body, chain, inline_sink(job),
                lambda: _goes_on(turn),
            )  # fmt: skip
        except Cancelled:
            turn.check()
            raise
        job.id = node.id
        return job

    def spawn(self, turn: Turn, request: Request, body: bytes) -> Agent:
        """Start a continuable child and give it its first message."""
        supervisor = self._supervisor
        node = supervisor.factory.spawn(turn._actor.key, request, body, lambda: _goes_on(turn))
        return supervisor.agent(node)

    def child(self, turn: Turn, id: str) -> Agent:
        """Find a live child."""
        return self._supervisor.agent(self.find_child(turn._actor.key, id))

    def agent_of(self, agent: AgentActor) -> Agent:
        """The agent of an actor in this process."""
        return self._supervisor.agent(agent.key)

    def find_child(self, node: Node, id: str) -> Node:
        """The live child of an agent with this id, or AgentGone."""
        with self._core.lock:
            found = node.children.get(id) if node.children else None
            if found is None and node.life is not None and node.life.asleep is not None:
                found = node.life.asleep.get(id)
            names = sorted(node.children) if node.children else []
        if found is None:
            have = f"it has {', '.join(names[:10])}" if names else "it has none"
            raise AgentGone(f"agent {node.id!r} has no live child {id!r}; {have}")
        return found


def _goes_on(turn: Turn) -> bool:
    return turn.signal.cause is None and turn._actor.running is turn
