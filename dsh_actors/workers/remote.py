"""An agent that lives in a worker, as the supervisor knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgpack import Packer

from dsh_actors.agents.message import INJECT
from dsh_actors.workers import frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.agents.message import Message
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.workers.worker import Worker


class RemoteAgent:
    """The supervisor's side of one agent in a worker: what was delivered and not yet settled.

    The worker decides what is claimed and what is discarded, and says so in frame order; so
    "quiet" here is only what the worker has confirmed. Guarded by the lock of the tree.
    """

    __slots__ = (
        "begun",
        "epoch",
        "hooks",
        "injected",
        "kept",
        "key",
        "lost",
        "node",
        "pending",
        "resumable",
        "scoped",
        "started",
        "swept",
        "takes_notices",
        "turn",
        "worker",
    )

    def __init__(self, worker: Worker, node: Any) -> None:
        self.worker = worker
        self.node = node
        self.key: int = node.generation
        # Delivered messages whose turn has not ended, by id, in order.
        self.pending: dict[int, Message] = {}
        # How many of those are quiet ones, which may wait for ever for a turn.
        self.injected = 0
        self.started = False
        # Whether it has a stop hook to wait for at its release.
        self.hooks = True
        # Whether it has a scope, whose end its release waits for.
        self.scoped = False
        # What the worker says of its behaviour once it is set up.
        self.resumable = False
        self.takes_notices = False
        self.turn = 0  # the running turn, as last reported; 0 for none
        # The messages of the running turn: after a crash those are not delivered again.
        self.begun: list[int] = []
        # What a later life of it takes over, in order.
        self.kept: list[Message] = []
        # How many cancels were sent. A request of a turn that was made before one is stale.
        self.epoch = 0
        self.lost = False
        self.swept = False  # once lost: whether its process is confirmed gone

    @property
    def pid(self) -> int:
        """The process that hosts it."""
        return self.worker.pid

    def start(
        self,
        name: str,
        behaviour: str,
        args: bytes | None,
        *,
        reports: bool,
        life: Any = None,
        limits: list[Any] | None = None,
    ) -> None:
        """Queue its START frame. With the lock held; :meth:`ring` sends it.

        Parameters:
            name: its id.
            behaviour: the reference by which the worker finds it.
            args: the encoded arguments of the behaviour, or None.
            reports: whether the worker is to say which messages a turn begins with.
            life: of a next life, how many turns it has had and what it remembered.
            limits: its policy as plain data, and whether its turns are counted; None if there
                are none.
        """
        self.worker.seats[self.key] = self
        frame = [frames.START, self.key, name, behaviour, args, reports, life]
        if limits is not None:
            frame.append(limits)
        self.worker.queue(frame)

    def accept(self, message: Message) -> None:
        """Queue a delivery. With the lock held; :meth:`ring` sends it."""
        self.pending[message.id] = message
        if message.kind == INJECT:
            self.injected += 1
        self.worker.queue(
            [frames.DELIVER, self.key, message.id, message.kind, message.body, message.chain]
        )

    def ring(self) -> None:
        """Send what is queued. Never blocks."""
        self.worker.flush()

    def take(self, ids: list[int]) -> list[Message]:
        """Forget messages that the worker has settled, and return them."""
        taken = []
        for id in ids:
            message = self.pending.pop(id, None)
            if message is not None:
                if message.kind == INJECT:
                    self.injected -= 1
                taken.append(message)
        return taken

    def take_all(self) -> list[Message]:
        """Forget everything that was not settled: nobody will settle it any more."""
        taken = list(self.pending.values())
        self.pending.clear()
        self.injected = 0
        return taken

    @property
    def size(self) -> int:
        """How many messages wait or are worked on."""
        return len(self.pending)

    @property
    def is_set_up(self) -> bool:
        """Whether its behaviour was found and its start hook has run."""
        return self.started

    @property
    def is_running(self) -> bool:
        """Whether it works on something."""
        return self.turn > 0 or len(self.pending) > self.injected

    @property
    def busy(self) -> bool:
        """Whether a cancel would have an effect; that of a stop also interrupts a start."""
        if self.pending or self.turn > 0:
            return True
        return not self.started and self.node.closing is not None

    def is_quiet(self) -> bool:
        """Whether the worker has confirmed that it runs nothing and has no accepted work."""
        if self.lost:
            return True
        # The quiet ones of an agent that closes are discarded, which is still to be confirmed.
        rest = self.injected if self.node.closing is None else 0
        return self.started and not self.turn and len(self.pending) == rest

    def release(self) -> bool:
        """Ask the worker to release it; True if there is nothing to wait for."""
        if self.lost:
            return True
        self.worker.queue([frames.RELEASE, self.key])
        self.worker.flush()
        return not (self.hooks or self.scoped)

    def retire(self) -> None:
        """Nothing is left of it here."""
        self.worker.seats.pop(self.key, None)


def cancel_frame(keys: list[int], cause: Cause, keep_inbox: bool) -> list[Any]:
    """One frame that cancels many agents of a worker."""
    return [frames.CANCEL, keys, cause, keep_inbox]


pack: Callable[[Any], bytes] = Packer(autoreset=True).pack
"""Packs frames. They hold only what we put into them, so the plain packer does."""
