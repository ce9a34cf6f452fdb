"""The disposal of an agent: fourteen ordered steps, child-first, memoised.

The steps and their order are data (:data:`STEPS`), from the seed's ``finishDisposal``. Each is
one short function. A step that has to wait returns False and is resumed by an event, so that no
thread waits anywhere and a tree of any depth needs no stack. A failing step is recorded and
the next one runs: nothing of a tree is kept alive by one failure.

Only one thread at a time may drive a :class:`Disposals`: the supervisor's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.lifecycle.node import Node

# The events that a disposal can wait for, as bits.
CHILDREN: Final = 1
IDLE: Final = 2
FLUSHED: Final = 4
HANDLE: Final = 8

EVENT_NAMES: Final = {CHILDREN: "children", IDLE: "idle", FLUSHED: "flush", HANDLE: "handle"}


class DisposalPort(Protocol):
    """The effects of a disposal, performed by the shell.

    ``flush`` and ``dispose_handle`` return True if they are already complete; otherwise the
    shell calls :meth:`Disposals.event` once they are, or once their deadline has passed.
    """

    def wake(self, node: Node) -> None:
        """Wake whoever waits on this activation."""

    def cancel(self, node: Node) -> None:
        """Set its signal with the cause of its closing, and clear its inbox."""

    def is_idle(self, node: Node) -> bool:
        """Whether it runs no turn and has no accepted work; else the event IDLE must follow."""

    def flush(self, node: Node) -> bool:
        """Start the final flush, best effort and with a deadline."""

    def capture(self, node: Node) -> None:
        """Capture the final state, while the handle is live."""

    def dispose_handle(self, node: Node) -> bool:
        """Start the release of the agent itself: its stop hook, its scope, its actor."""

    def remove(self, node: Node) -> None:
        """Take the activation out of the map."""

    def notify_settlement(self, node: Node) -> None:
        """Give the parent its settlement notice."""

    def release(self, node: Node) -> None:
        """Release the ownership: take the node out of its parent's owned set."""

    def settle(self, node: Node, failures: list[Exception]) -> None:
        """Tell the observers the real outcome: the last step."""


class Disposal:
    """The memo of one teardown: its progress, and what failed on the way."""

    __slots__ = ("children", "counted", "failures", "node", "pending", "seen", "step", "waiting")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.step = 0  # index of the next step in STEPS
        self.waiting = 0  # the event it waits for, 0 while it runs or is done
        self.seen = 0  # the events that have come, as bits
        self.pending = 0  # children whose disposal has not finished
        self.counted = False  # whether the parent's disposal waits for this one
        self.children: tuple[Node, ...] = ()
        self.failures: list[Exception] | None = None

    @property
    def done(self) -> bool:
        """Whether all steps have run."""
        return self.step == len(STEPS)

    def __repr__(self) -> str:
        at = "done" if self.done else STEPS[max(0, self.step - 1)].__name__
        return f"<Disposal of {self.node.id} at {at}>"


class Disposals:
    """Drives disposals by events.

    Whatever has begun comes first to the point where it would wait, children included, before
    any disposal goes on from there: a whole subtree is cancelled before anything in it waits.

    Parameters:
        port: performs the effects.
    """

    __slots__ = ("_begun", "_ready", "_running", "port")

    def __init__(self, port: DisposalPort) -> None:
        self.port = port
        self._begun: list[Disposal] = []  # in order of beginning: parents before children
        self._ready: list[Disposal] = []
        self._running = False

    def begin(self, node: Node) -> Disposal:
        """Start the disposal of a node, or return the one that is under way or done.

        The memo is stored before the first step, since a step can re-enter.
        """
        disposal = node.disposal
        if disposal is None:
            disposal = node.disposal = Disposal(node)
            self._begun.append(disposal)
            self._run()
        return disposal

    def event(self, node: Node, event: int) -> None:
        """Tell a disposal what has come: IDLE, FLUSHED or HANDLE. Early and repeated ones count."""
        disposal = node.disposal
        if disposal is None or disposal.seen & event:
            return
        disposal.seen |= event
        if disposal.waiting == event:
            disposal.waiting = 0
            self._ready.append(disposal)
            self._run()

    def _run(self) -> None:
        if self._running:  # re-entered by an effect: the outer loop goes on with it
            return
        self._running = True
        begun, ready = self._begun, self._ready
        try:
            while begun or ready:
                for disposal in begun:  # grows by the children of those that it passes
                    self._advance(disposal, FIRST_WAIT)
                ready += begun
                begun.clear()
                if ready:
                    self._go_on(ready.pop())
        finally:
            self._running = False

    def _go_on(self, disposal: Disposal) -> None:
        try:
            if self._advance(disposal, len(STEPS)):
                self._finished(disposal)
        except BaseException:
            # Not a failure of the step but of the thread, such as KeyboardInterrupt. The next
            # step is due once somebody drives again: nothing of a tree may be forgotten.
            self._ready.append(disposal)
            raise

    def _advance(self, disposal: Disposal, end: int) -> bool:
        """Run the steps up to ``end``; False if one of them has to wait."""
        steps = STEPS
        while disposal.step < end:
            step = steps[disposal.step]
            disposal.step += 1
            try:
                go_on = step(self, disposal)
            except Exception as error:
                go_on = True
                if disposal.failures is None:
                    disposal.failures = []
                disposal.failures.append(error)
            if not go_on:
                return False
        return True

    def _finished(self, disposal: Disposal) -> None:
        disposal.children = ()
        parent = disposal.node.parent
        if disposal.counted and parent is not None and parent.disposal is not None:
            above = parent.disposal
            above.pending -= 1
            if not above.pending:
                self.event(parent, CHILDREN)

    def _await(self, disposal: Disposal, event: int) -> bool:
        if disposal.seen & event:
            return True
        disposal.waiting = event
        return False


def wake(machine: Disposals, disposal: Disposal) -> bool:
    """No settlement watcher sleeps through the teardown."""
    machine.port.wake(disposal.node)
    return True


def cancel(machine: Disposals, disposal: Disposal) -> bool:
    """The signal comes before the first wait."""
    machine.port.cancel(disposal.node)
    return True


def capture_idle(machine: Disposals, disposal: Disposal) -> bool:
    """Own shutdown and the children's shutdown overlap: idle is asked now, awaited later."""
    if machine.port.is_idle(disposal.node):
        disposal.seen |= IDLE
    return True


def collect_children(machine: Disposals, disposal: Disposal) -> bool:
    """The owned set is frozen here: nothing enters below a closing node."""
    owned = disposal.node.children
    if owned:
        children = tuple(
            child for child in owned.values() if child.disposal is None or not child.disposal.done
        )
        disposal.children = children
        disposal.pending = len(children)
    return True


def start_children(machine: Disposals, disposal: Disposal) -> bool:
    """All are started before any is awaited."""
    for child in disposal.children:
        # Never finishes in this call: the machine is running this step, so it only queues it.
        machine.begin(child).counted = True
    return True


def await_children(machine: Disposals, disposal: Disposal) -> bool:
    """Child-first: each is completely released before its parent goes on."""
    if not disposal.pending:
        return True
    return machine._await(disposal, CHILDREN)


def await_idle(machine: Disposals, disposal: Disposal) -> bool:
    """After the children, so that their notices have been delivered before the own stop."""
    if machine.port.is_idle(disposal.node):
        return True
    return machine._await(disposal, IDLE)


def flush(machine: Disposals, disposal: Disposal) -> bool:
    """Best effort: what fails or hangs is logged, and never keeps a tree alive."""
    return machine.port.flush(disposal.node) or machine._await(disposal, FLUSHED)


def capture_state(machine: Disposals, disposal: Disposal) -> bool:
    """While the handle is live: log and scope are unreliable afterwards."""
    machine.port.capture(disposal.node)
    return True


def dispose_handle(machine: Disposals, disposal: Disposal) -> bool:
    """Before the activation leaves the map, so that a racing delivery still finds it."""
    return machine.port.dispose_handle(disposal.node) or machine._await(disposal, HANDLE)


def remove_activation(machine: Disposals, disposal: Disposal) -> bool:
    """Before the notice: whoever is told finds the id free."""
    machine.port.remove(disposal.node)
    return True


def notify(machine: Disposals, disposal: Disposal) -> bool:
    """Before the release: a parent has the notice before it can see itself childless."""
    machine.port.notify_settlement(disposal.node)
    return True


def release_ownership(machine: Disposals, disposal: Disposal) -> bool:
    """The child leaves its parent's owned set."""
    machine.port.release(disposal.node)
    return True


def settle(machine: Disposals, disposal: Disposal) -> bool:
    """Last: the real outcome, with whatever failed on the way."""
    machine.port.settle(disposal.node, disposal.failures or [])
    return True


STEPS: Final[tuple[Callable[[Disposals, Disposal], bool], ...]] = (
    wake,
    cancel,
    capture_idle,
    collect_children,
    start_children,
    await_children,
    await_idle,
    flush,
    capture_state,
    dispose_handle,
    remove_activation,
    notify,
    release_ownership,
    settle,
)

FIRST_WAIT: Final = STEPS.index(await_children)
"""How many steps never wait."""
