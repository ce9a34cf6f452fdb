"""The tests can fail: each order that matters, reversed, is noticed by the random scenarios.

One mutant at a time, and a bounded number of seeds for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenarios import live

from dsh_actors.lifecycle import disposal as disposal_module
from dsh_actors.lifecycle.disposal import STEPS, Disposal, Disposals
from dsh_actors.lifecycle.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh_actors.lifecycle.causes import Cause
    from dsh_actors.lifecycle.node import Node

SEEDS = range(100)

PAIRS = [
    ("wake", "cancel"),
    ("cancel", "await_children"),  # the first that waits
    ("collect_children", "start_children"),
    ("start_children", "await_children"),
    ("await_children", "await_idle"),
    ("await_idle", "flush"),
    ("flush", "dispose_handle"),
    ("capture_state", "dispose_handle"),
    ("dispose_handle", "remove_activation"),
    ("remove_activation", "notify"),
    ("notify", "release_ownership"),
    ("release_ownership", "settle"),
]


def caught(machine: type[Disposals] = Disposals) -> list[str]:
    """The violations of the first seed that shows any."""
    return next(filter(None, (live(seed, machine) for seed in SEEDS)), [])


def test_the_right_order_shows_no_violation() -> None:
    assert {seed: found for seed in range(1_000) if (found := live(seed))} == {}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_swapped_steps_are_noticed(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    names = [step.__name__ for step in STEPS]
    swapped = list(STEPS)
    one, other = names.index(first), names.index(second)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    monkeypatch.setattr(disposal_module, "STEPS", tuple(swapped))

    assert caught()


def test_a_memo_stored_after_the_body_is_noticed() -> None:
    class LateMemo(Disposals):
        def begin(self, node: Node) -> Disposal:
            if node.disposal is None:
                disposal = Disposal(node)
                self._begun.append(disposal)
                self._run()
                node.disposal = disposal
            return node.disposal

    assert caught(LateMemo)


def test_going_on_before_all_are_cancelled_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disposal_module, "FIRST_WAIT", 0)

    assert any("before all were cancelled" in violation for violation in caught())


def test_steps_that_a_failure_skips_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Disposals._advance

    def give_up(self: Disposals, disposal: Disposal, end: int) -> bool:
        gone_on = advance(self, disposal, end)
        if disposal.failures:
            disposal.step = len(disposal_module.STEPS)
            return True
        return gone_on

    monkeypatch.setattr(Disposals, "_advance", give_up)

    assert caught()


def mark_bottom_up(self: Tree, roots: Iterable[Node], cause: Cause | None) -> list[Node]:
    order = [node for root in roots for node in self.subtree(root)]
    for node in reversed(order):
        self.stamp += 1
        node.mark = self.stamp
        node.closing = node.closing or cause
    return order


def mark_last_cause(self: Tree, roots: Iterable[Node], cause: Cause | None) -> list[Node]:
    order = [node for root in roots for node in self.subtree(root)]
    for node in order:
        self.stamp += 1
        node.mark = self.stamp
        node.closing = cause or node.closing
    return order


def mark_only_tops(self: Tree, roots: Iterable[Node], cause: Cause | None) -> list[Node]:
    order = list(roots)
    for node in order:
        self.stamp += 1
        node.mark = self.stamp
        node.closing = node.closing or cause
    return order


def admit_all(self: Tree, id: str, parent: Node | None) -> None:
    """Nobody is refused, not even below an agent that is closing."""


def remove_by_id(self: Tree, node: Node) -> bool:
    return self.nodes.pop(node.id, None) is not None


def release_by_id(self: Tree, node: Node) -> None:
    owned = self.roots if node.parent is None else node.parent.children
    if owned:
        owned.pop(node.id, None)


@pytest.mark.parametrize(
    ("method", "mutant"),
    [
        ("mark", mark_bottom_up),
        ("mark", mark_last_cause),
        ("mark", mark_only_tops),
        ("_check_admission", admit_all),
        ("remove", remove_by_id),
        ("release", release_by_id),
    ],
)
def test_a_tree_that_breaks_its_rules_is_noticed(
    monkeypatch: pytest.MonkeyPatch, method: str, mutant: Callable[..., object]
) -> None:
    monkeypatch.setattr(Tree, method, mutant)

    assert caught()
