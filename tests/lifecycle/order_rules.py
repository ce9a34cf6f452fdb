"""What must hold in a forest, whatever happens in whatever order.

The rules are about consequences: what is still there, who has been told, who has ended. None of
them compares with the list of steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forest import EFFECTS, Broken

from dsh_actors.lifecycle.disposal import CHILDREN, EVENT_NAMES, FLUSHED, HANDLE, IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forest import Entry, Forest

    from dsh_actors.lifecycle.node import Node

BEFORE_REMOVAL: Final = EFFECTS[: EFFECTS.index("remove") + 1]
OWN_RELEASE: Final = EFFECTS[EFFECTS.index("flush") :]

When = dict[str, list[int]]


def violations_now(forest: Forest) -> list[str]:
    """What is wrong with the state, while nothing runs."""
    found = []
    if forest.tree.nodes != forest.mapped:
        found.append(f"the map has {forest.tree.nodes}, not {forest.mapped}")
    for owner, owned in forest.owned.items():
        actual = forest.tree.roots if owner is None else owner.children or {}
        if actual != owned:
            found.append(f"{owner} owns {actual}, not {owned}")
    for node in forest.known:
        found += _state_of(forest, node)
    return found


def violations_in_trace(forest: Forest) -> list[str]:
    """What went wrong, in what order, in all that has happened so far."""
    found: list[str] = []
    when: dict[Node, When] = {}
    for index, entry in enumerate(forest.trace):
        when.setdefault(entry.node, {}).setdefault(entry.what, []).append(index)
        found += (f"{entry.node}: {problem}" for problem in _facts(forest, entry))
    for node, own in when.items():
        found += (f"{node}: {problem}" for problem in _own(forest, node, own))
        above = when.get(node.parent) if node.parent is not None else None
        if above is not None:
            found += (f"{node} and its parent: {problem}" for problem in _edge(own, above))
        found += (f"below {node}: {problem}" for problem in _subtree(node, own, when))
    return found


def violations_at_end(forest: Forest) -> list[str]:
    """What is wrong once everything was stopped and nothing is open any more."""
    found = violations_now(forest) + violations_in_trace(forest)
    for node in forest.known:
        if node.disposal is None or not node.disposal.done:
            found.append(f"{node} hangs: {node.disposal}")
        elif forest.owner_has(node) and (node, "release") not in forest.failing:
            found.append(f"{node} is owned for ever")
        elif _is_mapped(forest, node) and (node, "remove") not in forest.failing:
            found.append(f"{node} is in the map for ever")
    return found


def _is_mapped(forest: Forest, node: Node) -> bool:
    return forest.tree.nodes.get(node.id) is node


def _state_of(forest: Forest, node: Node) -> Iterator[str]:
    disposal = node.disposal
    alive = forest.mapped.get(node.id) is node
    if alive and node.parent is not None and node.parent.closing and not node.closing:
        yield f"{node} is open below a closing parent"
    if disposal is None:
        return
    if not node.closing:
        yield f"{node} is disposed of and still admits"
    if disposal.done:
        return
    children = list((node.children or {}).values())
    if any(child.disposal is None for child in children):
        yield f"{node} is disposed of and a child of it is not"
    reasons = {
        CHILDREN: any(child.disposal and not child.disposal.done for child in children),
        IDLE: node in forest.busy,
        FLUSHED: (node, "flush") in forest.open,
        HANDLE: (node, "dispose_handle") in forest.open,
    }
    if not reasons.get(disposal.waiting, False):
        yield f"{node} waits for no reason: {EVENT_NAMES.get(disposal.waiting)}"


def _facts(forest: Forest, entry: Entry) -> Iterator[str]:
    """What has to be true at the moment of an effect."""
    what, node = entry.what, entry.node
    removed = (node, "remove") not in forest.failing
    if what in BEFORE_REMOVAL and not entry.mapped:
        yield f"a delivery would not find it during {what}"
    if what == "flush":
        if entry.busy and (node, "is_idle") not in forest.failing:
            yield "flushed while its turn runs"
        if entry.handle != "live":
            yield "flushed after its handle"
    elif what == "capture" and entry.handle != "live":
        yield "captured after its handle"
    elif what == "dispose_handle" and entry.flush != "done":
        yield f"its handle is disposed of while its flush is {entry.flush}"
    elif what == "remove" and entry.handle != "done":
        yield f"removed while its handle is {entry.handle}"
    elif what == "notify_settlement":
        if entry.mapped and removed:
            yield "its id is not free when its parent is told"
        if not entry.owned:
            yield "its parent could see itself childless before it was told"
    elif what == "settle" and entry.owned and (node, "release") not in forest.failing:
        yield "it has settled and is still owned"


def _own(forest: Forest, node: Node, own: When) -> Iterator[str]:
    """One body, complete, and what failed in it."""
    disposal = node.disposal
    for what in EFFECTS:
        times, most = len(own.get(what, ())), 2 if what == "is_idle" else 1
        if times > most or (times < most and disposal is not None and disposal.done):
            yield f"{what} ran {times} times"
    if own["wake"][0] != min(indexes[0] for indexes in own.values()):
        yield "not woken first"
    if node in forest.settled:
        ran = sorted((index, what) for what, indexes in own.items() for index in indexes)
        failed = [what for _, what in ran if (node, what) in forest.failing and what != "settle"]
        told = [failure.args[0] for failure in forest.settled[node] if type(failure) is Broken]
        if told != failed or len(told) != len(forest.settled[node]):
            yield f"{failed} failed, its observers were told {forest.settled[node]}"


def _edge(child: When, parent: When) -> Iterator[str]:
    if "cancel" in child and child["wake"] > parent["wake"]:
        if parent.get("cancel", [len(child)])[0] > child["cancel"][0]:
            yield "cancelled bottom-up"
        if parent["is_idle"][0] > child["wake"][0]:
            yield "the parent's idle was not asked before the child's shutdown"
    for what in OWN_RELEASE:
        if what in parent and ("settle" not in child or parent[what][0] < child["settle"][0]):
            yield f"the parent's {what} came before the child had settled"
    if len(parent.get("is_idle", ())) > 1 and (
        "notify_settlement" not in child or child["notify_settlement"][0] > parent["is_idle"][1]
    ):
        yield "the parent's idle was confirmed before the child's notice"


def _subtree(top: Node, own: When, when: dict[Node, When]) -> Iterator[str]:
    """All that began because of ``top`` was cancelled before anything of it went on."""
    began = [
        other
        for node, other in when.items()
        if other["wake"] > own["wake"] and top in node.ancestors()
    ]
    began.append(own)
    cancels = [other["cancel"][0] for other in began if "cancel" in other]
    waits = [other["flush"][0] for other in began if "flush" in other]
    if waits and (len(cancels) < len(began) or max(cancels) > min(waits)):
        yield "something went on before all were cancelled"
