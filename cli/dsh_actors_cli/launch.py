"""One run of a tree, from the file to the exit code."""

from __future__ import annotations

import os
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from dsh_actors.actors.future import Future
from dsh_actors.errors import AgentGone, BehaviourError, DshActorsError, SessionHeld
from dsh_actors_cli import exits, output, signals
from dsh_actors_cli.arguments import Options, shell_line
from dsh_actors_cli.asking import Asked, look_back, owed
from dsh_actors_cli.binding import bind
from dsh_actors_cli.exit_line import look_command, shown_exit_line, write_exit_line
from dsh_actors_cli.hand_over import HandOver
from dsh_actors_cli.outcome import Answer, Outcome, judge
from dsh_actors_cli.serving import Serving
from dsh_actors_cli.telling import write_end, write_result
from dsh_actors_cli.trees import load, misnamed, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dsh_actors.agents.handle import AgentHandle
    from dsh_actors.config import AgentSpec, TreeSpec
    from dsh_actors.errors import ConfigError
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.sessions import SessionStore
    from dsh_actors.supervisor.receipt import Receipt
    from dsh_actors.system import ActorSystem, TreeNode
    from dsh_actors_cli.render.reporter import Reporter
    from dsh_actors_cli.stream import EventStream

__all__ = ["Options", "run_tree"]

# What the command waits for the end of a stop beyond the system's own grace, in seconds, and
# then for everything that is left, such as forgotten threads of behaviours.
_DRAIN = 5.0
# How long a terminal that takes no output may hold up the end of a run that was stopped.
_TERMINAL_PATIENCE = 1.0
# How often a run that is to be detached looks whether its agents have been set up, in seconds.
_LOOK_EVERY = 0.02


def run_tree(options: Options, serving: Serving | None = None) -> int:
    """Run a tree, print its result and its receipt, and return the exit code.

    Parameters:
        options: what the user asked for.
        serving: what makes the run reachable; None for a run in the foreground.

    Raises:
        DshActorsError: the run cannot start; the message says why.
    """
    started = monotonic()
    watch = signals.install()
    if options.timeout is not None:
        watch.limit(options.timeout)
    spec = _load(options)
    return _Launch(options, spec, watch, started, serving).run()


def _load(options: Options) -> TreeSpec:
    from dsh_actors.config import MISSING
    from dsh_actors.errors import UsageError

    prompt = options.prompt if options.resume is None else None
    spec = load(options.tree, config=options.config, settings=options.settings, prompt=prompt)
    if options.resume is None and all(agent.prompt is MISSING for agent in spec.agents):
        raise UsageError(
            f"{options.tree}: no agent at the root has a prompt; add a prompt to one, or give "
            f"it here: dsh-actors run {options.tree} PROMPT"
        )
    for notice in spec.notices:
        output.print_notice(notice)
    return spec


class _Launch:
    """The pieces of one run, and the order in which they start and end."""

    def __init__(
        self,
        options: Options,
        spec: TreeSpec,
        watch: signals.Watch,
        started: float,
        serving: Serving | None,
    ) -> None:
        self._options, self._spec, self._watch = options, spec, watch
        self._started, self._serving = started, serving or Serving()
        self._grace = spec.system.stop_grace
        self._waker = signals.Waker()
        self._system: ActorSystem | None = None
        # Before anything from the files is mounted.
        self._hand_over = HandOver(options, watch)
        self._binding = bind(options, spec, self._hand_over if serving is None else None)
        self._asked = Asked(self._waker.wake)
        self._told: dict[str, Answer] = {}
        self._line = self._binding.slots.exit_line  # until it is printed
        self._failure: Answer | None = None
        self._confirmed = True
        self._fault: ConfigError | None = None
        self._stream: EventStream | None = None

    def run(self) -> int:
        """Run it all. Terminal first, so that even the first worker writes through it."""
        self._reporter = self._make_reporter()
        stdout = output.claim_stdout()
        store = _open_store(self._options, self._spec.name) if self._options.keep else None
        try:
            code = self._run_with(stdout, store)
        except DshActorsError as error:
            self._reporter.discard()
            self._serving.ended(error)
            raise
        finally:
            self._reporter.close(_TERMINAL_PATIENCE)
            if store is not None:
                store.close(_DRAIN)
        self._hand_over.perform()
        return code

    def _make_reporter(self) -> Reporter:
        from dsh_actors_cli.render.reporter import make_reporter

        return make_reporter(
            self._spec.name,
            [agent.id for agent in walk(self._spec.agents)],
            self._started,
            self._watch.hang_up,
            self._binding.sessions,
        )

    def _run_with(self, stdout: output.ResultStream, store: SessionStore | None) -> int:
        from dsh_actors.system import ActorSystem
        from dsh_actors.workers.limits import WorkerLimits

        if self._options.form == "stream-json":
            from dsh_actors_cli.stream import EventStream

            self._stream = EventStream(stdout, self._unread)
        settings = self._spec.system
        system = self._system = ActorSystem(
            workers=self._options.workers or settings.workers,
            name=self._spec.name,
            store=store,
            stop_grace=settings.stop_grace,
            max_turns=settings.max_turns,
            inbox_limit=settings.inbox_limit,
            worker_limits=WorkerLimits(**settings.worker_limits),
            on_event=self._hear,
            slots=self._binding.slots,
        )
        self._watch.attend(self._begin_stop, self._kill)
        try:
            if self._watch.cause is None:
                self._start(system)
                self._serve(system, store)
                self._await_answers()
                self._await_quiet(system)
                if store is not None:
                    self._told = look_back(self._binding, self._asked, store)
        finally:
            receipt = self._stop(system)
        if self._fault is not None:
            raise self._fault
        self._open_stream(system)
        self._reporter.close(_TERMINAL_PATIENCE)
        outcome = self._outcome(receipt, system.id)
        self._serving.ended(outcome)
        return self._tell(stdout, outcome)

    def _start(self, system: ActorSystem) -> None:
        """Create the tree and ask each root that has a prompt."""
        try:
            handles = system.start_tree(self._spec)
            self._reporter.start(system.tree)
            self._open_stream(system)
            for spec, handle in zip(self._spec.agents, handles, strict=True):
                self._give_work(spec, handle)
        except DshActorsError as error:
            if self._watch.cause is not None:
                return  # the stop came first, and the cause says so
            if isinstance(error, SessionHeld):
                look = shell_line(["dsh-actors", "logs", self._binding.session_id])
                raise SessionHeld(f"{error}; {look}", holder=error.holder) from None
            if isinstance(error, BehaviourError):
                raise misnamed(self._spec, str(error)) or error from None
            if output.is_user_error(error):
                raise
            self._failure = Answer("", error=error)

    def _give_work(self, spec: AgentSpec, handle: AgentHandle) -> None:
        """Ask a new root what the file says, and one that is resumed what the user says now."""
        from dsh_actors.config import MISSING

        identity = self._binding.slots.identities.get(spec.id)
        if identity is None or not identity.resume:
            if spec.prompt is not MISSING:
                self._ask(spec, handle, spec.prompt)
            return
        report = handle.resumed
        assert report is not None
        self._asked.owe(spec.id, owed(self._binding.logs[spec.id], report.restored))
        if spec.id != self._binding.agent_id:
            return
        for agent, why in report.lost.items():  # of the whole run
            output.print_warning(f"agent {agent} cannot be brought back: {why}")
        if self._options.prompt is not None:
            self._ask(spec, handle, self._options.prompt)

    def _ask(self, spec: AgentSpec, handle: AgentHandle, prompt: Any) -> None:
        try:
            future = handle.agent.ask(prompt)
        except AgentGone as error:
            if self._watch.cause is not None:
                return
            future = Future()
            future.set_error(error)  # its start has failed, and it has ended, this quickly
        self._asked.ask(spec.id, future)

    def _serve(self, system: ActorSystem, store: SessionStore | None) -> None:
        """Make the run reachable, once it has begun."""
        while self._failure is None and self._goes_on():
            is_up = self._serving.is_up(self._asked.agents, _walk(system.tree()))
            if is_up is not None:
                if is_up:
                    session_id = self._binding.session_id
                    self._serving.up(system, store, session_id, self._shut_down)
                return
            self._waker.wait(_LOOK_EVERY)

    def _shut_down(self, grace: float | None) -> Future[Receipt]:
        """End the run because somebody asks for it over its socket."""
        assert self._system is not None
        if grace is not None:
            self._grace = grace
        code = exits.for_signal(signal.SIGTERM)
        self._watch.stop(signals.StopCause("request", code, "shut down on request"))
        return self._system.shutdown(grace)

    def _open_stream(self, system: ActorSystem) -> None:
        if self._stream is not None and not self._stream.opened:
            self._stream.open(
                {
                    "type": "system",
                    "session_id": self._binding.session_id,
                    "system_id": system.id,
                    "tree": self._spec.name,
                }
            )

    def _hear(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "agent/ended" and event["detail"] and event["outcome"] == "failed":
            fault = misnamed(self._spec, event["detail"])
            if fault is not None:
                self._fault = fault
                self._waker.wake()
        self._reporter.hear(event)
        self._serving.hear(event)
        if self._stream is not None:
            self._stream.put(event)

    def _unread(self) -> None:
        self._watch.stop(signals.StopCause("hangup", exits.FAILED, "nobody reads stdout any more"))

    def _await_answers(self) -> None:
        while self._goes_on() and not self._asked.done:
            self._waker.wait()

    def _goes_on(self) -> bool:
        return self._watch.cause is None and self._fault is None

    def _await_quiet(self, system: ActorSystem) -> None:
        """Wait until no agent has work left: a run is not done while a child still works.

        All must be found quiet twice in a row: while the first round looks at one agent, one
        that has been looked at may get a message from another that has not.
        """
        rounds = 0
        while self._goes_on() and rounds < 2:
            busy = [idle for idle in self._idle_futures(system) if not idle.done()]
            rounds = 0 if busy else rounds + 1
            for idle in busy:
                idle.add_done_callback(self._waker.wake)
                while self._goes_on() and not idle.done():
                    self._waker.wait()

    @staticmethod
    def _idle_futures(system: ActorSystem) -> Iterator[Future[None]]:
        for node in _walk(system.tree()):
            try:
                yield system.agent(node.id).when_idle()
            except AgentGone:
                continue

    def _begin_stop(self, cause: signals.StopCause) -> None:
        """Start the ordered stop; on a thread of the watch."""
        self._watch.force_after(self._grace + 2 * _DRAIN, cause.code)
        if self._system is not None:
            told: Cause = "deadline" if cause.kind == "timeout" else "user"
            self._system.shutdown(self._grace, cause=told)
        hint = "" if cause.kind in ("hangup", "request") else "; press Ctrl-C again to exit at once"
        self._reporter.notify(f"{cause.text}: stopping all agents{hint}")
        self._waker.wake()

    def _kill(self) -> None:
        """The last resort of who will not wait; the session can still be resumed."""
        assert self._system is not None
        self._system.kill_now()
        self._line, line = None, self._line
        if line is not None:
            self._reporter.leave(shown_exit_line(line, self._reporter.style))

    def _stop(self, system: ActorSystem) -> dict[str, Any]:
        """Stop the system and return its receipt, the last one if it does not end in time."""
        ending = system.shutdown(cause="disposed")
        ending.add_done_callback(self._waker.wake)
        deadline = monotonic() + self._grace + _DRAIN
        while not ending.done() and monotonic() < deadline:
            self._waker.wait(deadline - monotonic())
        if ending.done():
            return ending.result(0).to_dict()
        self._confirmed = False
        system.kill_now()
        return system.receipt().to_dict()

    def _outcome(self, receipt: dict[str, Any], system_id: str) -> Outcome:
        asked, told = self._asked.answers(), self._told
        roots = [agent.id for agent in self._spec.agents]
        answers = [asked.get(id) or told[id] for id in roots if id in asked or id in told]
        if self._failure is not None:
            answers = [self._failure]
        self._reporter.ledger.digest()
        verdict = judge(
            answers,
            self._watch.cause,
            receipt,
            self._reporter.ledger.reasons,
            confirmed=self._confirmed,
        )
        duration = monotonic() - self._started
        return Outcome(verdict, receipt, self._binding.session_id, system_id, duration)

    def _tell(self, stdout: output.ResultStream, outcome: Outcome) -> int:
        """Print the result, the receipt, and the exit line last.

        The terminal has been given back, and nothing is waited for any more: above all not the
        store, which may hang.
        """
        code = outcome.verdict.code
        try:
            if self._hand_over.wanted:
                stdout.give_back()  # the next process has its own result to write
            else:
                self._print_result(stdout, outcome)
            stdout.close()
        except output.OutputClosedError:
            self._write_exit_line()
            return code or exits.FAILED  # else as quietly as other commands in a pipe
        except OSError as error:
            code = output.print_error(f"the result cannot be written: {error}", code or 1)
        write_end(
            outcome,
            self._reporter.style,
            look=look_command(self._options, self._binding.session_id),
        )
        self._write_exit_line()
        if self._hand_over.wanted:
            return code
        if outcome.receipt["survivors"] or not self._confirmed:
            sys.stderr.flush()
            os._exit(code)  # a thread that never ends would hold up the interpreter's own end
        self._watch.force_after(_DRAIN, code)
        return code

    def _write_exit_line(self) -> None:
        self._line, line = None, self._line
        write_exit_line(line, self._reporter.style)

    def _print_result(self, stdout: output.ResultStream, outcome: Outcome) -> None:
        if self._stream is not None:
            patience = None if self._watch.cause is None else _TERMINAL_PATIENCE
            if not self._stream.close(patience):
                raise self._stream.error or output.OutputClosedError
        write_result(stdout, outcome, self._options.form, self._reporter.style)


def _open_store(options: Options, name: str) -> SessionStore:
    from dsh_actors.sessions import SqliteStore, default_store_path

    return SqliteStore(options.store or default_store_path(), holder=name)


def _walk(nodes: Iterable[TreeNode]) -> Iterator[TreeNode]:
    for node in nodes:
        yield node
        yield from _walk(node.children)
