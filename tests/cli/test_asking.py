"""What a run that goes on with a session waits for."""

from __future__ import annotations

from typing import Any

from dsh_actors.actors.future import Future
from dsh_actors.codec import encode
from dsh_actors.sessions import Event
from dsh_actors_cli.asking import owed


def accepted(seq: int, kind: str) -> Event:
    data = {"id": seq + 1, "kind": kind, "body": encode("x")}
    return Event(seq, 0.0, "prompt/accepted", data)


def test_a_message_that_starts_no_turn_is_not_waited_for() -> None:
    restored: dict[int, Future[Any]] = {id: Future() for id in (1, 2, 3)}
    events = [accepted(0, "inject"), accepted(1, "follow-up"), accepted(2, "inject")]
    assert owed(events, restored) == [restored[2]]
