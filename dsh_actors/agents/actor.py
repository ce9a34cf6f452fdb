"""The Pykka actor of one agent: doorbell, claim, turns.

Its mailbox is a doorbell; its work sits in the inbox. All fields are guarded by the lock of the
host. At most one turn runs at a time, on a dispatcher thread (plain) or on the event loop.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any, Final

from dsh_actors import codec, gates
from dsh_actors.actors.pooled import PooledActor
from dsh_actors.agents.behaviour import (
    FILE_MODULE,
    Behaviour,
    Remembered,
    Resolved,
    Settlement,
    resolve,
)
from dsh_actors.agents.inbox import Inbox
from dsh_actors.agents.message import NOTICE
from dsh_actors.agents.scope import Scope
from dsh_actors.agents.turn import Turn, TurnError
from dsh_actors.agents.waiting import current_turn
from dsh_actors.errors import (
    Cancelled,
    DshActorsError,
    MessageError,
    ScopeInactive,
    UsageError,
)
from dsh_actors.lifecycle.policy import UNBOUNDED

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.calls import Earlier
    from dsh_actors.agents.host import AgentHost
    from dsh_actors.agents.message import Message
    from dsh_actors.agents.meter import Meter
    from dsh_actors.agents.shell import Commands
    from dsh_actors.lifecycle.causes import Cause

STARTING: Final = 0
READY: Final = 1
RELEASING: Final = 2
RELEASED: Final = 3
FAILED: Final = 4
"""Its start has failed, which its supervisor has still to record: it is not quiet until then."""

NOTHING: Final = codec.encode(None)

START_CANCELLED: Final = "Cancelled"
"""The type name in the error of an agent whose start was cancelled, so that it never ran."""

LONGEST_TEXT: Final = 100_000
"""How many characters of an error's message, and of its traceback, are kept."""

REDELIVERY: Final = 0.1
"""Seconds after which a cancel is delivered again to an async turn that swallowed it."""


class AgentActor(PooledActor):
    """Hosts one agent in this process.

    Parameters:
        host: all agents of the process.
        name: the id of the agent.
        key: what the supervisor knows it by.
        target: the behaviour, or a reference to it that is resolved before the first turn.
        args: arguments for the behaviour.
    """

    # Not reachable by pykka.ActorRegistry.stop_all, which would be a second way to end an agent.
    registered_with_pykka = False

    policy = UNBOUNDED
    """What it may do. An attribute of the class for the many that may do everything."""

    # What was registered for it, if anything was.
    scope: Scope | None = None

    # The commands that end with it, if it has run any.
    commands: Commands | None = None

    # What it knows of the calls of its earlier lives, if it has to know anything.
    earlier: Earlier | None = None

    def __init__(
        self, host: AgentHost, name: str, key: Any, target: Any, args: dict[str, Any] | None
    ) -> None:
        super().__init__(dispatcher=host.dispatcher)
        self.host = host
        self.name = name
        self.key = key
        self.args = args
        self.inbox = Inbox()
        self.running: Turn | None = None
        self.turns = 0
        # Whether it stands in the line for a permit, so that it stands there once.
        self.in_line = False
        # Whether its supervisor wants to know what each turn begins with.
        self.reports = False
        # Its own events of earlier lives, as type and encoded data, to be replayed at its set-up.
        self.remembered: Sequence[tuple[str, bytes]] = ()
        # Counts its turns, if it has a budget.
        self.meter: Meter | None = None
        # How many cancels it has seen. A request that was made before one is refused after it.
        self.epoch = 0
        self.is_async = False
        if isinstance(target, Resolved) and not target.is_class:
            # Nothing to import, construct or run first: it is ready as it is.
            self.state = READY
            self.call: Callable[..., Any] = target.target
            self.is_async = target.is_async
            self.instance: Any = None
        else:
            self.state = STARTING
            self.instance = target

    def __str__(self) -> str:
        return f"agent {self.name}"

    # -- the doorbell --------------------------------------------------------------------------

    def ring(self) -> None:
        """Have it look at its inbox. From any thread; never blocks."""
        self.actor_inbox.ring()

    def on_doorbell(self) -> None:
        """Claim and run turns while there is work; runs on a dispatcher thread."""
        host = self.host
        with host.lock:
            turn = self._claim()
        if self.meter is not None:
            if turn is None:
                self.meter.ask()
            elif turn._reason == "limit":
                host.port.turn_refused(self, turn)
                return
        if turn is None:
            if host.permits.wanted:
                host.offer_permit()
            return
        if self.reports and turn.number > 0:
            host.port.turn_started(self, turn)
        if gates.plan is not None and turn.number > 0:
            self._reach_claimed(gates.plan)
        if self.is_async and turn.number >= 0:
            host.loop.call(self._begin_async, turn)
            return
        host.dispatcher.enter_blocking()
        try:
            for left in range(host.turns_per_visit, 0, -1):
                turn = self._run_plain(turn, go_on=left > 1)
                if turn is None:
                    break
        finally:
            host.dispatcher.exit_blocking()
        if self.inbox.waking or self.state == RELEASING:
            self.ring()

    def _reach_claimed(self, plan: gates.Plan) -> None:
        self.host.dispatcher.enter_blocking()
        try:
            plan.reach("claimed", self.name)
        finally:
            self.host.dispatcher.exit_blocking()

    def _claim(self) -> Turn | None:
        if self.running is not None:
            return None
        if self.state == READY:
            if not self.inbox.waking:
                return None
            if self.meter is not None and not self.meter.may_begin():
                return self._refused()
            if not self.is_async and not self.host.permits.take():
                if not self.in_line:
                    self.in_line = True
                    self.host.permits.wait(self._permitted)
                return None
            if self.meter is not None:
                self.meter.begin()
            self.turns += 1
            turn = Turn(self, self.turns, self.inbox.claim())
            self.running = turn
            return turn
        if self.state == STARTING or self.state == RELEASING:
            turn = self.running = Turn(self, -1 if self.state == STARTING else 0, [])
            if not turn._is_async:
                self.host.permits.take_over_limit()
            return turn
        return None

    def _refused(self) -> Turn | None:
        """A turn that may not begin, with its batch; None if that is not known yet."""
        assert self.meter is not None
        if not self.meter.refuses():
            return None
        turn = self.running = Turn(self, self.turns + 1, self.inbox.claim())
        turn._reason = "limit"
        return turn

    def _permitted(self) -> bool:
        """Look again; False if this agent has ended, so that the next in line should."""
        self.in_line = False
        return self.actor_inbox.ring()

    # -- turns ---------------------------------------------------------------------------------

    def _run_plain(self, turn: Turn, go_on: bool) -> Turn | None:
        """Run a turn on this thread, and claim the next one if there is one and ``go_on``."""
        turn._thread = get_ident()
        token = current_turn.set(turn)
        goes_on = False
        try:
            if turn.number > 0:
                if self.scope is not None:
                    self.scope.emit("turn/start", turn.number)
                self._steps(turn)
            elif turn.number < 0:
                goes_on = self._set_up(turn)
            else:
                self.instance.on_stop(turn)
        except BaseException as error:
            self._failed(turn, error)
        finally:
            current_turn.reset(token)
        if goes_on:
            turn._is_async = True
            self.host.give_permit()  # on the loop it needs none
            self.host.loop.call(self._begin_async, turn)
            return None
        return self._end_turn(turn, go_on)

    def _steps(self, turn: Turn) -> None:
        call, decode, signal, inbox = self.call, codec.decode, turn.signal, self.inbox
        for message in turn._batch:
            turn._message = message
            if signal.cause is not None:
                turn.check()
            value = decode(message.body)
            if message.kind >= NOTICE:
                value, call = self._noticed(value)
            result = call(turn, value)
            call = self.call
            turn._results.append(NOTHING if result is None else self._encoded(result))
            if inbox.steering:
                self._take_steering(turn)

    async def _steps_async(self, turn: Turn) -> None:
        current_turn.set(turn)
        if turn.number <= 0:
            hook = self.instance.on_start if turn.number < 0 else self.instance.on_stop
            awaitable = hook(turn)
            if awaitable is not None:  # None from those of Behaviour itself
                await awaitable
            return
        if self.scope is not None:
            self.scope.emit("turn/start", turn.number)
        for message in turn._batch:
            turn._message = message
            turn.check()
            value, call = codec.decode(message.body), self.call
            if message.kind >= NOTICE:
                value, call = self._noticed(value)
            turn._results.append(self._encoded(await call(turn, value)))
            if self.inbox.steering:
                self._take_steering(turn)

    def _noticed(self, value: dict[str, Any]) -> tuple[Any, Callable[..., Any]]:
        """A notice as its hook takes it, and the hook."""
        if "child" in value:
            return Settlement(**value), getattr(self.instance, "on_settled", self.call)
        from dsh_actors.shell.tool import ShellNotice

        return ShellNotice(**value), self.instance.on_shell_done

    def _take_steering(self, turn: Turn) -> None:
        with self.host.lock:
            if turn.signal.cause is not None:  # a cancelled turn takes on nothing more
                return
            claimed = self.inbox.claim_steering()
            turn._batch.extend(claimed)
        if claimed and self.reports:
            self.host.port.turn_steered(self, turn, claimed)

    def _encoded(self, result: Any) -> bytes:
        try:
            return codec.encode(result)
        except MessageError as error:
            raise MessageError(
                error.path, f"{error.problem} (in the result of agent {self.name!r})"
            ) from None

    def _failed(self, turn: Turn, error: BaseException) -> None:
        cause = turn.signal.cause
        if cause is not None and _is_cancellation(error):
            turn._reason, turn._cause = "aborted", cause
            if turn.number < 0:
                turn._error = TurnError(START_CANCELLED, f"its start was cancelled ({cause})", "")
        else:
            turn._reason, turn._error = "error", describe(error)

    def _set_up(self, turn: Turn) -> bool:
        """Find or make what is to be called; whether an async start hook is still to run."""
        found = self.instance if isinstance(self.instance, Resolved) else resolve(self.instance)
        if not found.is_class:
            self.instance, self.call = None, found.target
        else:
            self.instance = found.target(**(self.args or {}))
            self.call = self.instance.on_message
            for type, body in self.remembered:
                self.instance.replay(Remembered(type, codec.decode(body)))
            self.remembered = ()
            if not found.is_async:
                self.instance.on_start(turn)
        self.is_async = found.is_async
        return found.is_class and found.is_async

    def _begin_async(self, turn: Turn) -> None:
        """Start an async turn; runs on the loop's thread."""
        loop = self.host.loop.loop
        assert loop is not None
        task = turn._task = loop.create_task(
            self._steps_async(turn), name=f"{self.name} turn {turn.number}"
        )
        task.add_done_callback(lambda task: self._async_done(turn, task))
        turn.signal.add_callback(lambda: self.host.loop.call(self._cancel_task, turn))

    def _cancel_task(self, turn: Turn) -> None:
        """Deliver the signal, and again until the turn has ended: a level, not an edge."""
        task, loop = turn._task, self.host.loop.loop
        if task is not None and loop is not None and not task.done():
            task.cancel(turn.signal.cause)
            loop.call_later(REDELIVERY, self._cancel_task, turn)

    def _async_done(self, turn: Turn, task: asyncio.Task[None]) -> None:
        turn._task = None
        if task.cancelled():
            import asyncio

            self._failed(turn, asyncio.CancelledError("cancelled from outside"))
        else:
            error = task.exception()
            if error is not None:
                self._failed(turn, error)
        following = self._end_turn(turn, True)
        if following is not None:
            self._begin_async(following)

    def _end_turn(self, turn: Turn, go_on: bool) -> Turn | None:
        """Report the end of a turn, and claim the next one in the section that ends this one."""
        if turn.number <= 0:
            self._end_hook(turn)
            return None
        host = self.host
        port = host.port
        if self.meter is not None and turn.signal.cause == "budget":
            turn._reason, turn._cause = "limit", "budget"  # whatever the behaviour made of it
        port.turn_ending(self, turn)
        if self.scope is not None:
            self.scope.emit("turn/end", turn.number, turn._reason)
        following: Turn | None = None
        ring: Callable[[], object] | None = None
        with host.lock:
            self.running = None
            inbox = self.inbox
            permits = host.permits
            if (
                go_on and inbox.waking and self.state == READY and not permits.contended
                and gates.plan is None  # which wants each claim to come by a visit
                and self.meter is None  # which has to be asked
            ):  # fmt: skip
                # Nobody stands in line: the permit goes on to the next turn.
                self.turns += 1
                following = self.running = Turn(self, self.turns, inbox.claim())
            elif not self.is_async:
                ring = permits.give()
        if ring is not None:
            host.pass_on(ring)
        port.turn_ended(self, turn, following is not None)
        if following is not None and self.reports:
            port.turn_started(self, following)
        if following is None and self.is_async and (inbox.waking or self.state == RELEASING):
            self.ring()
        return following

    def _end_hook(self, turn: Turn) -> None:
        host = self.host
        with host.lock:
            self.running = None
            if turn.number == 0:
                self.state = RELEASED
            elif self.state == STARTING:
                self.state = READY if turn._error is None else FAILED
            ring = None if turn._is_async else host.permits.give()
        if ring is not None:
            host.pass_on(ring)
        if turn.number == 0:
            error = turn._error
            self._end_scope(
                None if error is None
                else f"its stop hook failed: {error.type_name}: {error.message}"
            )  # fmt: skip
        else:
            host.port.started(self, turn._error)
            self.ring()

    # -- what the supervisor does to it --------------------------------------------------------

    def cut(self, cause: Cause, keep_inbox: bool) -> tuple[list[Message], list[Callable[[], None]]]:
        """Clear or hold the inbox, then set the signal of the running turn. With the lock held.

        Returns:
            The messages that were discarded, and the callbacks of the signal, for the notify
            phase. Both are empty if the cancel had no effect.
        """
        self.epoch += 1
        running = self.running
        dropped = []
        if not keep_inbox:
            dropped = self.inbox.clear()
        elif running is not None:
            self.inbox.hold()
        return dropped, running.signal.set(cause) if running is not None else []

    def is_quiet(self) -> bool:
        """Whether it runs nothing and has no accepted work. Called with the lock held."""
        inbox = self.inbox  # what an interrupt has kept there is accepted work
        if self.running is not None or inbox.waking or inbox.held:
            return False
        return self.state != STARTING and self.state != FAILED

    def release(self) -> bool:
        """Run its stop hook, if it has one, and end the actor. The agent must be idle.

        Returns:
            True if that is done already; else ``port.released`` follows.
        """
        with self.host.lock:
            hook = self.state == READY and self.instance is not None
            self.state = RELEASING if hook else RELEASED
        if hook:
            self.ring()
            return False
        if self.scope is None:
            return True
        self._end_scope(None)
        return False

    def _end_scope(self, problem: str | None) -> None:
        """After the last turn and the stop hook: end the scope, then tell."""
        scope = self.scope
        if scope is None:
            self.host.port.released(self, problem)
            return

        def ended(future: Future[None]) -> None:
            error = future.exception(0)
            found = [] if problem is None else [problem]
            if error is not None:
                found.append(f"its scope failed to end: {_all_of(error)}")
            self.host.port.released(self, "; ".join(found) or None)

        scope.dispose().add_done_callback(ended)

    def scope_for(self, turn: Turn | None) -> Scope:
        """Its scope, made when it is first asked for.

        Parameters:
            turn: the turn that asks; None for who created the agent.

        Raises:
            UsageError: the turn is over.
            ScopeInactive: the agent has ended.
        """
        made = False
        with self.host.lock:
            if turn is not None and self.running is not turn:
                raise UsageError(
                    f"turn {turn.number} of agent {self.name!r} is over; take the scope while it "
                    "runs"
                )
            if self.scope is None:
                if self.state in (RELEASED, FAILED):
                    raise ScopeInactive(f"agent {self.name!r} has ended, and its scope with it")
                self.scope = Scope(str(self), self.host.apart)
                made = True
            scope = self.scope
        if made:
            self.host.port.scoped(self)
        return scope

    # -- what the supervisor knows of it, as of a remote one ------------------------------------

    lost = False
    kept: list[Message] = []  # noqa: RUF012 - replaced, never changed, by an agent that needs it

    @property
    def resumable(self) -> bool:
        """Whether a next life can take up where this one ends."""
        return self.instance is None or type(self.instance).replay is not Behaviour.replay

    @property
    def takes_notices(self) -> bool:
        """Whether it wants to hear of its children's settlements."""
        if self.instance is None:
            return bool(getattr(self.call, "__dsh_settlements__", False))
        return getattr(type(self.instance), "on_settled", None) is not Behaviour.on_settled

    @property
    def takes_shell_notices(self) -> bool:
        """Whether it wants to hear of the ends of its commands in the background."""
        hook = getattr(type(self.instance), "on_shell_done", None)
        return hook is not None and hook is not Behaviour.on_shell_done

    @property
    def pid(self) -> int:
        """The process that hosts it: this one."""
        return self.host.pid

    @property
    def size(self) -> int:
        """How many messages wait in its inbox."""
        return self.inbox.count

    @property
    def is_set_up(self) -> bool:
        """Whether its behaviour was found and its start hook has run."""
        return self.state != STARTING

    @property
    def is_running(self) -> bool:
        """Whether it works on something."""
        return self.running is not None or self.inbox.waking > 0

    @property
    def busy(self) -> bool:
        """Whether a cancel would have an effect."""
        return self.running is not None or self.inbox.count > 0

    def accept(self, message: Message) -> None:
        """Put a message into the inbox. With the lock held; :meth:`ring` makes it work."""
        self.inbox.put(message)


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, Cancelled):
        return True
    kind = type(error)
    return kind.__name__ == "CancelledError" and kind.__module__.startswith("asyncio")


def _all_of(error: BaseException) -> str:
    """What went wrong, one by one."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_all_of(each) for each in error.exceptions)
    found = describe(error)
    return f"{found.type_name}: {found.message}"


def describe(error: BaseException) -> TurnError:
    """An exception as it crosses processes: type name, message and traceback text."""
    import traceback

    kind = type(error)
    name = kind.__qualname__
    module = kind.__module__
    named = module not in ("builtins", "__main__") and not module.startswith(FILE_MODULE)
    if not isinstance(error, DshActorsError) and named:
        name = f"{module}.{name}"
    try:
        message = str(error)
    except Exception as second:
        message = f"<no text: its __str__ raised {type(second).__name__}>"
    trace = "".join(traceback.format_exception(error))
    return TurnError(_carried(name), _carried(message), _carried(trace[-LONGEST_TEXT:]))


def _carried(text: str) -> str:
    """A text that can be encoded: the name of a file, for one, may hold no valid Unicode."""
    return text[:LONGEST_TEXT].encode(errors="backslashreplace").decode()
