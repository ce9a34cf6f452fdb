"""A forest of agents without threads or clocks, to drive the pure core with.

It is the shell of the core: it marks and begins, performs the effects of disposals, and completes
them when it is told to. Every effect goes into a trace, with what was true at that moment.
``order_rules`` judges the trace.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from dsh_actors.errors import DshActorsError
from dsh_actors.lifecycle.disposal import FLUSHED, HANDLE, IDLE, Disposals
from dsh_actors.lifecycle.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.disposal import Disposal
    from dsh_actors.lifecycle.node import Node

EFFECTS: Final = (
    "wake",
    "cancel",
    "is_idle",
    "flush",
    "capture",
    "dispose_handle",
    "remove",
    "notify_settlement",
    "release",
    "settle",
)

WHOLE_PATH: Final = ["wake", "cancel", "is_idle", *EFFECTS[2:]]
"""What one disposal does: its idle is asked twice, to capture it and to await it."""

SLOW: Final = ("flush", "dispose_handle")
"""The effects that may complete later, by an event."""

REACTIONS: Final = ("begin itself", "stop parent", "stop root", "stop child", "lose", "replace")
"""What an effect can do in the middle of a disposal; ``replace`` starts a successor."""


class Broken(Exception):
    """An effect that was told to fail."""


class Entry(NamedTuple):
    """One effect, and what was true just before it."""

    what: str
    node: Node
    mapped: bool  # the map has exactly this node under its id
    owned: bool  # so has its owner's set
    busy: bool  # a turn runs
    flush: str  # not begun, open or done
    handle: str  # live, open (being released) or done


class Forest:
    """A tree, its disposals, and effects under control. Implements ``DisposalPort``."""

    def __init__(self, machine: type[Disposals] = Disposals) -> None:
        self.tree = Tree()
        self.disposals = machine(self)
        self.trace: list[Entry] = []
        # What ought to be in the tree.
        self.mapped: dict[str, Node] = {}
        self.owned: dict[Node | None, dict[str, Node]] = {None: {}}
        self.known: list[Node] = []
        self.prepared: list[Node] = []
        self.memos: dict[Node, Disposal] = {}
        # What is told to happen.
        self.busy: set[Node] = set()
        self.obedient: set[Node] = set()  # their turn ends within the cancel
        self.slow: dict[tuple[Node, str], str] = {}  # "later", "inside" the effect, "before" it
        self.failing: set[tuple[Node, str]] = set()
        self.reactions: dict[tuple[Node, str], str] = {}
        # What happened.
        self.open: list[tuple[Node, str]] = []
        self.state: dict[tuple[Node, str], str] = {}
        self.settled: dict[Node, list[Exception]] = {}
        self.replaced = 0

    # -- life ----------------------------------------------------------------------------------

    def prepare(self, id: str, parent: Node | None, *, one_shot: bool = False) -> Node:
        admitted = self.tree.accepting and (parent is None or self.may_own(parent))
        with self._agreeing(admitted):
            return self.tree.prepare(id, parent, one_shot=one_shot)

    def enter(self, node: Node) -> Node:
        with self._agreeing(self.may_enter(node)):
            self.tree.enter(node)
        self.mapped[node.id] = node
        self.owned.setdefault(node.parent, {})[node.id] = node
        self.known.append(node)
        return node

    def grow(self, id: str, parent: Node | None = None, *, one_shot: bool = False) -> Node:
        return self.enter(self.prepare(id, parent, one_shot=one_shot))

    @contextmanager
    def _agreeing(self, admitted: bool) -> Iterator[None]:
        """The tree must admit what the model admits, and refuse what it refuses."""
        refusal = None
        try:
            yield
        except DshActorsError as error:
            refusal = error
        assert admitted == (refusal is None), f"the model admits it: {admitted}, but {refusal!r}"
        if refusal is not None:
            raise refusal

    def stop(self, node: Node, cause: Cause = "user") -> None:
        """As the shell does it: mark the subtree, then begin. A stale node is missed."""
        if self.tree.exact(node.id, node.generation) is node:
            self.mark([node], cause)
            self.begin(node)

    def stop_all(self) -> None:
        self.tree.close_admission()
        roots = list(self.tree.roots.values())
        self.mark(roots, "parent")
        for root in roots:
            self.begin(root)

    def mark(self, roots: list[Node], cause: Cause | None) -> list[Node]:
        """Mark subtrees, and hold the snapshot against what ought to be in them."""
        below = [*roots]
        for node in below:
            below.extend(self.owned.get(node, {}).values())
        causes = {node: node.closing or cause for node in below}
        order = self.tree.mark(roots, cause)
        assert order == below, f"marked {order}, not {below}"
        assert {node: node.closing for node in order} == causes, "a first cause was lost"
        assert marked_top_down(order), f"not stamped top-down: {order}"
        return order

    def begin(self, node: Node) -> Disposal:
        memo = self.disposals.begin(node)
        assert self.memos.setdefault(node, memo) is memo, f"{node} has a second memo"
        return memo

    # -- what comes later ----------------------------------------------------------------------

    def end_turn(self, node: Node) -> None:
        self.busy.discard(node)
        self.disposals.event(node, IDLE)

    def complete(self, index: int) -> None:
        node, what = self.open.pop(index)
        self.state[node, what] = "done"
        self.disposals.event(node, FLUSHED if what == "flush" else HANDLE)

    def pass_deadline(self, node: Node) -> None:
        """The deadline of its flush is over. The flush itself may still complete after that."""
        self.state[node, "flush"] = "done"
        self.disposals.event(node, FLUSHED)

    def lose(self, node: Node) -> None:
        """Its worker is gone: its turn and its handle have ended, whatever step is due."""
        if node.disposal is None:
            self.stop(node, "disposed")
        if (node, "dispose_handle") in self.open:
            self.open.remove((node, "dispose_handle"))
            self.state[node, "dispose_handle"] = "done"
        self.slow[node, "dispose_handle"] = "before"
        self.end_turn(node)
        self.disposals.event(node, HANDLE)

    def repeat_events(self, node: Node) -> None:
        """All that has come for a node comes once more."""
        if node not in self.busy:
            self.disposals.event(node, IDLE)
        for what, event in (("flush", FLUSHED), ("dispose_handle", HANDLE)):
            if self.state.get((node, what)) == "done":
                self.disposals.event(node, event)

    def complete_all(self) -> None:
        while self.open or self.busy:
            if self.open:
                self.complete(len(self.open) - 1)
            else:
                self.end_turn(next(iter(self.busy)))

    # -- DisposalPort --------------------------------------------------------------------------

    def wake(self, node: Node) -> None:
        self._effect("wake", node)

    def cancel(self, node: Node) -> None:
        self._effect("cancel", node)
        if node in self.obedient:
            self.end_turn(node)

    def is_idle(self, node: Node) -> bool:
        self._effect("is_idle", node)
        return node not in self.busy

    def flush(self, node: Node) -> bool:
        return self._start("flush", node, FLUSHED)

    def capture(self, node: Node) -> None:
        self._effect("capture", node)

    def dispose_handle(self, node: Node) -> bool:
        return self._start("dispose_handle", node, HANDLE)

    def remove(self, node: Node) -> None:
        self._effect("remove", node)
        assert self.tree.remove(node), f"{node} was not in the map"
        del self.mapped[node.id]

    def notify_settlement(self, node: Node) -> None:
        self._effect("notify_settlement", node)

    def release(self, node: Node) -> None:
        self._effect("release", node)
        self.tree.release(node)
        owned = self.owned[node.parent]
        if owned.get(node.id) is node:
            del owned[node.id]

    def settle(self, node: Node, failures: list[Exception]) -> None:
        self.settled[node] = list(failures)
        self._effect("settle", node)

    def _start(self, what: str, node: Node, event: int) -> bool:
        self._effect(what, node)
        slow = self.slow.get((node, what))
        if slow is None:
            return True
        if slow == "inside":
            self.disposals.event(node, event)
        elif slow == "later":
            self.state[node, what] = "open"
            self.open.append((node, what))
        return False

    def _effect(self, what: str, node: Node) -> None:
        self.trace.append(
            Entry(
                what,
                node,
                mapped=self.tree.nodes.get(node.id) is node,
                owned=self.owner_has(node),
                busy=node in self.busy,
                flush=self.state.get((node, "flush"), "not begun"),
                handle=self.state.get((node, "dispose_handle"), "live"),
            )
        )
        if what in SLOW:
            self.state[node, what] = "done"  # unless it turns out to be slow
        reaction = self.reactions.pop((node, what), None)
        if reaction is not None:
            self._react(reaction, node)
        if (node, what) in self.failing:
            raise Broken(what)

    def _react(self, reaction: str, node: Node) -> None:
        if reaction == "begin itself":
            self.begin(node)
        elif reaction == "stop parent" and node.parent is not None:
            self.stop(node.parent, "hook")
        elif reaction == "stop root":
            self.stop(([node, *node.ancestors()])[-1], "hook")
        elif reaction == "stop child" and node.children:
            self.stop(next(iter(node.children.values())), "hook")
        elif reaction == "lose" and node.disposal is not None:
            self.lose(node)
        elif reaction == "replace" and self.may_enter(node):
            self.replaced += 1
            self.grow(node.id, node.parent)

    # -- what is true now ----------------------------------------------------------------------

    def owner_has(self, node: Node) -> bool:
        owned = self.tree.roots if node.parent is None else node.parent.children
        return owned is not None and owned.get(node.id) is node

    def may_enter(self, node: Node) -> bool:
        """Whether a node like this one, id and parent, is admitted now, by the model."""
        parent = node.parent
        return (
            self.tree.accepting
            and node.id not in self.mapped
            and (parent is None or self.may_own(parent))
        )

    def may_own(self, parent: Node) -> bool:
        return (
            self.tree.accepting
            and self.mapped.get(parent.id) is parent
            and not any(node.closing for node in (parent, *parent.ancestors()))
        )

    def whats(self, node: Node) -> list[str]:
        """The effects that a node has had, in order."""
        return [entry.what for entry in self.trace if entry.node is node]

    def index(self, what: str, node: Node) -> int:
        """Where in the trace a node had an effect for the first time."""
        for index, entry in enumerate(self.trace):
            if entry.node is node and entry.what == what:
                return index
        raise AssertionError(f"{node} has had no {what}")


def marked_top_down(order: list[Node]) -> bool:
    """Whether one mark has stamped each parent before its children, from one sequence."""
    inside = set(order)
    return all(a.mark + 1 == b.mark for a, b in pairwise(order)) and all(
        node.parent is None or node.parent not in inside or node.parent.mark < node.mark
        for node in order
    )


def line(forest: Forest, length: int) -> list[Node]:
    """Each the parent of the next."""
    nodes = [forest.grow("0")]
    for number in range(1, length):
        nodes.append(forest.grow(str(number), nodes[-1]))
    return nodes


def family(forest: Forest, size: int) -> tuple[Node, list[Node]]:
    parent = forest.grow("parent")
    return parent, [forest.grow(f"child-{number}", parent) for number in range(size)]


def done(*nodes: Node) -> bool:
    return all(node.disposal is not None and node.disposal.done for node in nodes)
