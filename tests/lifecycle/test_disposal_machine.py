"""Whatever happens to a forest, in whatever order: the rules hold all the time."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from forest import EFFECTS, REACTIONS, SLOW, Forest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from order_rules import violations_at_end, violations_in_trace, violations_now

from dsh_actors.errors import AdmissionRefused, DuplicateId
from dsh_actors.lifecycle.causes import CAUSES
from dsh_actors.lifecycle.node import Node

Result: TypeAlias = Node | MultipleResults[Node]

ids = st.sampled_from([f"agent-{number}" for number in range(6)])
indexes = st.integers(min_value=0, max_value=99)


class ForestMachine(RuleBasedStateMachine):
    """The forest in the hands of Hypothesis."""

    nodes: Bundle[Node] = Bundle("nodes")
    prepared: Bundle[Node] = Bundle("prepared")

    def __init__(self) -> None:
        super().__init__()
        self.forest = Forest()

    @initialize(target=nodes)
    def grow_root(self) -> Node:
        return self.forest.grow("root")

    @rule(target=prepared, id=ids, parent=st.none() | nodes, one_shot=st.booleans())
    def prepare(self, id: str, parent: Node | None, one_shot: bool) -> Result:
        try:
            return self.forest.prepare(id, parent, one_shot=one_shot)
        except AdmissionRefused:
            return multiple()

    @rule(target=nodes, node=consumes(prepared), busy=st.booleans())
    def enter(self, node: Node, busy: bool) -> Result:
        try:
            self.forest.enter(node)
        except (AdmissionRefused, DuplicateId):
            return multiple()
        if busy:
            self.forest.busy.add(node)
        return node

    @rule(
        target=nodes,
        id=ids,
        parent=st.none() | nodes,
        busy=st.booleans(),
        obedient=st.booleans(),
        slow=st.dictionaries(st.sampled_from(SLOW), st.sampled_from(["later", "inside"])),
    )
    def grow(
        self, id: str, parent: Node | None, busy: bool, obedient: bool, slow: dict[str, str]
    ) -> Result:
        forest = self.forest
        try:
            node = forest.grow(id, parent)
        except (AdmissionRefused, DuplicateId):
            return multiple()
        if busy:
            forest.busy.add(node)
            if obedient:
                forest.obedient.add(node)
        forest.slow.update({(node, what): how for what, how in slow.items()})
        return node

    @rule(node=nodes, what=st.sampled_from(EFFECTS))
    def will_fail(self, node: Node, what: str) -> None:
        if node.disposal is None:
            self.forest.failing.add((node, what))

    @rule(node=nodes, what=st.sampled_from(EFFECTS), reaction=st.sampled_from(REACTIONS))
    def will_react(self, node: Node, what: str, reaction: str) -> None:
        self.forest.reactions[node, what] = reaction

    @rule(node=nodes)
    def cancel_tree(self, node: Node) -> None:
        self.forest.mark([node], None)

    @rule(node=nodes, cause=st.sampled_from(sorted(CAUSES)))
    def stop(self, node: Node, cause: str) -> None:
        self.forest.stop(node, cause)  # type: ignore[arg-type]

    @rule(node=nodes)
    def begin_again(self, node: Node) -> None:
        if node.disposal is not None:
            self.forest.begin(node)

    @rule(node=nodes)
    def lose(self, node: Node) -> None:
        self.forest.lose(node)

    @rule(node=nodes)
    def repeat_events(self, node: Node) -> None:
        self.forest.repeat_events(node)

    @rule(node=nodes)
    def detach_late(self, node: Node) -> None:
        forest = self.forest
        if forest.mapped.get(node.id) is not node and not forest.owner_has(node):
            assert not forest.tree.remove(node)
            forest.tree.release(node)

    @precondition(lambda self: self.forest.open)
    @rule(index=indexes)
    def complete(self, index: int) -> None:
        self.forest.complete(index % len(self.forest.open))

    @precondition(lambda self: self.forest.open)
    @rule(index=indexes)
    def pass_deadline(self, index: int) -> None:
        node, what = self.forest.open[index % len(self.forest.open)]
        if what == "flush":
            self.forest.pass_deadline(node)

    @precondition(lambda self: self.forest.busy)
    @rule(index=indexes)
    def end_turn(self, index: int) -> None:
        busy = sorted(self.forest.busy, key=lambda node: node.generation)
        self.forest.end_turn(busy[index % len(busy)])

    @invariant()
    def holds_now(self) -> None:
        assert violations_now(self.forest) == []
        assert violations_in_trace(self.forest) == []

    def teardown(self) -> None:
        self.forest.stop_all()
        self.forest.complete_all()
        assert violations_at_end(self.forest) == []
        assert self.forest.tree.nodes.keys() <= {
            node.id for node, what in self.forest.failing if what == "remove"
        }


TestForest = pytest.mark.behaviour(21, 22, 49, 50, 60, 61, 66, 71, 94)(ForestMachine.TestCase)
TestForest.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, database=None
)
