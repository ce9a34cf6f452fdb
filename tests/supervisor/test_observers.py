"""Several may listen to one system's events, and come and go as they like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from tests.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATIENCE = 10.0


@pytest.fixture
def heard() -> list[Mapping[str, Any]]:
    return []


@pytest.fixture
def system(heard: list[Mapping[str, Any]]) -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1, on_event=heard.append) as system:
        yield system


@pytest.fixture
def unwatched() -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1) as system:
        yield system


def echo(turn: dsh.Turn, message: Any) -> Any:
    return message


def types(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_another_listener_takes_nothing_from_the_first(
    system: dsh.ActorSystem, heard: list[Mapping[str, Any]]
) -> None:
    second: list[Mapping[str, Any]] = []
    remove = system.observe(second.append)
    system.create(echo, id="a").agent.ask(1).result(PATIENCE)
    remove()
    remove()
    system.create(echo, id="b").agent.ask(1).result(PATIENCE)
    assert [event["agent"] for event in second if event["type"] == "agent/started"] == ["a"]
    assert [event["agent"] for event in heard if event["type"] == "agent/started"] == ["a", "b"]


def test_one_that_fails_or_changes_an_event_starves_nobody(
    system: dsh.ActorSystem, heard: list[Mapping[str, Any]]
) -> None:
    def spoil(event: Any) -> None:
        event.clear()
        raise ValueError("no")

    third: list[Mapping[str, Any]] = []
    removers = [system.observe(spoil), system.observe(third.append)]
    system.create(echo, id="a").agent.ask(1).result(PATIENCE)
    for remove in removers:
        remove()
    assert "agent/started" in types(third)
    assert "agent/started" in types(heard)


def test_an_agent_made_while_nobody_listened_tells_of_its_next_turn(
    unwatched: dsh.ActorSystem,
) -> None:
    agent = unwatched.create(echo, id="a").agent
    agent.ask(1).result(PATIENCE)
    watch = Watch()
    remove = unwatched.observe(watch)
    agent.ask(2).result(PATIENCE)
    watch.see("turn/end")  # told after the answer
    assert types(watch.events) == ["turn/start", "turn/end"]
    remove()
    assert unwatched._core.observer is None
    agent.ask(3).result(PATIENCE)
    assert types(watch.events) == ["turn/start", "turn/end"]


def test_the_same_function_may_listen_twice(unwatched: dsh.ActorSystem) -> None:
    events: list[Mapping[str, Any]] = []
    first = unwatched.observe(events.append)
    second = unwatched.observe(events.append)
    first()
    unwatched.create(echo, id="a")
    assert types(events) == ["agent/started"]
    second()
