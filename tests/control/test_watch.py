"""Streams: who watches is told, in order, and what was dropped is counted."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.control import ControlClient, ControlError, ControlServer
from dsh_actors.control.connection import Connection
from dsh_actors.control.limits import Limits
from dsh_actors.control.protocol import MAX_FRAME_BYTES, FrameBuffer, read_answer
from dsh_actors.control.watching import Hub, Stream
from dsh_actors.sessions import MemoryStore
from tests.control.raw import PATIENCE, Raw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def recorded(folder: Path) -> Iterator[dsh.ActorSystem]:
    store = MemoryStore()
    with dsh.ActorSystem(workers=1, store=store) as system, ControlServer(system):
        yield system
    store.close()


def take(stream: Any, count: int) -> list[dict[str, Any]]:
    events = [stream.get(PATIENCE) for _ in range(count)]
    assert None not in events
    return events


def test_all_events_are_told_from_the_beginning_on(
    client: ControlClient, system: dsh.ActorSystem
) -> None:
    stream = client.stream("watch")
    assert stream.begun == {"type": "watching", "system": system.id, "session": None}
    agent = system.create(lambda turn, message: message, id="a").agent
    assert client.call("send", agent="a", body=1, wait=True)["result"] == 1  # in between
    agent.when_idle().result(PATIENCE)
    events = take(stream, 3)
    assert [event["type"] for event in events] == ["agent/started", "turn/start", "turn/end"]
    assert {event["agent"] for event in events} == {"a"}
    system.stop("a").result(PATIENCE)
    assert take(stream, 1)[0]["type"] == "agent/ended"


def test_only_the_events_of_one_agent(client: ControlClient, system: dsh.ActorSystem) -> None:
    for id in ("a", "b"):
        system.create(lambda turn, message: message, id=id)
    stream = client.stream("watch", agent="b")
    for id in ("a", "b"):
        system.stop(id).result(PATIENCE)
    (told,) = take(stream, 1)
    assert (told["type"], told["agent"]) == ("agent/ended", "b")


def test_the_log_of_a_session_as_it_is_committed(recorded: dsh.ActorSystem) -> None:
    agent = recorded.create(lambda turn, message: message, id="a").agent
    other = recorded.create(lambda turn, message: message, id="b").agent
    with ControlClient.connect() as client:
        log = client.stream("watch", session=agent.session_id)
        assert log.begun["session"] == agent.session_id
        both = client.stream("watch", agent="a")
        assert both.begun["session"] == agent.session_id
        for each in (other, agent):
            each.ask("hello").result(PATIENCE)
        types = ["prompt/accepted", "turn/start", "turn/end"]
        events = take(log, 3)
        assert [event["event"] for event in events] == types
        assert {event["type"] for event in events} == {"log"}
        assert {event["session"] for event in events} == {agent.session_id}
        first = events[0]["seq"]
        assert [event["seq"] for event in events] == [first, first + 1, first + 2]
        assert codec.decode(events[0]["data"]["body"]) == "hello"
        mixed = take(both, 5)
        assert [e["event"] for e in mixed if e["type"] == "log"] == types
        assert [e["type"] for e in mixed if e["type"] != "log"] == ["turn/start", "turn/end"]


def test_nobody_is_listened_to_once_nobody_watches(recorded: dsh.ActorSystem) -> None:
    agent = recorded.create(lambda turn, message: message, id="a").agent
    core = recorded._core
    assert core.observer is None
    with ControlClient.connect() as client:
        first = client.stream("watch", agent="a")
        second = client.stream("watch", session=agent.session_id, events=True)
        assert core.observer is not None
        first.close()
        assert first.over
        assert first.get(0) is None
        assert core.observer is not None
        agent.ask(1).result(PATIENCE)
        assert take(second, 5)
        second.close()
        assert core.observer is None
        second.close()
        with pytest.raises(ControlError, match="there is no stream"):
            client.call("unwatch", stream=1)


def test_a_watcher_that_vanishes_is_forgotten(
    server: ControlServer, system: dsh.ActorSystem
) -> None:
    with Raw(server.path) as watcher:
        watcher.request("watch")
        assert watcher.frame() is not None
        assert system._core.observer is not None
    with ControlClient.connect() as client:
        while system._core.observer is not None:  # the server learns of it in its next passes
            client.call("receipt")


def test_streams_end_with_the_server_and_nothing_is_lost_by_that(
    system: dsh.ActorSystem, folder: Path
) -> None:
    with ControlServer(system) as server:
        client = ControlClient.connect()
        stream = client.stream("watch")
        for number in range(50):
            system.create(lambda turn, message: message, id=f"a{number}")
        server.close()
    with client:
        told = [event["agent"] for event in stream]
        assert told == [f"a{number}" for number in range(50)]
        assert stream.over
        with pytest.raises(ControlError, match="has closed this connection"):
            client.call("tree")


def test_one_client_may_have_so_many_streams(client: ControlClient) -> None:
    streams = [client.stream("watch") for _ in range(Limits().streams)]
    with pytest.raises(ControlError, match="one client may have 8 streams"):
        client.stream("watch")
    streams[0].close()
    assert client.stream("watch").begun


def test_an_event_that_cannot_be_carried_is_told_as_such(
    client: ControlClient, system: dsh.ActorSystem
) -> None:
    stream = client.stream("watch")
    system._core.emit("progress", agent="a", note=object())
    (event,) = take(stream, 1)
    assert event["type"] == "progress"
    assert "$.note" in event["problem"]


# -- what does not fit ----------------------------------------------------------------------------


class Halves:
    """A connection whose client reads nothing, and what would be sent to it."""

    def __init__(self, limits: Limits) -> None:
        self.mine, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.connection = Connection(self.theirs, limits, 0.0)

    def sent(self) -> int:
        return len(self.connection._outbox)

    def read(self) -> list[dict[str, Any]]:
        buffer, events = FrameBuffer(MAX_FRAME_BYTES), []
        while self.connection.wants_write:
            self.connection.write(0.0)
            buffer.feed(self.mine.recv(1 << 20))
        while (payload := buffer.take()) is not None:
            events.append(codec.decode(read_answer(payload)[2]))
        return events

    def close(self) -> None:
        self.mine.close()
        self.theirs.close()


@pytest.fixture
def halves() -> Iterator[Halves]:
    halves = Halves(Limits(stream_outbox=200, stream_events=3))
    yield halves
    halves.close()


def hub_with(system: dsh.ActorSystem, limits: Limits) -> tuple[Hub, list[int]]:
    woken: list[int] = []
    return Hub(system, None, limits, lambda: woken.append(1)), woken


def test_a_stream_that_is_not_read_loses_events_and_says_how_many(
    system: dsh.ActorSystem, halves: Halves
) -> None:
    hub, _ = hub_with(system, Limits())
    stream = Stream(halves.connection, 1, agent=None, session=None, events=True, limit=3)
    hub.add(stream)
    for number in range(100):
        system._core.emit("progress", agent="a", number=number)
    hub.distribute(0.0)
    first = halves.sent()  # what fits; then three wait, and the rest is lost
    assert 0 < first < 50
    hub.distribute(0.0)
    assert halves.sent() == first
    told = halves.read()
    system._core.emit("progress", agent="a", number=100)
    while hub.distribute(0.0) or halves.connection.wants_write:
        told += halves.read()
    numbers = [event["number"] for event in told if event["type"] == "progress"]
    (dropped,) = [event for event in told if event["type"] == "dropped"]
    assert len(numbers) + dropped["count"] == 101
    assert numbers == sorted(numbers)
    assert numbers[-1] == 100  # it goes on with what came after
    assert told.index(dropped) == numbers.index(100)
    hub.close()


def test_a_system_that_is_faster_than_the_server_drops_at_once(
    system: dsh.ActorSystem, halves: Halves
) -> None:
    hub, woken = hub_with(system, Limits(events=10))
    wide = Stream(halves.connection, 1, agent=None, session=None, events=True, limit=1000)
    hub.add(wide)
    for number in range(25):
        system._core.emit("progress", agent="a", number=number)
    assert len(woken) == 10  # the rest has cost it a comparison
    told: list[dict[str, Any]] = []
    while hub.distribute(0.0) or halves.connection.wants_write:
        told += halves.read()
    assert [event.get("number") for event in told] == [*range(10), None]
    assert told[-1] == {"type": "dropped", "count": 15}
    hub.close()
    assert system._core.observer is None
