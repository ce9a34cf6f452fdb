"""What must hold of drains: nothing enters behind them, and nothing lives once they are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.errors import SurvivorsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.future import Future
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.lifecycle.tree import Tree
    from dsh_actors.supervisor.receipt import Receipt


class DrainWatch:
    """Looks at the drains of a simulated system, after every step.

    Parameters:
        tree: the tree of the system.
        require: raises if a condition does not hold.
    """

    def __init__(self, tree: Tree, require: Callable[[object, str], None]) -> None:
        self._tree = tree
        self._require = require
        # Sealed nodes, by generation, each with the newest generation that may live below it.
        self._newest: dict[int, int] = {}
        self._newest_of_all: int | None = None
        self._under_way: list[tuple[list[Node] | None, Future[Any]]] = []
        self._done: list[list[Node] | None] = []

    def began(self, parents: list[Node] | None, done: Future[Any]) -> None:
        """A drain has begun: of all, or below some nodes."""
        if parents is not None:
            parents = [node for node in parents if self._tree.nodes.get(node.id) is node]
            for node in parents:
                self._require(node.sealed, f"{node} is drained but not sealed")
                for below in self._tree.subtree(node):
                    marked = below is node or below.closing is not None
                    self._require(marked, f"{below} is open below drained {node}")
        else:
            self._newest_of_all = self._tree.generation
        self._under_way.append((parents, done))

    def check(self) -> None:
        """Check what can be said of a state."""
        tree, require = self._tree, self._require
        if tree.sealed or self._newest:
            self._check_sealed()
        if self._newest_of_all is not None:
            require(
                tree.generation == self._newest_of_all, "an agent entered after admission closed"
            )
        for each in list(self._under_way):
            parents, future = each
            if future.done():
                self._under_way.remove(each)
                if _is_complete(future):
                    self._done.append(parents)
        for ended in self._done:
            if ended is None:
                require(not tree.nodes, f"{list(tree.nodes.values())} live after the drain")
            for node in ended or ():
                left = list((node.children or {}).values())
                require(not left, f"{left} live below {node}, which was drained")

    def _check_sealed(self) -> None:
        tree = self._tree
        sealed = [node for node in tree.nodes.values() if node.sealed]
        self._require(
            len(sealed) == tree.sealed, f"{tree.sealed} are said to be sealed, but it is {sealed}"
        )
        for node in sealed:
            newest = self._newest.setdefault(node.generation, tree.generation)
            for below in tree.subtree(node):
                if below is not node:
                    self._require(
                        below.generation <= newest, f"{below} entered below {node}, a sealed one"
                    )


def _is_complete(future: Future[Receipt]) -> bool:
    """Whether everything that was drained has ended, well or not."""
    error = future.exception(0)
    if error is None:
        return future.result(0).complete
    problems = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    return not any(isinstance(problem, SurvivorsError) for problem in problems)
