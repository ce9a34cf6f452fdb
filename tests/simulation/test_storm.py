"""Random trees under random cancels, stops, deaths and failing stores: many seeds, no violation."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from dsh_actors.testing.simulation import Failure, simulate
from tests.simulation.storm import storm

SEEDS = int(os.environ.get("DSH_ACTORS_SEEDS", "2000"))
"""How many seeds the storm runs; CI sets 20,000 and more can be asked for."""

KINDS: tuple[dict[str, object], ...] = (
    {},
    {"store": True},
    {"store": True, "failing": 0.2, "hanging": 0.1},
    {"workers": 1, "max_turns": 1},
)


def run(first: int, last: int) -> list[str]:
    """Run a range of seeds; returns what failed."""
    from dsh_actors.observe.logging import set_level

    set_level("off")
    failed = []
    for seed in range(first, last):
        try:
            simulate(storm, seed, **KINDS[seed % len(KINDS)])  # type: ignore[arg-type]
        except Failure as failure:
            failed.append(str(failure))
    return failed


@pytest.mark.behaviour(18, 19, 20, 21, 22, 49, 57, 58, 71)
def test_nothing_is_violated_in_any_interleaving() -> None:
    step = 250
    ranges = [(first, min(first + step, SEEDS)) for first in range(0, SEEDS, step)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        failed = [each for part in pool.map(run, *zip(*ranges, strict=True)) for each in part]
    assert not failed, f"{len(failed)} of {SEEDS} seeds failed; the first:\n{failed[0]}"


def test_a_seed_is_one_interleaving() -> None:
    traces = [simulate(storm, 7, store=True).scheduler.trace for _ in range(2)]
    assert traces[0] == traces[1]
    assert traces[0] != simulate(storm, 9, store=True).scheduler.trace
