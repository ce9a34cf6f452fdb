"""The simulated crashes can fail: each thing that a resume must do is left out once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.observe.logging import set_level
from dsh_actors.sessions.recovery import Recovered
from dsh_actors.supervisor.lives import Life
from dsh_actors.supervisor.plans import Plan
from dsh_actors.supervisor.resume import Resume
from dsh_actors.testing.simulation import Failure
from tests.simulation.test_crashes import crash_and_resume

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_SEEDS = 400


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    set_level("off")
    yield
    set_level("warning")


def _no_closers(self: Plan, *args: Any) -> None:
    _read_lives(self, *args)
    self.closers = []


def _no_room(self: Resume, plans: Any) -> None:
    return None


def _nothing_is_logged(self: Life, id: int, *, committed: bool) -> None:
    return None


def _nobody_is_lost(self: Resume, plan: Any, parent: Any) -> None:
    return None


def _no_sleep(self: Resume, place: Any, parent: Any) -> None:
    return None


_read_lives = Plan._read_lives

MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "inboxes that are forgotten": (Recovered, "inbox", property(lambda self: ())),
    "closers that are not appended": (Plan, "_read_lives", _no_closers),
    "ids of messages that are given again": (Resume, "make_room", _no_room),
    "messages that are accepted once more": (Life, "hand_over", _nothing_is_logged),
    "losses that are not on the record": (Resume, "_lose", _nobody_is_lost),
    "children that are left as the crash has left them": (Resume, "_put_to_sleep", _no_sleep),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_seed_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    for seed in range(MOST_SEEDS):
        try:
            crash_and_resume(seed)
        except (Failure, AssertionError):
            return
    pytest.fail(f"{MOST_SEEDS} seeds did not notice: {name}")
