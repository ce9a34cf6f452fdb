"""Failures, repeated calls, events at any time: one body, and nobody is held up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forest import EFFECTS, WHOLE_PATH, Broken, Forest, done, family, line
from order_rules import violations_in_trace, violations_now

from dsh_actors.lifecycle.disposal import FLUSHED, HANDLE, IDLE

if TYPE_CHECKING:
    from dsh_actors.lifecycle.node import Node

# -- failures ----------------------------------------------------------------------------------


@pytest.mark.behaviour(60)
@pytest.mark.parametrize("what", [*EFFECTS, "all"])
def test_a_failing_step_skips_no_later_one(forest: Forest, what: str) -> None:
    root, middle, leaf = line(forest, 3)
    forest.failing |= {(middle, each) for each in (EFFECTS if what == "all" else [what])}

    forest.stop(root)

    assert forest.whats(middle) == WHOLE_PATH
    assert done(root, middle, leaf)
    assert forest.settled[root] == forest.settled[leaf] == []


@pytest.mark.behaviour(52, 53)
def test_a_failing_flush_keeps_no_tree_alive(forest: Forest) -> None:
    nodes = line(forest, 4)
    forest.failing.add((nodes[3], "flush"))

    forest.stop(nodes[0])

    assert done(*nodes)
    assert not forest.tree.nodes
    assert not forest.tree.roots
    assert [str(failure) for failure in forest.settled[nodes[3]]] == ["flush"]


@pytest.mark.behaviour(53)
def test_a_flush_that_hangs_is_over_at_its_deadline(forest: Forest) -> None:
    nodes = line(forest, 4)
    forest.slow[nodes[3], "flush"] = "later"
    forest.stop(nodes[0])
    assert not done(nodes[3])

    forest.pass_deadline(nodes[3])
    assert done(nodes[3])

    forest.complete(0)  # the flush itself, too late
    assert forest.whats(nodes[3]) == WHOLE_PATH


@pytest.mark.behaviour(61)
def test_a_failing_child_holds_up_nobody(forest: Forest) -> None:
    parent, [left, middle, right] = family(forest, 3)
    forest.failing |= {(middle, what) for what in EFFECTS}

    forest.stop(parent)

    assert done(parent, left, middle, right)
    assert [bool(forest.settled[node]) for node in (left, middle, right, parent)] == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("what", EFFECTS)
def test_what_interrupts_the_thread_forgets_no_disposal(
    monkeypatch: pytest.MonkeyPatch, forest: Forest, what: str
) -> None:
    """Regression: the disposal that was interrupted was dropped, and its parents hung."""
    root, middle, leaf = line(forest, 3)
    effect = getattr(Forest, what)
    interrupts = iter([KeyboardInterrupt])

    def interrupted(node: Node, *args: object) -> object:
        answer = effect(forest, node, *args)
        if node is middle:
            for interrupt in interrupts:
                raise interrupt
        return answer

    monkeypatch.setattr(forest, what, interrupted)
    with pytest.raises(KeyboardInterrupt):
        forest.stop(root)
    assert not done(root)

    forest.stop(forest.grow("another"))  # whatever is driven next goes on with the rest

    assert done(root, middle, leaf)
    assert forest.settled[middle] == []  # an interrupt is no failure of the agent


# -- the memo ----------------------------------------------------------------------------------


@pytest.mark.behaviour(66)
@pytest.mark.parametrize("what", EFFECTS)
def test_an_effect_that_begins_its_own_disposal_gets_the_memo(forest: Forest, what: str) -> None:
    node = forest.grow("agent")
    forest.reactions[node, what] = "begin itself"

    forest.stop(node)

    assert forest.whats(node) == WHOLE_PATH
    assert forest.memos[node] is node.disposal


@pytest.mark.behaviour(64, 67)
def test_all_who_dispose_of_one_agent_share_one_body(forest: Forest) -> None:
    """Its parent's disposal, a drain, a stop, its own end, and a callback, all before its end."""
    root, parent, agent = line(forest, 3)
    forest.slow[agent, "flush"] = "later"
    forest.reactions[agent, "flush"] = "begin itself"
    forest.stop(agent)
    memo = agent.disposal

    forest.stop(agent, "user")
    forest.stop(parent, "parent")
    forest.stop_all()
    assert forest.begin(agent) is memo
    forest.complete(0)

    assert forest.whats(agent) == WHOLE_PATH
    assert done(root, parent, agent)


@pytest.mark.behaviour(68)
def test_a_failed_disposal_is_memoised(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.failing.add((node, "dispose_handle"))
    forest.stop(node)
    memo = node.disposal
    assert memo is not None
    assert memo.failures is not None
    [failure] = memo.failures
    assert isinstance(failure, Broken)

    assert [forest.begin(node) for _ in range(8)] == [memo] * 8
    assert memo.failures == [failure]
    assert forest.whats(node) == WHOLE_PATH


@pytest.mark.behaviour(69)
def test_disposing_after_the_end_does_nothing(forest: Forest) -> None:
    parent, [child] = family(forest, 1)
    forest.stop(parent)
    memos, length = dict(forest.memos), len(forest.trace)

    for node in (parent, child, parent):
        assert forest.begin(node) is memos.setdefault(node, forest.begin(node))
        assert done(node)
    assert len(forest.trace) == length


@pytest.mark.behaviour(71)
def test_repeated_events_settle_once(forest: Forest) -> None:
    nodes = line(forest, 3)
    forest.busy |= set(nodes)
    for node in nodes:
        forest.slow.update({(node, "flush"): "later", (node, "dispose_handle"): "later"})
    forest.stop(nodes[0])
    while forest.open or forest.busy:
        for node in nodes:
            forest.repeat_events(node)
        if forest.open:
            forest.complete(0)
        else:
            forest.end_turn(max(forest.busy, key=lambda node: node.depth))
    for node in nodes:
        forest.repeat_events(node)

    assert [forest.whats(node).count("settle") for node in nodes] == [1, 1, 1]


# -- events ------------------------------------------------------------------------------------


def test_an_event_for_an_agent_that_is_not_disposed_of_does_nothing(forest: Forest) -> None:
    node = forest.grow("agent")

    for event in (IDLE, FLUSHED, HANDLE):
        forest.disposals.event(node, event)

    assert node.disposal is None
    assert forest.trace == []


def test_an_event_that_comes_within_its_effect_counts(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.busy.add(node)
    forest.obedient.add(node)
    forest.slow.update({(node, "flush"): "inside", (node, "dispose_handle"): "inside"})

    forest.stop(node)

    assert done(node)


def test_a_lost_handle_is_not_awaited_later(forest: Forest) -> None:
    """The worker dies while the children are awaited: the end of the handle comes early."""
    parent, [child] = family(forest, 1)
    forest.busy |= {parent, child}
    forest.stop(parent)

    forest.lose(parent)
    assert not done(parent)

    forest.end_turn(child)
    assert done(parent, child)


@pytest.mark.parametrize("reaction", ["stop root", "stop parent", "stop child", "lose"])
@pytest.mark.parametrize("what", EFFECTS)
def test_an_effect_may_stop_anything(forest: Forest, what: str, reaction: str) -> None:
    root, middle, leaf = line(forest, 3)
    forest.busy |= {root, middle, leaf}
    forest.reactions[middle, what] = reaction

    forest.stop(middle)
    assert violations_now(forest) == []
    forest.end_turn(leaf)
    forest.end_turn(middle)

    assert done(middle, leaf)
    assert violations_in_trace(forest) == []


def test_a_disposal_says_where_it_is(forest: Forest) -> None:
    node = forest.grow("agent")
    forest.busy.add(node)
    forest.stop(node)
    assert repr(node.disposal) == "<Disposal of agent at await_idle>"

    forest.end_turn(node)
    assert repr(node.disposal) == "<Disposal of agent at done>"
