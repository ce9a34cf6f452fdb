"""The strategies against the documented rules of Erlang's ``supervisor``, row by row."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors.lifecycle.strategy import NOTHING, STRATEGIES, Backoff, Decision, Siblings
from dsh_actors.lifecycle.supervision import Intensity

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Outcome
    from dsh_actors.lifecycle.strategy import Strategy
    from dsh_actors.lifecycle.supervision import RestartType

# Erlang's exit reasons, and what they are called here. ``normal`` and ``shutdown`` are normal
# ends; a crash and a kill from outside are abnormal ones.
REASONS: dict[str, Outcome] = {
    "normal": "completed", "shutdown": "aborted", "crash": "failed", "killed": "lost",
}  # fmt: skip

# restart type, exit reason -> whether it is started again (supervisor(3), "Tuning").
RESTARTED = {
    ("permanent", "normal"): True,
    ("permanent", "shutdown"): True,
    ("permanent", "crash"): True,
    ("permanent", "killed"): True,
    ("transient", "normal"): False,
    ("transient", "shutdown"): False,
    ("transient", "crash"): True,
    ("transient", "killed"): True,
    ("temporary", "normal"): False,
    ("temporary", "shutdown"): False,
    ("temporary", "crash"): False,
    ("temporary", "killed"): False,
}

# strategy, which of four permanent children ends -> who is ended with it, who is started then.
SIBLINGS = {
    ("one_for_one", "a"): ("", "a"),
    ("one_for_one", "b"): ("", "b"),
    ("one_for_one", "c"): ("", "c"),
    ("one_for_one", "d"): ("", "d"),
    ("one_for_all", "a"): ("dcb", "abcd"),
    ("one_for_all", "b"): ("dca", "abcd"),
    ("one_for_all", "c"): ("dba", "abcd"),
    ("one_for_all", "d"): ("cba", "abcd"),
    ("rest_for_one", "a"): ("dcb", "abcd"),
    ("rest_for_one", "b"): ("dc", "bcd"),
    ("rest_for_one", "c"): ("d", "cd"),
    ("rest_for_one", "d"): ("", "d"),
}


def family(
    strategy: Strategy, *restarts: RestartType, limit: int = 10, period: float = 5.0
) -> Siblings:
    siblings = Siblings(strategy, Intensity(limit, period))
    for name, restart in zip("abcdefgh", restarts, strict=False):
        siblings.started(name, restart)
    return siblings


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("restart", "reason"), RESTARTED)
@pytest.mark.parametrize("who", "abcd")
@pytest.mark.parametrize("limit", [0, 1, 2])
def test_the_whole_table(
    strategy: Strategy, restart: RestartType, reason: str, who: str, limit: int
) -> None:
    """Every strategy x restart type x exit reason x place x intensity."""
    restarts: list[RestartType] = ["permanent"] * 4
    restarts["abcd".index(who)] = restart
    siblings = family(strategy, *restarts, limit=limit)
    others = [name for name in "abcd" if name != who]

    for attempt in itertools.count(1):
        decision = siblings.ended(who, REASONS[reason], now=float(attempt) / 10)
        if not RESTARTED[restart, reason]:
            assert decision == NOTHING
            assert siblings.alive == others
            return
        if attempt > limit:
            assert decision == Decision(tuple(reversed(others)), (), escalate=True)
            assert siblings.alive == []
            return
        terminated, started = SIBLINGS[strategy, who]
        assert decision == Decision(tuple(terminated), tuple(started))
        assert siblings.alive == list("abcd")


def test_a_temporary_sibling_that_is_ended_on_the_way_is_gone() -> None:
    siblings = family("one_for_all", "permanent", "temporary", "permanent")

    assert siblings.ended("a", "failed", 0.0) == Decision(("c", "b"), ("a", "c"))
    assert siblings.alive == ["a", "c"]
    assert siblings.ended("c", "failed", 0.1) == Decision(("a",), ("a", "c"))


def test_a_transient_sibling_that_had_ended_is_started_with_the_others() -> None:
    siblings = family("one_for_all", "permanent", "transient", "permanent")
    assert siblings.ended("b", "completed", 0.0) == NOTHING
    assert siblings.alive == ["a", "c"]

    assert siblings.ended("a", "failed", 0.1) == Decision(("c",), ("a", "b", "c"))


def test_one_that_had_ended_before_the_culprit_in_the_order_stays_ended() -> None:
    siblings = family("rest_for_one", "transient", "permanent", "permanent")
    siblings.ended("a", "completed", 0.0)

    assert siblings.ended("b", "failed", 0.1) == Decision(("c",), ("b", "c"))
    assert siblings.alive == ["b", "c"]


def test_the_restarts_of_all_children_count_together_within_the_period() -> None:
    siblings = family("one_for_one", "permanent", "permanent", limit=2, period=5.0)

    assert not siblings.ended("a", "failed", 0.0).escalate
    assert not siblings.ended("b", "failed", 4.0).escalate
    assert not siblings.ended("a", "failed", 5.1).escalate  # the first is too long ago
    assert siblings.ended("b", "failed", 6.0) == Decision(("a",), (), escalate=True)


def test_an_end_that_is_known_or_of_a_stranger_changes_nothing() -> None:
    siblings = family("one_for_all", "transient", "permanent", limit=0)
    assert siblings.ended("x", "failed", 0.0) == NOTHING
    siblings.ended("a", "completed", 0.0)
    assert siblings.ended("a", "failed", 0.1) == NOTHING
    siblings.removed("b")
    assert siblings.ended("b", "failed", 0.2) == NOTHING


def test_a_child_that_comes_later_is_the_last() -> None:
    siblings = family("rest_for_one", "permanent", "permanent")
    siblings.started("z", "permanent")

    assert siblings.ended("a", "failed", 0.0).terminate == ("z", "b")


@given(
    strategy=st.sampled_from(STRATEGIES),
    restarts=st.lists(
        st.sampled_from(["permanent", "transient", "temporary"]), min_size=1, max_size=6
    ),
    ends=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(sorted(REASONS.values()))), max_size=12
    ),
    limit=st.integers(0, 4),
)
def test_what_always_holds(
    strategy: Strategy,
    restarts: list[RestartType],
    ends: list[tuple[int, Outcome]],
    limit: int,
) -> None:
    siblings = family(strategy, *restarts, limit=limit, period=100.0)
    names = "abcdef"[: len(restarts)]
    kinds = dict(zip(names, restarts, strict=True))
    count = 0
    for place, outcome in ends:
        who = "abcdef"[place]
        before = siblings.alive
        decision = siblings.ended(who, outcome, float(count))
        assert who not in decision.terminate
        assert set(decision.terminate) <= set(before)  # only who runs is ended
        assert list(decision.terminate) == sorted(decision.terminate, reverse=True)
        assert list(decision.restart) == sorted(decision.restart)
        assert all(kinds[each] != "temporary" for each in decision.restart)
        if decision.restart:
            count += 1
            assert who in decision.restart
            assert count <= limit
            kept = {each for each in decision.terminate if kinds[each] != "temporary"}
            assert kept <= set(decision.restart)
        if decision.escalate:
            assert count == limit
            assert siblings.alive == []
            return


@given(
    first=st.floats(0, 5), factor=st.floats(1, 4), limit=st.floats(0, 20),
    jitter=st.floats(0, 1), random=st.floats(0, 1, exclude_max=True),
)  # fmt: skip
def test_waits_grow_to_their_limit(
    first: float, factor: float, limit: float, jitter: float, random: float
) -> None:
    backoff = Backoff(first, factor, limit, jitter)
    waits = [backoff.wait(float(now), random) for now in range(20)]

    assert waits == sorted(waits)
    assert all(0 <= wait <= limit for wait in waits)
    assert waits[0] <= first


def test_after_a_quiet_time_the_waits_begin_anew() -> None:
    backoff = Backoff(first=1.0, factor=2.0, limit=30.0, jitter=0.0, quiet=60.0)

    assert [backoff.wait(now, 0.0) for now in (0.0, 1.0, 3.0, 64.0)] == [1.0, 2.0, 4.0, 1.0]
