"""Any depth without a stack, any breadth in linear time. Operations are counted, not seconds."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from dsh_actors.lifecycle.disposal import FLUSHED, Disposals
from dsh_actors.lifecycle.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from dsh_actors.lifecycle.node import Node


class Counting:
    """Effects that only count, detach and, if they are told to, complete later."""

    def __init__(self, tree: Tree, *, late: bool = False) -> None:
        self.tree = tree
        self.late = late
        self.counts: Counter[str] = Counter()
        self.settled: list[Node] = []
        self.open: list[Node] = []
        self.disposals = Disposals(self)

    def wake(self, node: Node) -> None:
        self.counts["wake"] += 1

    def cancel(self, node: Node) -> None:
        self.counts["cancel"] += 1

    def is_idle(self, node: Node) -> bool:
        self.counts["is_idle"] += 1
        return True

    def flush(self, node: Node) -> bool:
        self.counts["flush"] += 1
        if self.late:
            self.open.append(node)
        return not self.late

    def capture(self, node: Node) -> None:
        self.counts["capture"] += 1

    def dispose_handle(self, node: Node) -> bool:
        self.counts["dispose_handle"] += 1
        return True

    def remove(self, node: Node) -> None:
        self.counts["remove"] += 1
        self.tree.remove(node)

    def notify_settlement(self, node: Node) -> None:
        self.counts["notify_settlement"] += 1

    def release(self, node: Node) -> None:
        self.counts["release"] += 1
        self.tree.release(node)

    def settle(self, node: Node, failures: list[Exception]) -> None:
        assert not failures
        self.settled.append(node)

    def dispose(self, root: Node) -> None:
        self.disposals.begin(root)
        while self.open:
            self.disposals.event(self.open.pop(), FLUSHED)


def chain(tree: Tree, length: int) -> Node:
    root = node = tree.prepare("0", None)
    tree.enter(root)
    for number in range(1, length):
        node = tree.prepare(str(number), node)
        tree.enter(node)
    return root


def flat(tree: Tree, children: int) -> Node:
    root = tree.prepare("root", None)
    tree.enter(root)
    for number in range(children):
        tree.enter(tree.prepare(str(number), root))
    return root


@pytest.fixture
def shallow_stack() -> Iterator[None]:
    """Little more stack than is in use now."""
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 100)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("shallow_stack")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "flushed later"])
def test_a_chain_of_50_000_needs_no_stack(late: bool) -> None:
    tree = Tree()
    root = chain(tree, 50_000)
    port = Counting(tree, late=late)

    assert len(tree.mark([root], "user")) == 50_000
    port.dispose(root)

    assert [node.depth for node in port.settled] == list(range(49_999, -1, -1))
    assert not tree.nodes


@pytest.mark.usefixtures("shallow_stack")
def test_a_flat_tree_of_100_000_takes_each_step_once() -> None:
    tree = Tree()
    root = flat(tree, 100_000)
    port = Counting(tree)

    assert len(tree.mark([root], "user")) == 100_001
    port.dispose(root)

    assert port.settled[-1] is root
    assert len(port.settled) == 100_001
    assert port.counts.pop("is_idle") == 200_002
    assert set(port.counts.values()) == {100_001}
    assert not tree.nodes
    assert not tree.roots


def calls_of(function: Callable[[Node], object], argument: Node) -> int:
    """How many calls, of Python and of C functions, one call makes."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(argument)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("late", [False, True], ids=["at once", "flushed later"])
@pytest.mark.parametrize("shape", [chain, flat])
def test_operations_grow_linearly(shape: Callable[[Tree, int], Node], late: bool) -> None:
    calls = []
    for size in (200, 2_000, 20_000):
        tree = Tree()
        root = shape(tree, size)
        marks = calls_of(lambda root: tree.mark([root], "user"), root)  # noqa: B023
        calls.append(marks + calls_of(Counting(tree, late=late).dispose, root))

    assert calls[1] / calls[0] == pytest.approx(10, rel=0.03)
    assert calls[2] / calls[1] == pytest.approx(10, rel=0.03)
