"""The tree: identity, admission, ownership and top-down marking.

All methods are plain memory operations. The owner calls them under one lock, so that each check
and the registration that depends on it are one critical section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.errors import AdmissionRefused, DuplicateId, SystemClosed
from dsh_actors.lifecycle.node import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dsh_actors.lifecycle.causes import Cause


class Tree:
    """All live agents of one system.

    ``nodes`` is the only arbiter of ids. ``stamp`` is one sequence for all marks, so that their
    order can be compared. ``sealed`` counts the live nodes that nothing may enter below, so that
    admission looks at one node as long as there are none.
    """

    __slots__ = ("accepting", "generation", "nodes", "roots", "sealed", "stamp")

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.roots: dict[str, Node] = {}
        self.accepting = True
        self.generation = 0
        self.stamp = 0
        self.sealed = 0

    def prepare(self, id: str, parent: Node | None, *, one_shot: bool = False) -> Node:
        """Make a private node after checking admission. Nothing is visible yet.

        Raises:
            SystemClosed: the tree accepts no new agents any more.
            AdmissionRefused: the parent, or an agent above it, is closing or sealed.
        """
        self._check_admission(id, parent)
        return Node(id, parent, one_shot=one_shot)

    def enter(self, node: Node) -> None:
        """Make a prepared node visible and owned. The id is free or this raises.

        Admission is checked again: between prepare and enter its parent may have begun to close.

        Raises:
            DuplicateId: a live agent has this id.
            SystemClosed, AdmissionRefused: as for :meth:`prepare`.
        """
        self._check_admission(node.id, node.parent)
        if node.id in self.nodes:
            raise DuplicateId(
                f"an agent with the id {node.id!r} is alive; give another id, or stop it first"
            )
        self.generation += 1
        node.generation = self.generation
        self.nodes[node.id] = node
        if node.parent is None:
            self.roots[node.id] = node
        elif node.parent.children is None:
            node.parent.children = {node.id: node}
        else:
            node.parent.children[node.id] = node

    def _check_admission(self, id: str, parent: Node | None) -> None:
        if not self.accepting:
            raise SystemClosed(f"the system is stopping; agent {id!r} was not started")
        if parent is not None and (
            parent.closing is not None or self.nodes.get(parent.id) is not parent
        ):
            raise AdmissionRefused(
                f"agent {parent.id!r} is stopping; its child {id!r} was not started"
            )
        if self.sealed and parent is not None:
            sealed = self._sealed_above(parent)
            if sealed is not None:
                raise AdmissionRefused(
                    f"agent {sealed.id!r} was cleared of its descendants and gets no new ones; "
                    f"{id!r} was not started below it"
                )

    def _sealed_above(self, parent: Node) -> Node | None:
        node: Node | None = parent
        while node is not None and not node.sealed:
            node = node.parent
        return node

    def admits(self, parent: Node) -> bool:
        """Whether an agent could enter below this one now."""
        return (
            self.accepting
            and parent.closing is None
            and self.nodes.get(parent.id) is parent
            and (not self.sealed or self._sealed_above(parent) is None)
        )

    def close_admission(self) -> None:
        """Refuse every new agent from now on."""
        self.accepting = False

    def seal(self, parents: Iterable[Node]) -> list[Node]:
        """Cut off admission below exactly these live nodes, for as long as each of them lives.

        A node that is not the live one with its id is ignored: its successor keeps its children
        and its admission.

        Returns:
            The tops of what is below them, none below another: their children, but for those
            of a node that is itself below another one.
        """
        live = [node for node in parents if self.nodes.get(node.id) is node]
        for node in live:
            if not node.sealed:
                node.sealed = True
                self.sealed += 1
        given = set(live)
        return [
            child
            for node in dict.fromkeys(live)
            if node.children and given.isdisjoint(node.ancestors())
            for child in node.children.values()
        ]

    def exact(self, id: str, generation: int) -> Node | None:
        """The live node with this id and this generation, or None: stale references miss."""
        node = self.nodes.get(id)
        return node if node is not None and node.generation == generation else None

    def mark(self, roots: Iterable[Node], cause: Cause | None) -> list[Node]:
        """Stamp whole subtrees top-down, and close them if a cause is given.

        Returns every node of them, each parent before its children: a frozen snapshot, since
        nothing can enter below a closing node.

        Parameters:
            roots: the tops of the subtrees; none may be below another.
            cause: with a cause, every node that is not closing yet is closed with it: no
                message, turn or child is accepted from here on. None leaves them open.
        """
        order = list(roots)
        for node in order:
            if node.children:
                order.extend(node.children.values())
        stamp = self.stamp
        if cause is None:
            for node in order:
                stamp += 1
                node.mark = stamp
        else:
            for node in order:
                stamp += 1
                node.mark = stamp
                if node.closing is None:
                    node.closing = cause
        self.stamp = stamp
        return order

    def mark_turn(self, node: Node) -> list[Node]:
        """Stamp an agent and the one-shot runs below it, which follow its turn's signal (D1)."""
        order = [node]
        for each in order:
            if each.children:
                order.extend(child for child in each.children.values() if child.one_shot)
        for each in order:
            self.stamp += 1
            each.mark = self.stamp
        return order

    def remove(self, node: Node) -> bool:
        """Take a node out of the index, so that its id is free. A stale node removes nothing."""
        if self.nodes.get(node.id) is not node:
            return False
        del self.nodes[node.id]
        if node.sealed:
            self.sealed -= 1
        return True

    def release(self, node: Node) -> None:
        """Take a node out of its owner's set, by identity, so that a successor stays."""
        owned = self.roots if node.parent is None else node.parent.children
        if owned and owned.get(node.id) is node:
            del owned[node.id]

    def subtree(self, root: Node) -> Iterator[Node]:
        """A node and all below it, each parent before its children."""
        order = [root]
        for node in order:
            if node.children:
                order.extend(node.children.values())
        return iter(order)
