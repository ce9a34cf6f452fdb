"""Scopes and initiators under many seeds: all is taken back once, before its agent is gone."""

from __future__ import annotations

import os

import pytest

from dsh_actors.testing.simulation import simulate
from tests.simulation import scopes

SEEDS = max(300, int(os.environ.get("DSH_ACTORS_SEEDS", "0")) // 10)


@pytest.mark.behaviour(114, 115, 118, 119, 120)
def test_scopes_end_with_their_agents_in_any_interleaving() -> None:
    from dsh_actors.observe.logging import set_level

    set_level("off")
    effects = created = 0
    try:
        for seed in range(SEEDS):
            sim = simulate(scopes.scopes, seed)
            assert not scopes.ledger.wrong, f"seed {seed}: {scopes.ledger.wrong[0]}"
            assert sim.system.initiators.state == "disposed"
            effects += sum(len(each) for each in scopes.ledger.done.values())
            created += len(sim.system._core.ended)
    finally:
        set_level("warning")
    # The scenario does what it is for.
    assert effects > SEEDS
    assert created > 2 * SEEDS
