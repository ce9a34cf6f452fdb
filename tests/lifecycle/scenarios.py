"""Random lives of a forest, from a seed: growth, stops, failures, late and early completions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from forest import EFFECTS, REACTIONS, SLOW, Forest
from order_rules import violations_at_end, violations_now

from dsh_actors.errors import AdmissionRefused, DuplicateId
from dsh_actors.lifecycle.disposal import Disposals

if TYPE_CHECKING:
    from dsh_actors.lifecycle.node import Node

IDS = [f"agent-{number}" for number in range(8)]


def live(seed: int, machine: type[Disposals] = Disposals, actions: int = 40) -> list[str]:
    """Live through one scenario and return the violations that were seen in it."""
    try:
        return _live(Random(seed), Forest(machine), actions)
    except AssertionError as error:
        return [str(error)]


def _live(random: Random, forest: Forest, actions: int) -> list[str]:
    for _ in range(actions):
        _act(forest, random)
        found = violations_now(forest)
        if found:
            return found
    forest.stop_all()
    while forest.open or forest.busy:
        _complete_one(forest, random)
    return violations_at_end(forest)


def _act(forest: Forest, random: Random) -> None:
    what = random.random()
    if what < 0.50 or not forest.known:
        _grow(forest, random)
    elif what < 0.62:
        forest.stop(random.choice(forest.known))
    elif what < 0.70:
        _detach_late(forest, random.choice(forest.known))
    elif what < 0.74:
        forest.lose(random.choice(forest.known))
    elif what < 0.80:
        forest.repeat_events(random.choice(forest.known))
    elif forest.open or forest.busy:
        _complete_one(forest, random)


def _grow(forest: Forest, random: Random) -> None:
    """Prepare something, or enter what was prepared before."""
    try:
        if forest.prepared and random.random() < 0.3:
            node = forest.enter(forest.prepared.pop())
        else:
            parent = random.choice([None, *forest.known])
            node = forest.prepare(random.choice(IDS), parent)
            if random.random() < 0.2:
                forest.prepared.append(node)
                return
            forest.enter(node)
    except (AdmissionRefused, DuplicateId):
        return  # rightly, by the model; and the check of the state sees what it left
    _plan(forest, random, node)


def _plan(forest: Forest, random: Random, node: Node) -> None:
    """Choose what its disposal will meet."""
    if random.random() < 0.5:
        forest.busy.add(node)
        if random.random() < 0.3:
            forest.obedient.add(node)
    for what in SLOW:
        if random.random() < 0.5:
            forest.slow[node, what] = random.choice(["later", "inside"])
    if random.random() < 0.3:
        forest.failing.add((node, random.choice(EFFECTS)))
    if random.random() < 0.5:
        forest.reactions[node, random.choice(EFFECTS)] = random.choice(REACTIONS)


def _detach_late(forest: Forest, node: Node) -> None:
    """What a stale reference may still try."""
    if forest.mapped.get(node.id) is not node and not forest.owner_has(node):
        forest.tree.remove(node)
        forest.tree.release(node)


def _complete_one(forest: Forest, random: Random) -> None:
    pick = random.randrange(len(forest.open) + len(forest.busy))
    if pick < len(forest.open):
        forest.complete(pick)
    else:
        busy = sorted(forest.busy, key=lambda node: node.generation)
        forest.end_turn(busy[pick - len(forest.open)])
