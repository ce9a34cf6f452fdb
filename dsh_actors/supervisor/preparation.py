"""A creation that is not visible yet: prepare, enter, announce, with every way out installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import gates
from dsh_actors.actors.future import Future
from dsh_actors.agents.abort import AbortSignal
from dsh_actors.agents.containment import passes
from dsh_actors.agents.waiting import Awaited, current_turn, runs_here
from dsh_actors.errors import AdmissionRefused, AgentGone, StoreError, SystemClosed, UsageError
from dsh_actors.supervisor.listeners import CREATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.ownership import Ownership
    from dsh_actors.supervisor.supervisor import Supervisor


class Preparation:
    """Fuses the three ways to abort a creation: its caller, its owner, its factory.

    Any one of them leads to the same roll-back, with the reason of the first. The caller's
    signal counts only until the agent is published.

    Parameters:
        ownerships: the owner and the factory, as far as there are any, in this order.
        signal: the caller's.
        setup: runs before anything is visible; gets this preparation, may be abandoned. What it
            returns, if that can be called, undoes it once the creation is rolled back.
        waits: whether a creation that fails waits for the end of its roll-back.
    """

    def __init__(
        self,
        core: Core,
        supervisor: Supervisor,
        ownerships: tuple[Ownership, ...],
        signal: AbortSignal | None,
        setup: Callable[[Preparation], Any] | None,
        *,
        waits: bool = True,
    ) -> None:
        self._core = core
        self._supervisor = supervisor
        self._ownerships = ownerships
        self._caller = signal
        self._setup = setup
        self._waits = waits
        self._undo: Callable[[], Any] | None = None
        self.signal = AbortSignal()
        """For the set-up hook: set when the creation is aborted."""
        self.rolled_back: Future[None] = Future()
        """Done once nothing of this creation is left, or its agent has taken over."""
        self.node: Node | None = None

    def abort(self, reason: BaseException) -> None:
        """Abort the creation. From any thread; the first reason counts."""
        self.signal.abort(reason)

    def assert_live(self) -> None:
        """The check at each boundary.

        Raises:
            BaseException: the reason of the abort.
        """
        reason = self.signal.reason
        if reason is not None:
            raise reason
        node = self.node
        if node is not None and node.closing is not None:
            why = f" ({node.detail})" if node.detail else ""
            raise AdmissionRefused(f"agent {node.id!r} was disposed during its creation{why}")

    def publish(self, enter: Callable[[Preparation], Node]) -> Node:
        """Prepare, enter and announce.

        Parameters:
            enter: makes the agent visible, with this preparation's
                :meth:`entered_locked` called in the same section.

        Returns:
            The published node.

        Raises:
            BaseException: what aborted it. Nothing is left then, or, on a thread that must not
                wait for that, it is on its way out.
        """
        self._admit()
        try:
            if self._caller is not None:
                self._caller.add_callback(self._caller_aborted)
            self._run_setup()
            self.assert_live()
            node = enter(self)
            for event in CREATED:
                self.assert_live()
                self._supervisor.listeners.announce(event, node)
            self._commit(node)
            if gates.plan is not None:
                gates.plan.reach("announced", node.id)
        except BaseException as error:
            self._roll_back(error)
            raise
        finally:
            if self._caller is not None:
                self._caller.remove_callback(self._caller_aborted)
        self.rolled_back.try_set_result(None)
        return node

    # -- prepare -----------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Registered everywhere or nowhere, in the section that checks admission."""
        core = self._core
        with core.lock:
            if not core.tree.accepting:
                raise SystemClosed("the system is stopping; nothing was prepared")
            for ownership in self._ownerships:
                ownership.check_locked(core)
            for ownership in self._ownerships:
                ownership.track_locked(self)
            core.preparing[self] = None

    def _caller_aborted(self) -> None:
        assert self._caller is not None
        self.abort(self._caller.reason or AdmissionRefused("the creation was aborted"))

    def _run_setup(self) -> None:
        """Run the set-up hook; a blocked one is abandoned, since its thread cannot be."""
        setup = self._setup
        if setup is None:
            return
        turn = current_turn.get()
        if turn is not None and turn._is_async and runs_here(turn):
            raise UsageError(
                "a set-up hook would block every other async turn; create the agent in a plain "
                "behaviour, or with asyncio.to_thread"
            )
        done: Future[Any] = Awaited()

        def run() -> None:
            try:
                undo = setup(self)
            except BaseException as error:
                done.try_set_error(error)
                return
            if not done.try_set_result(undo):
                self._release(undo)  # too late: what it had set up is released again

        self.signal.add_callback(
            lambda: done.try_set_error(self.signal.reason or AdmissionRefused("aborted"))
        )
        self._core.runtime.in_background("dsh-setup", run)
        try:
            self._undo = done.result()
        except BaseException as error:
            # Whatever ended the wait: from here on the hook is abandoned. If it has just
            # returned, its result is here and is undone with the rest.
            self.signal.abort(error)
            if done.exception(0) is None:
                self._undo = done.result(0)
            raise

    # -- enter -------------------------------------------------------------------------------------

    def entered_locked(self, node: Node) -> None:
        """With the lock held, in the section that makes the node visible."""
        core = self._core
        self.node = node
        for ownership in self._ownerships:
            ownership.entered_locked(node)
        if self._ownerships:
            core.owned[node.generation] = self._ownerships
        # Until it is published it begins no turn, and no disposal takes it out of the map.
        core.publishing[node.generation] = []
        self._supervisor.listeners.entered_locked(node)

    # -- announce, and be through ------------------------------------------------------------------

    def _commit(self, node: Node) -> None:
        """Published or refused, in one section; what was accepted meanwhile may run then."""
        core, supervisor = self._core, self._supervisor
        with core.lock:
            self.assert_live()
            if core.journal is not None:
                core.journal.publish_locked(node)
            self._through_locked()
            supervisor.listeners.published_locked(node)
            held, failed = _accept_held_locked(core, supervisor, node)
        for message, problem in failed:
            message.refuse(problem)
        if held:
            node.agent.ring()
        if core.idle_waiters:
            supervisor.post(supervisor.teardown.turn_over, node, 0)

    def _through_locked(self) -> None:
        for ownership in self._ownerships:
            ownership.settled_locked(self)
        self._core.preparing.pop(self, None)

    # -- roll back ---------------------------------------------------------------------------------

    def _roll_back(self, error: BaseException) -> None:
        core, supervisor, node = self._core, self._supervisor, self.node
        self.signal.abort(error)
        if node is None:
            with core.lock:
                self._through_locked()
            self._released()
            return
        # First it is closed, then the announcement is over: nothing runs in between.
        stop = supervisor.teardown.stop(node, "disposed")
        with core.lock:
            self._through_locked()
            held = core.publishing.pop(node.generation, [])
        for message in held:
            message.refuse(AgentGone(f"agent {node.id!r} was never published"))
        supervisor.post(supervisor.teardown.turn_over, node, 0)
        stop.add_done_callback(lambda _: self._gone())
        if self._waits and supervisor.may_wait():
            self.rolled_back.result()

    def _gone(self) -> None:
        """Its agent is torn down. The undo is user code, so that it gets a thread of its own."""
        if self._undo is None:
            self.rolled_back.try_set_result(None)
        else:
            self._core.runtime.in_background("dsh-undo", self._released)

    def _released(self) -> None:
        undo, self._undo = self._undo, None
        try:
            self._release(undo)
        finally:
            self.rolled_back.try_set_result(None)

    def _release(self, undo: Any) -> None:
        if not callable(undo):
            return
        try:
            undo()
        except BaseException as error:
            if passes(error):
                raise
            self._core.log.exception("what a set-up hook returned has failed to undo it")


def _accept_held_locked(
    core: Core, supervisor: Supervisor, node: Node
) -> tuple[bool, list[tuple[Message, StoreError]]]:
    """What came for an agent while it was announced is accepted work from here on.

    Returns:
        Whether there was anything, and what could not be stored.
    """
    held = core.publishing.pop(node.generation, [])
    failed: list[tuple[Message, StoreError]] = []
    if node.restarting:
        node.agent.kept = [*node.agent.kept, *held]
        return False, failed
    for message in held:
        try:
            supervisor.delivery.accept_locked(node, message)
        except StoreError as error:
            failed.append((message, error))
    return bool(held), failed


def publish(core: Core, supervisor: Supervisor, node: Node) -> None:
    """An agent that was held back may begin, or end."""
    with core.lock:
        held, failed = _accept_held_locked(core, supervisor, node)
    for message, problem in failed:
        message.refuse(problem)
    if held:
        node.agent.ring()
    supervisor.post(supervisor.teardown.turn_over, node, 0)
