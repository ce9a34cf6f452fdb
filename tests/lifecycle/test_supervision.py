"""Restart types and restart intensity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors.lifecycle.causes import OUTCOMES, Outcome
from dsh_actors.lifecycle.supervision import Intensity, RestartType, wants_restart

RESTARTED: dict[RestartType, set[str]] = {
    "permanent": {"completed", "aborted", "failed", "lost"},
    "transient": {"failed", "lost"},
    "temporary": set(),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("restart", RESTARTED)
def test_who_is_started_again(restart: RestartType, outcome: Outcome) -> None:
    assert wants_restart(restart, outcome) == (outcome in RESTARTED[restart])


def test_one_too_many_in_the_period() -> None:
    intensity = Intensity(limit=3, period=5.0)

    assert [intensity.allow(now) for now in (0.0, 1.0, 2.0, 3.0)] == [True, True, True, False]


def test_what_is_older_than_the_period_does_not_count() -> None:
    intensity = Intensity(limit=2, period=5.0)

    assert [intensity.allow(now) for now in (0.0, 4.0, 5.1, 9.2)] == [True, True, True, True]


def test_what_is_exactly_as_old_as_the_period_counts() -> None:
    intensity = Intensity(limit=1, period=5.0)

    assert [intensity.allow(now) for now in (0.0, 5.0)] == [True, False]


def test_a_limit_of_none_at_all() -> None:
    assert not Intensity(limit=0).allow(0.0)


@given(
    limit=st.integers(min_value=0, max_value=5),
    period=st.integers(min_value=0, max_value=20),
    gaps=st.lists(st.integers(min_value=0, max_value=12), max_size=60),
)
def test_allowed_is_what_the_model_allows(limit: int, period: int, gaps: list[int]) -> None:
    """Whole seconds, so that the model and the code cannot differ by a rounding."""
    intensity = Intensity(limit, float(period))
    now, starts = 0, []
    for gap in gaps:
        now += gap
        starts.append(now)
        within = [start for start in starts if start >= now - period]
        assert intensity.allow(float(now)) == (len(within) <= limit)
