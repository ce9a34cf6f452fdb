"""What outlives one activation of an agent: the memory that its lives hand on.

Only agents that may have a next life have one: children that settle, agents that are started
again when their process is lost, and agents that came back from the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Spec


class Life:
    """Handed on from life to life. Guarded by the lock of the tree.

    Parameters:
        spec: how the agent was asked for.
        settles: whether it ends by itself when it is through, and goes on when it is asked again.
    """

    __slots__ = (
        "after",
        "asleep",
        "calls",
        "goes_on",
        "last",
        "logged",
        "notices",
        "open_calls",
        "remembered",
        "session",
        "settles",
        "spec",
        "stored",
        "tombstone",
        "turns",
        "unended",
    )

    def __init__(self, spec: Spec, *, settles: bool) -> None:
        self.spec = spec
        self.settles = settles
        # Whether it is for more than one life in this system.
        self.goes_on = settles or spec.isolation != "inline"
        self.session: str | None = None
        # Its own events, as type and encoded data, in order: replayed into the next life.
        self.remembered: list[tuple[str, bytes]] = []
        # How many turns it has had, so that their numbers go on.
        self.turns = 0
        # The encoded result of its last turn, for the notice.
        self.last: bytes | None = None
        # What a next life has to know of earlier calls of tools, as they travel to it.
        self.calls: list[list[Any]] = []
        # Those that have not ended, by id. Guarded by the lock of the tree.
        self.open_calls: dict[str, list[Any]] = {}
        # Why it may not go on any more, once a stop was asked for.
        self.tombstone: Cause | None = None
        # Messages that the next life takes over and that are in the log already, by id: whether
        # they are committed. None while there are none.
        self.logged: dict[int, bool] | None = None
        # Whether the log does not say yet that the last life has ended, since a next one follows.
        self.unended = False
        # Whether it was brought back from the store, and what it has below it from there: children
        # that have settled and go on when asked again, by id.
        self.stored = False
        self.asleep: dict[str, Node] | None = None
        # When the last thing happened in the system that it comes from, until its log says so.
        self.after: float | None = None
        # Encoded notices that it gets once it is set up.
        self.notices: list[bytes] | None = None

    def keeps(self, type: str, body: bytes) -> None:
        """Keep an event of the agent's own for its next life."""
        self.remembered.append((type.removeprefix("custom/"), body))

    def hand_over(self, id: int, *, committed: bool) -> None:
        """A message that is in the log already waits for the next life."""
        if self.logged is None:
            self.logged = {}
        self.logged[id] = committed

    def is_logged(self, id: int) -> bool:
        """Whether a message waits for the next life and is in the log already."""
        return self.logged is not None and id in self.logged

    def taken_over(self, id: int) -> bool | None:
        """Whether such a message is committed; None for one that is not in the log."""
        if self.logged is None:
            return None
        found = self.logged.pop(id, None)
        if not self.logged:
            self.logged = None
        return found
