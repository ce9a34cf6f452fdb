"""Systems that crash at any moment and are resumed: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from dsh_actors import codec
from dsh_actors.testing.simulation import Failure, Simulation
from tests.simulation.crashes import Ledger, go_on, start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dsh_actors.testing.simulation.store import SimulatedStore

SEEDS = max(1200, int(os.environ.get("DSH_ACTORS_SEEDS", "0")) // 4)


def crash_and_resume(seed: int) -> tuple[Ledger, Simulation]:
    """One history: a system, up to three crashes of it and its successors, and a quiet end."""
    ledger = Ledger()
    sim = Simulation(seed, store=True)
    scenario: Callable[[Simulation], Awaitable[None]] = lambda sim: start(sim, ledger)  # noqa: E731
    for number in range(sim.random.randint(1, 3)):
        crashed = sim.crash(scenario, sim.random.randint(1, 350))
        check(sim, ledger)
        if number == 0 or (crashed and sim.random.random() < 0.9):
            sim = Simulation(seed + 1_000_003 * (number + 1), before=sim)
            scenario = lambda sim: go_on(sim, ledger)  # noqa: E731
            continue
        return ledger, sim
    sim.run(scenario)
    check(sim, ledger)
    if not sim.system.tree():
        for session in store_of(sim).sessions:
            check_fates(sim, session)
    return ledger, sim


def store_of(sim: Simulation) -> SimulatedStore:
    assert sim.store is not None
    return sim.store


def check_fates(sim: Simulation, session: str) -> None:
    """At a quiet end every accepted prompt has met one fate, and none was handled twice."""
    store = store_of(sim)
    retried = store.sessions[session].options.get("interrupted") == "retry"
    one_shot = store.sessions[session].options["one_shot"]
    where = f"seed {sim.seed}: {session} of {store.sessions[session].agent_id}"
    fates: dict[int, list[str]] = {}
    lost = False
    for event in store.load(session).events:
        data = event.data
        if event.type == "prompt/accepted":
            assert data["id"] not in fates, f"{where}: {data['id']} was accepted twice"
            fates[data["id"]] = []
        elif event.type == "turn/end":
            for id in data["messages"]:
                fates[id].append("cut off" if data["reason"] == "interrupted" else "handled")
        elif event.type in ("prompt/discarded", "prompt/failed"):
            fates[data["id"]].append(event.type)
        elif event.type == "agent/ended":
            lost = lost or data["outcome"] == "lost"
    for id, fate in fates.items():
        final = [each for each in fate if each != "cut off"]
        assert len(final) == 1, f"{where}: what became of prompt {id}: {fate}"
        if final == ["handled"] and len(fate) > 1:
            assert retried or one_shot, f"{where}: {id} was tried again: {fate}"
        if retried and not one_shot and not lost:
            assert final != ["prompt/failed"], f"{where}: {id} was not tried again: {fate}"


def check(sim: Simulation, ledger: Ledger) -> None:
    """What the store holds at a crash, or at the end."""
    store = store_of(sim)
    accepted = {
        (session, codec.decode(data)["id"])
        for session, log in store.logs.items()
        for type, data in log
        if type == "prompt/accepted"
    }
    missing = [each for each in ledger.acknowledged if each not in accepted]
    assert not missing, f"seed {sim.seed}: acknowledged and lost: {missing}"
    for session, header in store.sessions.items():
        assert header.parent is None or header.parent in store.sessions
        assert header.root in store.sessions
        assert [e.seq for e in store.load(session).events] == list(range(len(store.logs[session])))


def run(first: int, last: int) -> tuple[list[str], list[int]]:
    """Run a range of seeds; returns what failed, and how much was resumed."""
    from dsh_actors.observe.logging import set_level

    set_level("off")
    failed = []
    done = [0, 0, 0, 0]
    for seed in range(first, last):
        try:
            ledger, _ = crash_and_resume(seed)
        except (Failure, AssertionError) as failure:
            failed.append(str(failure))
            continue
        counts = (len(ledger.acknowledged), ledger.resumed, ledger.restored, ledger.slept)
        done = [before + more for before, more in zip(done, counts, strict=True)]
    return failed, done


@pytest.mark.behaviour(102, 106)
def test_nothing_acknowledged_is_lost_whenever_the_system_dies() -> None:
    step = 100
    ranges = [(first, min(first + step, SEEDS)) for first in range(0, SEEDS, step)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(run, *zip(*ranges, strict=True)))
    failed = [each for part, _ in parts for each in part]
    assert not failed, f"{len(failed)} of {SEEDS} seeds failed; the first:\n{failed[0]}"
    # The scenario does what it is for.
    acknowledged, resumed, restored, slept = map(
        sum, zip(*(done for _, done in parts), strict=True)
    )
    assert acknowledged > SEEDS
    assert resumed > SEEDS
    assert restored > SEEDS / 20
    assert slept > SEEDS / 20
