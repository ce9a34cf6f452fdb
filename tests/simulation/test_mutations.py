"""The simulation can fail: each order that matters is broken once, and a seed finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.agents.actor import AgentActor
from dsh_actors.agents.inbox import Inbox
from dsh_actors.lifecycle import disposal
from dsh_actors.lifecycle.tree import Tree
from dsh_actors.observe.logging import set_level
from dsh_actors.supervisor.delivery import Delivery
from dsh_actors.supervisor.drain import Drain, Drains
from dsh_actors.supervisor.factory import Factory
from dsh_actors.supervisor.teardown import Teardown
from dsh_actors.testing.simulation import Failure, simulate
from tests.simulation.storm import storm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Mutation = Callable[[pytest.MonkeyPatch], None]

MOST_SEEDS = 400


def swap(first: str, second: str) -> Mutation:
    """Exchange two steps of the disposal."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        steps = list(disposal.STEPS)
        names = [step.__name__ for step in steps]
        one, two = names.index(first), names.index(second)
        steps[one], steps[two] = steps[two], steps[one]
        patch.setattr(disposal, "STEPS", tuple(steps))

    return mutate


def replace(owner: Any, name: str, new: Callable[..., Any]) -> Mutation:
    """Exchange one method."""
    return lambda patch: patch.setattr(owner, name, new)


def _mark_without_closing(self: Tree, roots: Any, cause: Any) -> list[Any]:
    roots = list(roots)
    order = _mark(self, roots, None)
    for root in roots:
        root.closing = root.closing or cause
    return order


def _admit_always(patch: pytest.MonkeyPatch) -> None:
    def enter(self: Factory, id: str, parent: Any, one_shot: Any, turn: int, wanted: Any) -> Any:
        return _enter(self, id, parent, one_shot, turn, None)

    patch.setattr(Factory, "_enter_locked", enter)
    patch.setattr(Tree, "_check_admission", lambda self, id, parent: None)


def _cut_nothing(self: AgentActor, cause: Any, keep_inbox: bool) -> Any:
    return [], []


def _clear_forgets(self: Inbox) -> list[Any]:
    _clear(self)
    return []


def _claim_twice(self: Inbox) -> list[Any]:
    queued = list(self.queued or ())
    batch = _claim(self)
    if batch and queued:
        self.put(queued[0])
    return batch


def _idle_at_once(self: Teardown, node: Any) -> bool:
    return True


def _no_close(self: Teardown, node: Any) -> None:
    node.agent.turn = 0


def _discard_in_silence(self: Delivery, node: Any, messages: Any, cause: str) -> None:
    return None


def _begin_and_forget(self: Drains, drain: Drain) -> None:
    if not drain.begun:
        _begin(self, drain)
        drain.left.clear()


_begin = Drains._begin
_mark, _clear, _claim = Tree.mark, Inbox.clear, Inbox.claim
_enter = Factory._enter_locked

MUTATIONS: dict[str, Mutation] = {
    "the children after the map": swap("await_children", "remove_activation"),
    "the own idle after the map": swap("await_idle", "remove_activation"),
    "the notice before the map": swap("remove_activation", "notify"),
    "the release before the notice": swap("notify", "release_ownership"),
    "the release before the map": swap("remove_activation", "release_ownership"),
    "a mark that closes its root alone": replace(Tree, "mark", _mark_without_closing),
    "admission that refuses nobody": _admit_always,
    "a cancel that sets no token": replace(AgentActor, "cut", _cut_nothing),
    "a cancel that forgets what it clears": replace(Inbox, "clear", _clear_forgets),
    "a claim that leaves its prompt": replace(Inbox, "claim", _claim_twice),
    "a teardown that does not wait for idle": replace(Teardown, "is_idle", _idle_at_once),
    "a lost turn that stays open": replace(Teardown, "_close_turn", _no_close),
    "a discard that nobody is told": replace(Delivery, "discarded", _discard_in_silence),
    "a cut-off that refuses nobody": replace(Tree, "_sealed_above", lambda self, parent: None),
    "a drain that waits for nobody": replace(Drains, "_begin", _begin_and_forget),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    set_level("off")
    yield
    set_level("warning")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_seed_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(MOST_SEEDS):
        try:
            simulate(storm, seed, store=True, most=4000)
        except Failure:
            return
    pytest.fail(f"{MOST_SEEDS} seeds did not notice: {name}")
