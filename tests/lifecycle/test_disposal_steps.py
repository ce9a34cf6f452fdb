"""The fourteen steps: their order, and what each order is good for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forest import EFFECTS, WHOLE_PATH, Forest, done, family, line

from dsh_actors.lifecycle.disposal import CHILDREN, HANDLE, IDLE, STEPS

if TYPE_CHECKING:
    from forest import Entry

    from dsh_actors.lifecycle.node import Node


def entry(forest: Forest, what: str, node: Node) -> Entry:
    return forest.trace[forest.index(what, node)]


def test_the_steps_are_these_fourteen_in_this_order() -> None:
    assert [step.__name__ for step in STEPS] == [
        "wake",
        "cancel",
        "capture_idle",
        "collect_children",
        "start_children",
        "await_children",
        "await_idle",
        "flush",
        "capture_state",
        "dispose_handle",
        "remove_activation",
        "notify",
        "release_ownership",
        "settle",
    ]


# -- the order in one agent --------------------------------------------------------------------


@pytest.mark.behaviour(63)
def test_an_agent_without_children_takes_the_whole_path(forest: Forest) -> None:
    node = forest.grow("leaf")

    forest.stop(node)

    assert forest.whats(node) == WHOLE_PATH
    assert done(node)


@pytest.mark.behaviour(45)
def test_waking_is_the_first_step(forest: Forest) -> None:
    parent, children = family(forest, 3)

    forest.stop(parent)

    assert [forest.whats(node)[0] for node in (parent, *children)] == ["wake"] * 4
    assert forest.trace[0].node is parent


@pytest.mark.behaviour(46)
def test_the_own_cancel_comes_before_the_first_wait(forest: Forest) -> None:
    parent, [child] = family(forest, 1)
    forest.busy |= {parent, child}

    forest.stop(parent)

    assert parent.disposal is not None
    assert parent.disposal.waiting == CHILDREN
    assert forest.whats(parent) == ["wake", "cancel", "is_idle"]


@pytest.mark.behaviour(51)
def test_the_turn_has_ended_before_the_flush(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.busy.add(node)

    forest.stop(node)
    assert "flush" not in forest.whats(node)
    assert node.disposal is not None
    assert node.disposal.waiting == IDLE

    forest.end_turn(node)
    assert not entry(forest, "flush", node).busy
    assert done(node)


@pytest.mark.behaviour(54)
def test_the_state_is_captured_while_the_handle_is_live(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.slow[node, "flush"] = "later"
    forest.stop(node)
    assert "capture" not in forest.whats(node)

    forest.complete(0)

    captured = entry(forest, "capture", node)
    assert (captured.handle, captured.mapped, captured.flush) == ("live", True, "done")


@pytest.mark.behaviour(55, 56)
def test_the_activation_stays_in_the_map_while_its_handle_is_released(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.slow[node, "dispose_handle"] = "later"

    forest.stop(node)
    assert forest.tree.nodes == {"agent": node}
    assert node.disposal is not None
    assert node.disposal.waiting == HANDLE

    forest.complete(0)
    assert forest.tree.nodes == {}
    assert entry(forest, "remove", node).handle == "done"


@pytest.mark.behaviour(57, 58)
def test_the_notice_comes_between_the_removal_and_the_release(forest: Forest) -> None:
    _, [child] = family(forest, 1)

    forest.stop(child)

    noticed = entry(forest, "notify_settlement", child)
    assert (noticed.mapped, noticed.owned) == (False, True)


@pytest.mark.behaviour(57)
def test_whoever_gets_the_notice_can_use_the_id(forest: Forest) -> None:
    parent, [child] = family(forest, 1)
    forest.reactions[child, "notify_settlement"] = "replace"

    forest.stop(child)

    assert forest.replaced == 1
    assert done(child)
    successor = forest.tree.nodes[child.id]
    assert successor is not child
    assert parent.children == {child.id: successor}


@pytest.mark.behaviour(59)
def test_settling_is_last_and_tells_what_failed(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.failing |= {(node, "dispose_handle"), (node, "cancel")}

    forest.stop(node)

    assert forest.trace[-1].what == "settle"
    assert not forest.trace[-1].owned
    assert [str(failure) for failure in forest.settled[node]] == ["cancel", "dispose_handle"]


# -- the order in a tree -----------------------------------------------------------------------


@pytest.mark.behaviour(20, 48)
def test_a_whole_tree_is_cancelled_before_anything_in_it_waits_or_ends(forest: Forest) -> None:
    """Regression: with nothing to wait for, a child had settled before its sibling's cancel."""
    root, children = family(forest, 3)
    grandchildren = [forest.grow(f"below {child.id}", child) for child in children]
    everybody = {root, *children, *grandchildren}

    forest.stop(root)

    cancelled = {entry.node for entry in forest.trace if entry.what == "cancel"}
    first = next(i for i, entry in enumerate(forest.trace) if entry.what == "flush")
    assert cancelled == everybody
    assert {entry.node for entry in forest.trace[:first] if entry.what == "cancel"} == everybody


@pytest.mark.behaviour(19)
def test_cancels_go_top_down(forest: Forest) -> None:
    nodes = line(forest, 4)

    forest.stop(nodes[0])

    assert [entry.node for entry in forest.trace if entry.what == "cancel"] == nodes


@pytest.mark.behaviour(48)
def test_all_children_are_under_way_before_any_is_awaited(forest: Forest) -> None:
    parent, children = family(forest, 20)
    forest.slow.update({(child, "flush"): "later" for child in children})

    forest.stop(parent)

    assert {node for node, _ in forest.open} == set(children)
    assert "flush" not in forest.whats(parent)
    while forest.open:
        assert not done(parent)
        forest.complete(0)
    assert done(parent, *children)


@pytest.mark.behaviour(47)
@pytest.mark.parametrize("own_first", [True, False])
def test_own_and_childrens_shutdown_overlap(forest: Forest, own_first: bool) -> None:
    parent, [child] = family(forest, 1)
    forest.busy |= {parent, child}
    forest.stop(parent)
    assert forest.index("is_idle", parent) < forest.index("wake", child)

    first, second = (parent, child) if own_first else (child, parent)
    forest.end_turn(first)
    assert not done(parent)

    forest.end_turn(second)
    assert done(parent, child)


@pytest.mark.behaviour(49)
def test_release_is_child_first(forest: Forest) -> None:
    nodes = line(forest, 5)

    forest.stop(nodes[0])

    for what in EFFECTS[3:]:
        assert [entry.node for entry in forest.trace if entry.what == what] == nodes[::-1]


@pytest.mark.behaviour(50)
def test_a_parents_stop_is_confirmed_after_its_childrens_notices(forest: Forest) -> None:
    parent, [child] = family(forest, 1)
    forest.slow[child, "dispose_handle"] = "later"

    forest.stop(parent)
    assert forest.whats(parent).count("is_idle") == 1  # asked, and not yet confirmed

    forest.complete(0)
    confirmed = [
        index
        for index, entry in enumerate(forest.trace)
        if entry.what == "is_idle" and entry.node is parent
    ][1]
    assert forest.index("notify_settlement", child) < confirmed


@pytest.mark.behaviour(62)
def test_a_parent_is_usable_until_its_last_child_has_settled(forest: Forest) -> None:
    parent, [quick, slow] = family(forest, 2)
    forest.slow[slow, "dispose_handle"] = "later"

    forest.stop(parent)

    assert done(quick)
    assert not done(slow)
    assert forest.tree.exact(parent.id, parent.generation) is parent
    assert parent.children == {slow.id: slow}
    assert (parent, "dispose_handle") not in forest.state


def test_a_child_that_is_under_way_is_awaited_too(forest: Forest) -> None:
    parent, [child] = family(forest, 1)
    forest.slow[child, "flush"] = "later"
    forest.stop(child)
    forest.stop(parent)
    assert "flush" not in forest.whats(parent)

    forest.complete(0)
    assert done(parent, child)


def test_a_child_that_has_settled_is_not_awaited(forest: Forest) -> None:
    parent, [child] = family(forest, 1)
    forest.failing.add((child, "release"))  # so that it stays in the owned set
    forest.stop(child)
    assert parent.children == {child.id: child}

    forest.stop(parent)

    assert done(parent)
