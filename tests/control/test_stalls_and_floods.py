"""Clients that stall or flood: nobody else notices, least of all the tree."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.control import ControlClient, ControlError, ControlServer
from dsh_actors.control.limits import Limits, Throttle
from dsh_actors.control.protocol import request_frame
from tests.control.raw import (
    FLOOD,
    PATIENCE,
    UNHURRIED,
    Gate,
    Raw,
    fill,
    is_well,
    wait_until_alone,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import dsh_actors as dsh


def test_the_tree_answers_while_a_client_stalls_with_full_buffers(
    unhurried: ControlServer, system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    system.create(lambda turn, message: "x" * message, id="large")
    with Raw(unhurried.path) as stalled, Raw(unhurried.path) as watcher:
        watcher.request("watch")
        for _ in range(40):  # it gets an answer of a megabyte for each, and reads none
            stalled.request("send", agent="large", body=1 << 20, wait=True)
        fill(stalled, FLOOD)
        for number in range(300):
            assert echo.ask(number).result(PATIENCE) == number
        is_well(unhurried, echo)
        assert unhurried._loop is not None
        held = [each._outbox_bytes for each in unhurried._loop._connections]
        # What is still to be sent is bounded, and so is what has come in and was not looked at.
        assert max(held) < UNHURRIED.outbox + UNHURRIED.open_requests * (1 << 20)
        assert max(len(each._inbox) for each in unhurried._loop._connections) < 2 << 20


def test_a_client_that_does_not_read_its_answers_is_closed(
    serve: Callable[..., ControlServer], system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    brief = serve(stall=0.05)
    system.create(lambda turn, message: "x" * message, id="large")
    with Raw(brief.path) as stalled:
        stalled.request("send", agent="large", body=8 << 20, wait=True)
        wait_until_alone(brief, echo)
        assert stalled.last_word() is None  # its buffer has no room for that either


def test_a_watcher_that_does_not_read_is_closed(
    serve: Callable[..., ControlServer], system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    brief = serve(stall=0.05)
    with Raw(brief.path) as stalled:
        stalled.request("watch")
        assert stalled.frame() is not None
        while system._core.observer is not None:  # until it is given up
            system._core.emit("progress", agent="a", note="x" * 10_000)
        wait_until_alone(brief, echo)


def test_one_that_reads_a_little_now_and_then_is_closed_all_the_same(
    serve: Callable[..., ControlServer], system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    brief = serve(stall=0.05)
    system.create(lambda turn, message: "x" * message, id="large")
    with Raw(brief.path) as slow:
        slow.request("send", agent="large", body=8 << 20, wait=True)
        assert brief._loop is not None
        while brief._loop._connections:
            slow.socket.recv(1)  # each is progress, and no frame is ever done


def test_who_rings_while_the_ring_is_taken_does_not_silence_the_bell(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = server._loop
    assert loop is not None
    assert server.close()

    class Bell:
        def recv(self, size: int) -> bytes:
            loop._wake()
            return b"."

    loop._bell = Bell()  # type: ignore[assignment]
    loop._rung = True
    loop._hush()
    assert not loop._rung  # or nobody would ever ring again


# -- floods -------------------------------------------------------------------------------------


def test_a_flood_of_requests_is_done_in_turn_with_others(
    unhurried: ControlServer, echo: dsh.Agent
) -> None:
    with Raw(unhurried.path) as flood:
        fill(flood, FLOOD)
        is_well(unhurried, echo)
        fill(flood, FLOOD)
        is_well(unhurried, echo)


def test_each_client_gets_one_request_done_in_a_pass(
    unhurried: ControlServer, system: dsh.ActorSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    loop = unhurried._loop
    assert loop is not None
    true_do, gate = loop._verbs.do, Gate()

    def do(verb: str, fields: dict[str, Any]) -> Any:
        done.append(verb)
        if verb == "agent":
            gate.entered.set()
            gate.opened.wait(PATIENCE)
        return true_do(verb, fields)

    monkeypatch.setattr(loop._verbs, "do", do)
    with Raw(unhurried.path) as holding, Raw(unhurried.path) as many, Raw(unhurried.path) as few:
        holding.request("agent", agent="x")
        assert gate.entered.wait(PATIENCE)
        for _ in range(50):
            many.request("receipt")
        few.request("tree")
        gate.opened.set()
        assert few.frame() is not None
        assert done.index("tree") <= 4


def test_only_so_many_requests_of_a_client_may_wait(
    client: ControlClient, system: dsh.ActorSystem, gate: Gate
) -> None:
    system.create(gate.behaviour, id="slow")
    limit = Limits().open_requests
    for _ in range(limit):
        client._request("send", {"agent": "slow", "body": 1, "wait": True})
    with pytest.raises(ControlError, match="64 requests of this client wait") as busy:
        client.call("send", agent="slow", body=1, wait=True)
    assert busy.value.type_name == "Busy"
    gate.opened.set()
    assert client._next(limit + 1, PATIENCE)[0] == "ok"


def test_an_id_is_not_used_twice_at_once(
    server: ControlServer, system: dsh.ActorSystem, gate: Gate
) -> None:
    system.create(gate.behaviour, id="slow")
    with Raw(server.path) as client:
        frame = request_frame(5, "send", {"agent": "slow", "body": 1, "wait": True})
        client.send(frame + frame)
        found = client.frame()
        assert found is not None
        assert found[:2] == (5, "error")
        assert "belongs to another request" in found[2]["message"]


def test_all_who_ask_for_the_tree_at_once_share_one_look_at_it(
    unhurried: ControlServer, system: dsh.ActorSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    true_tree = system.tree
    monkeypatch.setattr(system, "tree", lambda: looks.append(1) or true_tree())
    gate, loop = Gate(), unhurried._loop
    assert loop is not None
    true_agent = loop._verbs._table["agent"]

    def agent(**fields: Any) -> Any:
        gate.entered.set()
        gate.opened.wait(PATIENCE)
        return true_agent(**fields)

    monkeypatch.setitem(loop._verbs._table, "agent", agent)
    clients = [Raw(unhurried.path) for _ in range(20)]
    with Raw(unhurried.path) as holding:
        holding.request("agent", agent="x")
        assert gate.entered.wait(PATIENCE)
        for client in clients:
            client.request("tree")
        gate.opened.set()
        for client in clients:
            assert client.frame() is not None
            client.close()
    assert len(looks) <= 2  # those that were looked at before the gate, and the rest


def test_the_throttle_lets_a_burst_pass_and_then_keeps_to_its_share() -> None:
    throttle = Throttle(0.25, 0.1, now=0.0)
    assert throttle.spent(0.1, 0.0) == 0.0
    assert throttle.spent(0.05, 0.0) == pytest.approx(0.2)
    assert throttle.spent(0.0, 0.2) == pytest.approx(0.0, abs=1e-9)
    used, now = 0.0, 0.2
    while now < 100:
        pause = throttle.spent(0.01, now)
        used += 0.01
        now += 0.01 + pause
    assert used == pytest.approx(25, rel=0.02)
    throttle.spent(0.0, 1000.0)  # what was not used is not saved up
    assert throttle.spent(0.1 + 0.05, 1000.0) == pytest.approx(0.2)


class Rests:
    """Stands in for the event that a server rests on, and says when it does."""

    def __init__(self, event: threading.Event) -> None:
        self.is_set, self.set = event.is_set, event.set
        self._wait = event.wait
        self.pauses: list[float] = []
        self.begun = threading.Event()

    def wait(self, timeout: float) -> bool:
        self.pauses.append(timeout)
        self.begun.set()
        return self._wait(timeout)


def test_the_server_rests_when_it_has_used_up_its_share(
    serve: Callable[..., ControlServer], echo: dsh.Agent
) -> None:
    server = serve(share=0.001, burst=0.0)
    assert server._loop is not None
    rests = Rests(server._loop._closing)
    server._loop._closing = rests  # type: ignore[assignment]
    with Raw(server.path) as flood:
        fill(flood, FLOOD)
        assert rests.begun.wait(PATIENCE)
        for number in range(200):
            assert echo.ask(number).result(PATIENCE) == number
        assert server.close()  # also while it rests
    assert min(rests.pauses) > 0
