"""One agent as the tree sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Cause, Outcome
    from dsh_actors.lifecycle.disposal import Disposal


class Identity(NamedTuple):
    """What makes an activation itself: an id may be used again, a generation never is."""

    id: str
    generation: int


class Node:
    """The place of one activation in the tree.

    Guarded by the lock of the tree's owner, but for the fields of its disposal, which only the
    supervisor's thread touches. Slots and lazily made collections: a system holds 100,000 of
    these.
    """

    __slots__ = (
        "agent",
        "bounds",
        "children",
        "closing",
        "continuable",
        "creating",
        "depth",
        "detail",
        "disposal",
        "generation",
        "id",
        "life",
        "mark",
        "one_shot",
        "outcome",
        "parent",
        "restarting",
        "sealed",
        "successor",
        "turn",
    )

    def __init__(self, id: str, parent: Node | None, *, one_shot: bool = False) -> None:
        self.id = id
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        # One result, then gone; it follows the signal of the turn that started it.
        self.one_shot = one_shot
        # The turn of the parent that started this one-shot, 0 for a continuable one.
        self.turn = 0
        # What outlives this activation, where a next one may follow; and the same once more for a
        # child that settles by itself and goes on when it is asked again. Opaque.
        self.life: Any = None
        self.continuable: Any = None
        # Minted at enter; 0 means never visible.
        self.generation = 0
        # The owned set, in order of entry. None while there was never a child. A child is in it
        # before it can run, and leaves it only after its settlement was notified.
        self.children: dict[str, Node] | None = None
        # The admission cut-off: once set, no message, turn or child is accepted. Never unset.
        self.closing: Cause | None = None
        # The scoped cut-off: nothing enters below any more, while the agent itself lives on.
        self.sealed = False
        # Whether whoever creates it is still at it. A drain waits for that.
        self.creating = True
        # The stamp of the last mark, from one sequence for the whole tree: within one mark a
        # parent's is lower than its children's.
        self.mark = 0
        # The memo of the teardown: set before its body starts.
        self.disposal: Disposal | None = None
        # The shell: what hosts the agent. Opaque here.
        self.agent: Any = None
        # What it may do and use, as its shell keeps it; None where nothing limits it.
        self.bounds: Any = None
        # How it ended so far; what is None at the end counts as completed.
        self.outcome: Outcome | None = None
        self.detail: str | None = None
        # Whether a next life of it follows. Decided when it is lost; a stop takes it back.
        self.restarting = False
        # Its next life, once there is one: whoever holds this one reaches that.
        self.successor: Node | None = None

    @property
    def identity(self) -> Identity:
        """The id with the generation that makes it unique."""
        return Identity(self.id, self.generation)

    @property
    def latest(self) -> Node:
        """The present life of this agent: itself, or what it was started again as."""
        node = self
        while node.successor is not None:
            node = node.successor
        return node

    def ancestors(self) -> list[Node]:
        """The parent, its parent, and so on up to the root."""
        found = []
        node = self.parent
        while node is not None:
            found.append(node)
            node = node.parent
        return found

    def __repr__(self) -> str:
        return f"<Node {self.id}#{self.generation}{' closing' if self.closing else ''}>"
