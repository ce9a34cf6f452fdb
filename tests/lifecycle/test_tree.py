"""The tree: who is admitted, who is who, who owns whom, and the order of marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forest import Forest, marked_top_down
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors.errors import AdmissionRefused, DuplicateId, SystemClosed
from dsh_actors.lifecycle.node import Identity
from dsh_actors.lifecycle.tree import Tree

if TYPE_CHECKING:
    from dsh_actors.lifecycle.node import Node

# Each number is the place of a parent among those that came before: any shape of tree.
shapes = st.lists(st.integers(min_value=0, max_value=10**6), max_size=40)


@pytest.fixture
def tree() -> Tree:
    return Tree()


def grow(tree: Tree, id: str, parent: Node | None = None, *, one_shot: bool = False) -> Node:
    node = tree.prepare(id, parent, one_shot=one_shot)
    tree.enter(node)
    return node


def grow_shape(tree: Tree, shape: list[int]) -> list[Node]:
    nodes = [grow(tree, "root")]
    for number, place in enumerate(shape):
        nodes.append(grow(tree, f"agent-{number}", nodes[place % len(nodes)]))
    return nodes


# -- entering ----------------------------------------------------------------------------------


def test_prepared_is_not_visible(tree: Tree) -> None:
    parent = grow(tree, "parent")

    child = tree.prepare("child", parent)

    assert tree.nodes == {"parent": parent}
    assert parent.children is None
    assert child.generation == 0
    assert tree.exact("child", 0) is None


def test_entered_is_visible_and_owned(tree: Tree) -> None:
    parent = grow(tree, "parent")
    child = grow(tree, "child", parent)

    assert tree.nodes == {"parent": parent, "child": child}
    assert tree.roots == {"parent": parent}
    assert parent.children == {"child": child}
    assert (parent.depth, child.depth) == (0, 1)
    assert child.ancestors() == [parent]


@pytest.mark.behaviour(93)
def test_of_two_that_prepared_one_enters(tree: Tree) -> None:
    parent = grow(tree, "parent")
    first, second = tree.prepare("same", parent), tree.prepare("same", None)

    tree.enter(second)
    with pytest.raises(DuplicateId, match="'same' is alive"):
        tree.enter(first)

    assert tree.nodes["same"] is second
    assert parent.children is None
    assert first.generation == 0


def test_a_preparation_that_is_given_up_leaves_the_id_free(tree: Tree) -> None:
    tree.prepare("name", None)

    assert grow(tree, "name") is tree.nodes["name"]


def test_a_refused_entry_uses_no_generation(tree: Tree) -> None:
    grow(tree, "same")
    refused = tree.prepare("same", None)
    with pytest.raises(DuplicateId):
        tree.enter(refused)

    assert grow(tree, "next").generation == 2


@pytest.mark.behaviour(42)
def test_an_id_is_free_as_soon_as_it_is_removed(tree: Tree) -> None:
    parent = grow(tree, "parent")
    for generation in range(2, 202):
        node = grow(tree, "again", parent)
        assert node.identity == Identity("again", generation)
        with pytest.raises(DuplicateId):
            grow(tree, "again")
        assert tree.remove(node)


@pytest.mark.behaviour(94)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_no_two_live_agents_share_an_id(actions: list[tuple[str, bool]]) -> None:
    tree = Tree()
    live: dict[str, Node] = {}
    generations: set[int] = set()
    for id, enter in actions:
        if not enter:
            assert id not in live or tree.remove(live.pop(id))
        elif id in live:
            with pytest.raises(DuplicateId):
                grow(tree, id)
        else:
            live[id] = grow(tree, id)
            assert live[id].generation not in generations
            generations.add(live[id].generation)
        assert tree.nodes == live


# -- admission ---------------------------------------------------------------------------------


@pytest.mark.behaviour(72)
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_nothing_is_prepared_below_a_closing_agent(tree: Tree, generation: int) -> None:
    line = [grow(tree, "grandparent")]
    line.append(grow(tree, "parent", line[0]))
    line.append(grow(tree, "agent", line[1]))
    tree.mark([line[generation]], "user")

    with pytest.raises(AdmissionRefused, match=r"'agent' is stopping; its child 'new'"):
        tree.prepare("new", line[2])


@pytest.mark.behaviour(21)
def test_what_was_prepared_before_the_mark_is_refused_after_it(tree: Tree) -> None:
    root = grow(tree, "root")
    parent = grow(tree, "parent", root)
    late = tree.prepare("late", parent)

    marked = tree.mark([root], "user")

    with pytest.raises(AdmissionRefused):
        tree.enter(late)
    assert marked == [root, parent]
    assert "late" not in tree.nodes
    assert parent.children is None


@pytest.mark.behaviour(21)
def test_what_entered_before_the_mark_is_in_the_snapshot(tree: Tree) -> None:
    root = grow(tree, "root")
    late = tree.prepare("late", root)
    tree.enter(late)

    assert tree.mark([root], "user") == [root, late]
    assert late.closing == "user"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_parent_that_is_gone_owns_nothing_new(tree: Tree, replaced: bool) -> None:
    parent = grow(tree, "parent")
    late = tree.prepare("late", parent)
    tree.remove(parent)
    tree.release(parent)
    if replaced:
        grow(tree, "parent")

    with pytest.raises(AdmissionRefused):
        tree.enter(late)
    with pytest.raises(AdmissionRefused):
        tree.prepare("later", parent)


def test_nothing_enters_below_what_never_entered(tree: Tree) -> None:
    prepared = tree.prepare("parent", None)

    with pytest.raises(AdmissionRefused):
        tree.prepare("child", prepared)


@pytest.mark.behaviour(73)
def test_a_closed_tree_admits_nobody(tree: Tree) -> None:
    root = grow(tree, "root")
    prepared = tree.prepare("prepared", root)

    tree.close_admission()

    for parent in (None, root):
        with pytest.raises(SystemClosed, match="'new' was not started"):
            tree.prepare("new", parent)
    with pytest.raises(SystemClosed):
        tree.enter(prepared)
    assert tree.nodes == {"root": root}


# -- stale references --------------------------------------------------------------------------


@pytest.mark.behaviour(43)
@pytest.mark.parametrize("owner", ["root", None])
def test_a_late_detach_cannot_touch_a_successor(tree: Tree, owner: str | None) -> None:
    parent = grow(tree, "root") if owner else None
    old = grow(tree, "agent", parent)
    tree.remove(old)
    successor = grow(tree, "agent", parent)

    tree.release(old)
    assert not tree.remove(old)
    tree.release(old)

    assert tree.nodes["agent"] is successor
    owned = tree.roots if parent is None else parent.children
    assert owned is not None
    assert owned["agent"] is successor


def test_exact_misses_another_generation(tree: Tree) -> None:
    old = grow(tree, "agent")
    assert tree.exact("agent", old.generation) is old

    tree.remove(old)
    assert tree.exact("agent", old.generation) is None

    successor = grow(tree, "agent")
    assert tree.exact("agent", old.generation) is None
    assert tree.exact("agent", successor.generation) is successor


def test_removing_and_releasing_twice_is_harmless(tree: Tree) -> None:
    parent = grow(tree, "parent")
    child = grow(tree, "child", parent)

    assert [tree.remove(child), tree.remove(child)] == [True, False]
    tree.release(child)
    tree.release(child)

    assert tree.nodes == {"parent": parent}
    assert parent.children == {}


def test_release_of_what_never_entered(tree: Tree) -> None:
    parent = grow(tree, "parent")

    tree.release(tree.prepare("child", parent))

    assert parent.children is None


# -- marks -------------------------------------------------------------------------------------


@pytest.mark.behaviour(19)
@given(shapes, st.integers(min_value=0), st.booleans())
def test_a_mark_is_top_down_and_complete(shape: list[int], top: int, closes: bool) -> None:
    tree = Tree()
    nodes = grow_shape(tree, shape)
    root = nodes[top % len(nodes)]
    below = {node for node in nodes if node is root or root in node.ancestors()}

    order = tree.mark([root], "user" if closes else None)

    assert len(order) == len(below)
    assert set(order) == below
    assert marked_top_down(order)
    assert {node for node in nodes if node.closing} == (below if closes else set())
    assert set(tree.subtree(root)) == below


@pytest.mark.behaviour(19)
def test_each_mark_is_later_than_all_before(tree: Tree) -> None:
    nodes = grow_shape(tree, [0, 1, 2])
    before = [node.mark for node in tree.mark([nodes[0]], None)]

    after = [node.mark for node in tree.mark([nodes[2]], None)]

    assert max(before) < min(after)


def test_several_roots_in_one_mark(tree: Tree) -> None:
    roots = [grow(tree, f"root-{number}") for number in range(3)]
    children = [grow(tree, f"child-{number}", root) for number, root in enumerate(roots)]

    order = tree.mark(roots, "parent")

    assert order == roots + children
    assert marked_top_down(order)


@pytest.mark.behaviour(11)
def test_the_first_cause_stays(tree: Tree) -> None:
    root, child = grow_shape(tree, [0])
    tree.mark([child], "deadline")
    tree.mark([root], "user")
    tree.mark([root], "disposed")
    tree.mark([root], None)

    assert (root.closing, child.closing) == ("user", "deadline")


def test_a_mark_without_a_cause_leaves_all_open(tree: Tree) -> None:
    root, child = grow_shape(tree, [0])

    tree.mark([root], None)

    assert grow(tree, "new", child).depth == 2


def test_the_mark_of_a_turn_follows_one_shots_only(tree: Tree) -> None:
    root = grow(tree, "root")
    run = grow(tree, "run", root, one_shot=True)
    below_run = grow(tree, "below", run, one_shot=True)
    continuable = grow(tree, "continuable", root)
    grow(tree, "hidden", continuable, one_shot=True)
    grow(tree, "kept", run)

    order = tree.mark_turn(root)

    assert order == [root, run, below_run]
    assert marked_top_down(order)
    assert all(node.closing is None for node in order)


# -- the snapshot of a stop --------------------------------------------------------------------


@pytest.mark.behaviour(20, 21)
@given(shapes, st.integers(min_value=0))
def test_a_snapshot_is_frozen(shape: list[int], top: int) -> None:
    """Whoever is in it is closed, and whoever is not in it is not below it, then and later."""
    forest = Forest()
    nodes = [forest.grow("root")]
    for number, place in enumerate(shape):
        nodes.append(forest.grow(f"agent-{number}", nodes[place % len(nodes)]))
    root = nodes[top % len(nodes)]

    snapshot = forest.mark([root], "user")

    assert forest.trace == []  # no effect, so no wait, has happened by now
    for number, node in enumerate(nodes):
        if node in snapshot:
            with pytest.raises(AdmissionRefused):
                forest.grow(f"late-{number}", node)
        else:
            forest.grow(f"late-{number}", node)
    assert list(forest.tree.subtree(root)) == snapshot


def test_a_node_says_who_it_is(tree: Tree) -> None:
    node = grow(tree, "agent")
    assert repr(node) == "<Node agent#1>"

    tree.mark([node], "user")
    assert repr(node) == "<Node agent#1 closing>"
