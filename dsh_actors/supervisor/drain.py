"""Drains: everything below a place ends, and nothing new begins there.

A drain of the system closes admission for all, one of descendants only for the lineages of the
agents that were given. Both follow the order of a stop. *Mark*: in the section that closes
admission, every agent concerned is marked and its token set. *Notify*. *Wait*: first for the
creations that had been admitted, then, child-first, for the disposals.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dsh_actors.errors import AgentFailed, SurvivorsError, SystemClosed
from dsh_actors.supervisor.stops import Stop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh_actors.actors.future import Future
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.marking import Marked
    from dsh_actors.supervisor.preparation import Preparation
    from dsh_actors.supervisor.receipt import Receipt
    from dsh_actors.supervisor.supervisor import Supervisor


class Drain(Stop):
    """One drain under way.

    Parameters:
        tops: the roots of the subtrees that end.
        order: the marked snapshot: all of them and all below.
        preparing: the creations of which nothing is visible yet.
    """

    __slots__ = ("begun", "creating", "failures", "left", "preparing", "tops")

    def __init__(self, tops: list[Node], order: list[Node], preparing: list[Preparation]) -> None:
        super().__init__(None)
        self.order = order
        self.tops = tops
        # By generation: the tops whose disposal has not settled.
        self.left = {node.generation for node in tops}
        # Admitted creations whose creators are still at it.
        self.creating: set[Node | Preparation] = {node for node in order if node.creating}
        self.creating.update(preparing)
        self.preparing = preparing
        self.failures: list[Exception] = []
        self.begun = False

    def settle(self, receipt: Receipt) -> None:
        """Settle its future: with the receipt, or with all that failed, survivors included."""
        if self.failures:
            failures = list(self.failures)
            if receipt.survivors:
                names = ", ".join(survivor.id for survivor in receipt.survivors)
                failures.append(SurvivorsError(f"these agents have not ended: {names}"))
            self.future.try_set_error(
                ExceptionGroup("not every agent of the drain ended well", failures)
            )
        else:
            self.future.try_set_result(receipt)


class Drains:
    """All drains of one system. ``core.draining`` is this object as long as one is under way."""

    def __init__(self, core: Core, supervisor: Supervisor) -> None:
        self._core = core
        self._supervisor = supervisor
        self._active: list[Drain] = []  # guarded by the lock
        self._all: Drain | None = None

    def drain_all(self, cause: Cause, grace: float | None) -> Future[Receipt]:
        """Close admission for good and end every agent. All callers share one outcome."""
        core = self._core
        with core.lock:
            if self._all is not None:
                return self._all.future
            core.tree.close_admission()
            preparing = [each for each in core.preparing if each.node is None]
            drain, marked = self._mark_locked(list(core.tree.roots.values()), preparing, cause)
            self._all = drain
        return self._go_on(drain, marked, cause, grace)

    def drain_below(
        self, parents: Iterable[Node], cause: Cause, grace: float | None
    ) -> Future[Receipt]:
        """Close admission below exactly these live nodes, and end all that is below them."""
        core = self._core
        with core.lock:
            drain, marked = self._mark_locked(core.tree.seal(parents), [], cause)
        return self._go_on(drain, marked, cause, grace)

    def _mark_locked(
        self, tops: list[Node], preparing: list[Preparation], cause: Cause
    ) -> tuple[Drain, Marked]:
        core = self._core
        drain = Drain(tops, core.tree.mark(tops, cause), preparing)
        for node in drain.order:
            node.restarting = False  # this end is asked for
            if node.life is not None:
                node.life.tombstone = cause
        if tops or preparing:
            self._active.append(drain)
            core.draining = self
        return drain, self._supervisor.teardown.cut_locked(drain.order, cause, keep_inbox=False)

    def _go_on(
        self, drain: Drain, marked: Marked, cause: Cause, grace: float | None
    ) -> Future[Receipt]:
        teardown = self._supervisor.teardown
        teardown.notify(marked, cause)
        for preparation in drain.preparing:
            preparation.abort(SystemClosed("the system is stopping; a creation was rolled back"))
            preparation.rolled_back.add_done_callback(partial(self.created, preparation))
        if not drain.tops and not drain.preparing:
            drain.settle(teardown.receipt(drain, []))
            return drain.future
        seconds = self._core.settings.stop_grace if grace is None else grace
        drain.timer = self._supervisor.timers.after(
            seconds, self._supervisor.post, self._late, drain
        )
        self._supervisor.post(self._advance, drain)
        return drain.future

    # -- on the supervisor's thread ----------------------------------------------------------------

    def _advance(self, drain: Drain) -> None:
        if drain.creating:
            return
        self._begin(drain)
        if drain.left:
            return
        with self._core.lock:
            if drain not in self._active:
                return
            self._active.remove(drain)
            if not self._active:
                self._core.draining = None
        if drain.timer is not None:
            drain.timer.cancel()
        drain.settle(self._supervisor.teardown.receipt(drain, []))

    def _begin(self, drain: Drain) -> None:
        if drain.begun:
            return
        drain.begun = True
        for node in drain.tops:
            self._supervisor.teardown.disposals.begin(node)

    def _late(self, drain: Drain) -> None:
        """The grace period is over: a creation that hangs keeps nobody alive."""
        if drain.creating:
            self._core.log.warning(
                "a drain does not wait any longer for creations", creations=len(drain.creating)
            )
            drain.creating.clear()
        self._advance(drain)
        if drain.left:
            self._supervisor.teardown.escalate(drain)

    def settled(self, node: Node, failures: list[Exception]) -> None:
        """The disposal of some node has settled."""
        for failure in failures:
            failure.add_note(f"in the disposal of agent {node.id!r}")
        for drain in list(self._active):
            if failures and self._concerns(drain, node):
                drain.failures.extend(failures)
            if node.generation in drain.left:
                drain.left.discard(node.generation)
                self._advance(drain)

    def handle_failed(self, node: Node, problem: str) -> None:
        """The stop hook of some node has failed, or the end of its scope."""
        what, _, error = problem.partition(": ")
        kind, _, message = error.partition(": ")
        failure = AgentFailed(kind, f"{message} (agent {node.id!r}: {what})")
        for drain in list(self._active):
            if self._concerns(drain, node):
                drain.failures.append(failure)

    def _concerns(self, drain: Drain, node: Node) -> bool:
        return node.generation in drain.left or any(
            above.generation in drain.left for above in node.ancestors()
        )

    def _created(self, creation: Node | Preparation) -> None:
        for drain in list(self._active):
            if creation in drain.creating:
                drain.creating.discard(creation)
                self._advance(drain)

    # -- from any thread ---------------------------------------------------------------------------

    def created(self, creation: Node | Preparation, _: object = None) -> None:
        """Whoever created something is through with it."""
        self._supervisor.post(self._created, creation)

    def under_way(self) -> list[Drain]:
        """The drains that have not ended."""
        with self._core.lock:
            return list(self._active)
