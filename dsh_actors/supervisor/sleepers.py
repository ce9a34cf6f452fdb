"""Children that came back from the store asleep: settled, and going on when they are asked.

They are kept with their parent's life and look like children that have settled in this system, so
that a message wakes them up in the same way. They are in no map and cost no actor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.lifecycle.disposal import STEPS, Disposal
from dsh_actors.lifecycle.node import Node

if TYPE_CHECKING:
    from dsh_actors.agents.message import Message
    from dsh_actors.supervisor.core import Core
    from dsh_actors.supervisor.lives import Life
    from dsh_actors.supervisor.supervisor import Supervisor


class Sleeper:
    """Stands for the agent of a life that has ended, in another system."""

    __slots__ = ("kept",)

    pid = 0
    size = 0
    turn = 0
    lost = False
    swept = True
    busy = False
    resumable = True
    takes_notices = False
    is_set_up = True
    is_running = False

    def __init__(self) -> None:
        # What its next life takes over.
        self.kept: list[Message] = []

    def is_quiet(self) -> bool:
        """It does nothing."""
        return True


def lay_down(supervisor: Supervisor, id: str, depth: int, parent: Node, life: Life) -> Node:
    """Put a settled child below its parent, live or asleep itself.

    Parameters:
        id: of the agent.
        depth: that it had.
        parent: its parent, which has a life of its own.
        life: what its next life goes on with.
    """
    core = supervisor.core
    with core.lock:
        node = Node(id, parent)
        core.tree.generation += 1
        node.generation = core.tree.generation
        node.depth = max(node.depth, depth)
        node.creating = False
        node.closing, node.outcome = "disposed", "completed"
        node.agent = Sleeper()
        node.life = node.continuable = life
        node.disposal = Disposal(node)
        node.disposal.step = len(STEPS)
        supervisor.boundaries.lay_down_locked(node, life.spec)
        keep_locked(node)
    return node


def keep_locked(node: Node) -> None:
    """A child that came from the store has settled: its parent finds it by its id."""
    parent = node.parent
    if parent is not None and parent.life is not None:
        if parent.life.asleep is None:
            parent.life.asleep = {}
        parent.life.asleep[node.id] = node


def wakes_locked(node: Node, successor: Node) -> None:
    """The next life of an agent begins: it takes along what is asleep below it."""
    leaves_locked(node)
    for child in (node.life.asleep or {}).values():
        child.parent = successor


def leaves_locked(node: Node) -> bool:
    """Forget a sleeping child; whether it was one, with nobody to wake it yet."""
    parent = node.parent
    if parent is None or parent.life is None or parent.life.asleep is None:
        return False
    if parent.life.asleep.get(node.id) is not node:
        return False
    del parent.life.asleep[node.id]
    return not node.restarting


def find_locked(core: Core, id: str) -> Node | None:
    """The sleeping child of a live agent that has this id."""
    for node in core.tree.nodes.values():
        life = node.life
        if life is not None and life.asleep is not None and id in life.asleep:
            found: Node = life.asleep[id]
            return found
    return None
