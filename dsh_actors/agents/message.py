"""What travels to an inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from dsh_actors.actors.future import Future

FOLLOW_UP: Final = 0
"""The next turn, and it wakes the agent."""
STEER: Final = 1
"""The next step, and it wakes the agent."""
INJECT: Final = 2
"""The next step or turn, without waking the agent."""

NOTICE: Final = 8
"""Added to the kind of a settlement notice, which is no message of a sender's."""

Kind: TypeAlias = Literal[0, 1, 2]
KIND_NAMES: Final = ("follow-up", "steer", "inject")


def kind_name(kind: int) -> str:
    """A kind in words, as it stands in a session."""
    return KIND_NAMES[kind & ~NOTICE] + (" notice" if kind & NOTICE else "")


class ReplyTo(Protocol):
    """Where the answer to a message goes."""

    def answer(self, body: bytes) -> None:
        """Take the encoded result."""

    def fail(self, error: BaseException) -> None:
        """Take what went wrong."""


class Message:
    """One accepted message.

    The body is encoded from the sender on, so that agents share no mutable values and behave
    the same in every isolation.
    """

    __slots__ = ("body", "chain", "committed", "id", "kind", "reply")

    def __init__(
        self,
        id: int,
        kind: Kind,
        body: bytes,
        reply: ReplyTo | None = None,
        chain: tuple[str, ...] = (),
        committed: Future[None] | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.body = body
        # Settled with the turn that handled it. None for a send, and in a worker, where the
        # reply travels as a frame.
        self.reply = reply
        # Settled once the acceptance is durable, for a sender that waits for that.
        self.committed = committed
        # The ids of the agents that wait for this answer, the nearest last.
        self.chain = chain

    def refuse(self, error: BaseException) -> None:
        """Tell whoever waits for its answer, or for its acceptance, that there will be none."""
        if self.reply is not None:
            self.reply.fail(error)
        if self.committed is not None:
            self.committed.try_set_error(error)
