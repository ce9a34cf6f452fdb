"""Calls in systems that crash at any moment: none is made twice, none without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.sessions.recovery import closers, recover
from dsh_actors.testing.simulation import Simulation
from tests.simulation import calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS = 150


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    from dsh_actors.observe.logging import set_level

    set_level("off")
    yield
    set_level("info")


def history(seed: int) -> Simulation:
    """A system, up to three crashes of it and its successors, and a quiet end."""
    sim = Simulation(seed, store=True)
    scenario: Callable[[Simulation], Any] = calling.start
    for number in range(sim.random.randint(1, 3)):
        if not sim.crash(scenario, sim.random.randint(20, 250)):
            return sim
        check(sim)
        sim = Simulation(seed + 1_000_003 * (number + 1), before=sim)
        scenario = calling.go_on
    sim.run(scenario)
    return sim


def check(sim: Simulation) -> None:
    """What has been done is on the record, and what may not be done twice was not."""
    books, store = calling.books, sim.store
    assert store is not None
    dispatched: set[tuple[int, int]] = set()
    for session in store.sessions:
        intents: dict[str, Any] = {}
        for event in store.load(session).events:
            if event.type == "tool/call":
                intents[event.data["call"]] = event.data["args"]["args"]
            elif event.type == "tool/dispatch":
                message, place, _ = intents[event.data["call"]]
                dispatched.add((message, place))
    assert books.made.keys() <= dispatched, f"seed {sim.seed}: made without a record"
    assert not books.wrong, f"seed {sim.seed}: {books.wrong}"
    for label, count in books.made.items():
        assert count == 1 or label in books.idempotent, f"seed {sim.seed}: {label} made {count}x"


@pytest.mark.behaviour(106)
def test_no_call_is_made_twice_nor_without_a_record_whenever_the_system_dies() -> None:
    unknown = recorded = again = 0
    for seed in range(SEEDS):
        books = calling.books = calling.Books()
        sim = history(seed)
        check(sim)
        assert sim.store is not None
        for session in sim.store.sessions:
            events = sim.store.load(session).events
            assert recover(events).problems == ()
            if not sim.system.tree():
                assert closers(recover(events), "retry") == []
        unknown += len(books.unknown)
        recorded += sum(books.ended[label] > count for label, count in books.made.items())
        again += sum(count > 1 for count in books.made.values())
    # The scenario does what it is for.
    assert unknown > SEEDS / 10
    assert recorded > SEEDS / 20
    assert again > SEEDS / 50
