"""All agents of one process, and the port through which they reach their supervisor."""

from __future__ import annotations

import os
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, Protocol

from dsh_actors.agents.actor import AgentActor
from dsh_actors.agents.errand import Errand
from dsh_actors.agents.initiator import InitiatorRegistry
from dsh_actors.agents.loop import LoopThread
from dsh_actors.agents.permits import Permits
from dsh_actors.errors import SystemClosed
from dsh_actors.slots import NO_SLOTS

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

    from dsh_actors.actors.dispatcher import Dispatcher
    from dsh_actors.actors.future import Future
    from dsh_actors.agents.handle import Agent
    from dsh_actors.agents.job import Job
    from dsh_actors.agents.message import Message
    from dsh_actors.agents.turn import Request, Turn, TurnError
    from dsh_actors.lifecycle.budget import Budget
    from dsh_actors.shell.executor import ShellExecutor
    from dsh_actors.shell.task import ShellResult, ShellTask
    from dsh_actors.slots import Slots


class HostPort(Protocol):
    """What agents tell and ask their supervisor: direct calls inline, frames from a worker.

    None of it blocks.
    """

    @property
    def durable(self) -> bool:
        """Whether there is a session store."""

    def turn_started(self, agent: AgentActor, turn: Turn) -> None:
        """A turn has claimed its batch and will run. Only for agents with ``reports``."""

    def turn_steered(self, agent: AgentActor, turn: Turn, messages: list[Message]) -> None:
        """A turn has taken on more. Only for agents with ``reports``."""

    def turn_ending(self, agent: AgentActor, turn: Turn) -> None:
        """A turn has ended its work; the agent is not idle yet."""

    def turn_ended(self, agent: AgentActor, turn: Turn, more: bool) -> None:
        """The replies are due. ``more``: the next turn follows on this thread, at once."""

    def turn_refused(self, agent: AgentActor, turn: Turn) -> None:
        """A turn has claimed its batch and may not run: end it. Only for agents with a meter."""

    def spend(self, turn: Turn, tokens: int, cost: float) -> None:
        """Count what the turn has used, and set its signal if that was too much."""

    def left(self, turn: Turn) -> Budget:
        """What the agent may still use."""

    def started(self, agent: AgentActor, error: TurnError | None) -> None:
        """The behaviour was found and its start hook has run, or not."""

    def scoped(self, agent: AgentActor) -> None:
        """The agent has a scope, so its release is to be waited for."""

    def released(self, agent: AgentActor, problem: str | None) -> None:
        """The stop hook has run and the scope has ended, or what went wrong with that."""

    def run(self, turn: Turn, request: Request, body: bytes) -> Job:
        """Start a one-shot child."""

    def spawn(self, turn: Turn, request: Request, body: bytes) -> Agent:
        """Start a continuable child."""

    def child(self, turn: Turn, id: str) -> Agent:
        """Find a live child."""

    def agent_of(self, agent: AgentActor) -> Agent:
        """The agent as others talk to it."""

    def progress(self, turn: Turn, done: int | None, total: int | None, note: str | None) -> None:
        """Tell whoever watches."""

    def remember(self, turn: Turn, type: str, body: bytes) -> None:
        """Append an event to the agent's session."""

    def checkpoint(self, turn: Turn) -> Future[None]:
        """A future that is settled once all that the agent has done so far is durable."""

    def call_begin(self, turn: Turn, call: str, intent: bytes) -> Future[None]:
        """Record that a call is about to be made; the future is settled once that is durable."""

    def call_end(self, turn: Turn, call: str, outcome: bytes) -> None:
        """Record how a call has ended."""

    def shell_done(self, owner: str, notice: dict[str, Any]) -> None:
        """A background command has ended: tell the live agent of that name, if there is one."""

    def shell_ended(self, pid: int, ended: str, signal: str) -> None:
        """A command had to be ended, which goes into the receipt."""


class AgentHost:
    """The agents of this process and what they share.

    Parameters:
        port: the way to the supervisor.
        dispatcher: the threads that run mailboxes and plain turns.
        loop: the event loop for async turns; by default one of its own.
        lock: guards every agent's inbox, phase and signal; in the supervisor's process it is
            the lock of the tree, so that there is one lock and no order to keep.
        max_turns: how many plain turns run at once.
        turns_per_visit: how many turns a thread runs for one agent before the next one's turn.
        slots: what the launcher knows; see :attr:`Turn.slots`.
    """

    def __init__(
        self,
        port: HostPort,
        dispatcher: Dispatcher,
        lock: LockType | None = None,
        *,
        max_turns: int,
        loop: LoopThread | None = None,
        turns_per_visit: int = 16,
        slots: Slots = NO_SLOTS,
    ) -> None:
        self.port = port
        self.dispatcher = dispatcher
        self.lock = lock if lock is not None else allocate_lock()
        self.pid = os.getpid()
        self.permits = Permits(max_turns)
        self.loop = loop if loop is not None else LoopThread(f"{dispatcher.name}-loop")
        self.turns_per_visit = turns_per_visit
        self.slots = slots
        self.initiators = InitiatorRegistry()
        self._shell: ShellExecutor | None = None

    @property
    def shell(self) -> ShellExecutor:
        """Runs the commands of the agents of this process; made when one first has any."""
        found = self._shell
        if found is None:
            import secrets

            from dsh_actors.agents.waiting import Awaited
            from dsh_actors.shell.executor import ShellExecutor
            from dsh_actors.shell.tool import tell_owners

            made = ShellExecutor(name=f"shell-{secrets.token_hex(2)}", future=Awaited)
            made.on_done(self._command_ended)
            tell_owners(made, lambda owner, notice: self.port.shell_done(owner, notice._asdict()))
            with self.lock:
                found = self._shell = self._shell or made  # one that is not used has no thread
        return found

    def _command_ended(self, task: ShellTask, result: ShellResult) -> None:
        if result.ended != "exited":
            number = "SIGKILL" if result.ended == "killed" else "SIGTERM"
            self.port.shell_ended(task.pid, result.ended, number)

    def start(
        self, name: str, key: Any, target: Any, args: dict[str, Any] | None = None
    ) -> AgentActor:
        """Start hosting an agent: see :class:`AgentActor` for the parameters."""
        actor = AgentActor(self, name, key, target, args)
        actor.launch()
        return actor

    def apart(self, function: Callable[[], None]) -> None:
        """Run something that may block, and is no turn, on a thread of the dispatcher."""
        try:
            self.dispatcher.submit(Errand(self.dispatcher, function))
        except SystemClosed:  # the last threads have ended: nothing is left to hold up
            function()

    # -- permits -------------------------------------------------------------------------------

    def offer_permit(self) -> None:
        """Pass on the word that a permit is free, to somebody who is there to hear it."""
        while True:
            with self.lock:
                ring = self.permits.offer()
            if ring is None or ring() is not False:
                return

    def pass_on(self, ring: Callable[[], object]) -> None:
        """Tell whom :meth:`Permits.give` named, or the next one if that agent has ended."""
        if ring() is False:
            self.offer_permit()

    def give_permit(self) -> None:
        """A plain turn begins to wait."""
        with self.lock:
            go_on = self.permits.give()
        if go_on is not None:
            self.pass_on(go_on)

    def resume_permit(self, turn: Turn) -> None:
        """A plain turn goes on: wait until there is a permit for it.

        A cancelled one goes on at once: it is about to end, and whoever holds the permits may
        never give one back.
        """
        gate = allocate_lock()
        gate.acquire()
        go_on = gate.release

        def hurry() -> None:
            with self.lock:
                waits = self.permits.leave(go_on)
            if waits:
                go_on()

        with self.lock:
            if self.permits.resume(go_on):
                return
        turn.signal.add_callback(hurry)
        gate.acquire()
        turn.signal.remove_callback(hurry)

    def close(self, timeout: float) -> bool:
        """End all commands, then the loop. The dispatcher belongs to whoever made it."""
        if self._shell is not None:
            try:
                for result in self._shell.dispose().result(timeout):
                    self._command_ended(self._shell.task(result.task), result)
            except TimeoutError:
                return False
        return self.loop.close(timeout)
