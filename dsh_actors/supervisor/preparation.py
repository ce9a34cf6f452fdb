"""A creation that is not visible yet: prepare, enter, announce, with every way out installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import gates
from dsh_actors.actors.future import Future
from dsh_actors.agents.abort import AbortSignal
from dsh_actors.errors import AdmissionRefused, SystemClosed
from dsh_actors.supervisor.listeners import CREATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.ownership import Ownership
    from dsh_actors.supervisor.supervisor import Supervisor


class Preparation:
    """Fuses the three ways to abort a creation: its caller, its owner, its factory.

    Any one of them leads to the same roll-back, with the reason of the first. The caller's
    signal counts only until the handle is returned.

    Parameters:
        ownerships: the owner and the factory, as far as there are any.
        signal: the caller's.
        setup: runs before anything is visible; gets this preparation, may be abandoned.
    """

    def __init__(
        self,
        core: Core,
        supervisor: Supervisor,
        ownerships: tuple[Ownership, ...],
        signal: AbortSignal | None,
        setup: Callable[[Preparation], Any] | None,
    ) -> None:
        self._core = core
        self._supervisor = supervisor
        self._ownerships = ownerships
        self._caller = signal
        self._setup = setup
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
            raise AdmissionRefused(f"agent {node.id!r} was disposed during its creation")

    def publish(self, enter: Callable[[Preparation], Node]) -> Node:
        """Prepare, enter and announce.

        Parameters:
            enter: makes the agent visible, with this preparation's
                :meth:`entered_locked` called in the same section.

        Returns:
            The published node.

        Raises:
            BaseException: what aborted it; nothing is left then, or is on its way out.
        """
        with self._core.lock:
            if not self._core.tree.accepting:
                raise SystemClosed("the system is stopping; nothing was prepared")
            for ownership in self._ownerships:
                ownership.track_locked(self)
            self._core.preparing[self] = None
        if self._caller is not None:
            self._caller.add_callback(self._caller_aborted)
        try:
            self._run_setup()
            self.assert_live()
            node = enter(self)
            self._announce(node)
            if gates.plan is not None:
                gates.plan.reach("announced", node.id)
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._core.preparing.pop(self, None)
            if self._caller is not None:
                self._caller.remove_callback(self._caller_aborted)
        self.rolled_back.try_set_result(None)
        return node

    def _caller_aborted(self) -> None:
        assert self._caller is not None
        self.abort(self._caller.reason or AdmissionRefused("the creation was aborted"))

    def _run_setup(self) -> None:
        """Run the set-up hook; a blocked one is abandoned, since its thread cannot be."""
        setup = self._setup
        if setup is None:
            return
        done: Future[Any] = Future()

        def run() -> None:
            try:
                result = setup(self)
            except BaseException as error:
                done.try_set_error(error)
                return
            if not done.try_set_result(result) and callable(result):
                result()  # too late: what it had set up is released again

        self.signal.add_callback(
            lambda: done.try_set_error(self.signal.reason or AdmissionRefused("aborted"))
        )
        self._core.runtime.in_background("dsh-setup", run)
        done.result()

    def entered_locked(self, node: Node) -> None:
        """With the lock held, in the section that makes the node visible."""
        self.node = node
        for ownership in self._ownerships:
            ownership.entered_locked(self, node)
        if self._ownerships:
            self._core.owned[node.generation] = self._ownerships
        # Until it is announced it begins no turn, and no disposal takes it out of the map.
        self._core.publishing[node.generation] = []

    def _announce(self, node: Node) -> None:
        listeners = self._supervisor.listeners
        try:
            for event in CREATED:
                self.assert_live()
                listeners.announce(event, node)
            self.assert_live()
        finally:
            self._supervisor.published(node)

    def _roll_back(self) -> None:
        node = self.node
        if node is None:
            with self._core.lock:
                for ownership in self._ownerships:
                    ownership.untrack_locked(self, None)
            self.rolled_back.try_set_result(None)
            return
        stop = self._supervisor.teardown.stop(node, "disposed")
        stop.add_done_callback(lambda _: self.rolled_back.try_set_result(None))
