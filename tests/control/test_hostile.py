"""Clients that stall, flood, send garbage or vanish: nobody else notices, least of all the tree."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.control import ControlClient, ControlError, ControlServer
from dsh_actors.control.limits import Limits, Throttle
from dsh_actors.control.protocol import PROTOCOL, request_frame
from tests.control.raw import PATIENCE, Gate, Raw, framed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRIEF = Limits(clients=8, hello=0.05, frame=0.05, stall=0.05, spare=0.0)
UNHURRIED = Limits(stall=600.0, frame=600.0, hello=600.0)
FLOOD = request_frame(7, "receipt", {})


@pytest.fixture
def brief(system: dsh.ActorSystem, folder: Path) -> Iterator[ControlServer]:
    """A server without patience."""
    with ControlServer(system, limits=BRIEF) as server:
        yield server


@pytest.fixture
def unhurried(system: dsh.ActorSystem, folder: Path) -> Iterator[ControlServer]:
    """One whose deadlines have no part in a test."""
    with ControlServer(system, limits=UNHURRIED) as server:
        yield server


def fill(client: Raw, data: bytes) -> int:
    """Send until the other side takes no more; how many bytes that were."""
    client.socket.setblocking(False)
    sent, view = 0, memoryview(data * 100)
    try:
        while True:
            sent += client.socket.send(view[sent % len(data) :])
    except BlockingIOError:
        return sent
    finally:
        client.socket.settimeout(PATIENCE)


def is_well(server: ControlServer, echo: dsh.Agent) -> None:
    """The tree answers, and so does the control plane to somebody else."""
    assert echo.ask("tree").result(PATIENCE) == "tree"
    with ControlClient.connect(server.path, timeout=PATIENCE) as client:
        answer = client.call("send", agent="echo", body="control", wait=True, timeout=PATIENCE)
        assert answer["result"] == "control"


# -- stalls -------------------------------------------------------------------------------------


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
    brief: ControlServer, system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    system.create(lambda turn, message: "x" * message, id="large")
    with Raw(brief.path) as stalled:
        stalled.request("send", agent="large", body=8 << 20, wait=True)
        wait_until_alone(brief, echo)
        assert stalled.last_word() is None  # its buffer has no room for that either


def test_a_watcher_that_does_not_read_is_closed(
    brief: ControlServer, system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    with Raw(brief.path) as stalled:
        stalled.request("watch")
        assert stalled.frame() is not None
        while system._core.observer is not None:  # until it is given up
            system._core.emit("progress", agent="a", note="x" * 10_000)
        wait_until_alone(brief, echo)


def wait_until_alone(server: ControlServer, echo: dsh.Agent) -> None:
    """Wait until the server has closed all its clients; the tree must be well meanwhile."""
    assert server._loop is not None
    while server._loop._connections:
        assert echo.ask(1).result(PATIENCE) == 1


def test_one_that_reads_a_little_now_and_then_is_closed_all_the_same(
    brief: ControlServer, system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
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


def test_the_server_rests_when_it_has_used_up_its_share(
    system: dsh.ActorSystem, folder: Path, echo: dsh.Agent
) -> None:
    tight = Limits(share=0.001, burst=0.0)
    with ControlServer(system, limits=tight) as server, Raw(server.path) as flood:
        fill(flood, FLOOD)
        for number in range(200):
            assert echo.ask(number).result(PATIENCE) == number
        assert server.close()  # also while it rests


# -- garbage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not a frame"),
        (b"\0" * 64, "not a frame"),
        (b"\xff" * 64, "not a frame"),
        (struct.pack(">I", (1 << 20) + 1), "1 to 1,048,576 are allowed"),
        (struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1", "cannot be decoded"),
        (struct.pack(">I", 4) + b"\xdf\xff\xff\xff", "cannot be decoded"),
        (framed(None), "not a request"),
        (framed({"id": 0, "verb": "tree"}), "not a request"),
        (framed({"id": 1, "verb": "tree", "fields": {}, "x": 1}), "not a request"),
    ],
)
@pytest.mark.parametrize("greeted", [True, False])
def test_garbage_is_answered_with_an_error_and_the_end(
    server: ControlServer, echo: dsh.Agent, garbage: bytes, why: str, greeted: bool
) -> None:
    with Raw(server.path, hello=greeted) as client:
        client.send(garbage)
        word = client.last_word()
        assert word["type"] == "BadFrame"
        assert why in word["message"]
    is_well(server, echo)


def test_a_message_that_is_no_encoded_value_reaches_no_agent(
    server: ControlServer, echo: dsh.Agent
) -> None:
    with Raw(server.path) as client:
        for body in (b"", b"\xc1", b"\x01\x01", b"\x91" * 2000):
            client.send(
                framed({"id": 9, "verb": "send", "fields": {"agent": "echo", "body": body}})
            )
            found = client.frame()
            assert found is not None
            assert found[2]["type"] == "MessageError"
    is_well(server, echo)


def test_who_says_no_hello_first_is_not_served(server: ControlServer) -> None:
    with Raw(server.path, hello=False) as client:
        client.request("shutdown")
        assert "must be hello" in client.last_word()["message"]


def test_another_version_is_refused_with_what_to_do(server: ControlServer) -> None:
    with Raw(server.path, hello=False) as client:
        client.request("hello", protocol=PROTOCOL + 1)
        word = client.last_word()
        assert word["type"] == "VersionMismatch"
        assert f"dsh-actors {dsh.__version__} and speaks version 1" in word["message"]


# -- clients that go ------------------------------------------------------------------------------


def test_clients_that_vanish_at_any_point_leave_nothing(
    server: ControlServer, system: dsh.ActorSystem, echo: dsh.Agent, gate: Gate
) -> None:
    system.create(gate.behaviour, id="slow")
    hello = request_frame(1, "hello", {"protocol": PROTOCOL})
    asked = request_frame(2, "send", {"agent": "slow", "body": 1, "wait": True})
    stream = hello + asked + request_frame(3, "watch", {})
    for end in range(0, len(stream) + 1, 3):
        with Raw(server.path, hello=False) as client:
            client.send(stream[:end])
    with Raw(server.path) as client:
        client.request("send", agent="slow", body=1, wait=True)
        client.ask("receipt")
        # Closed with what it did not read, which resets the connection.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    is_well(server, echo)
    wait_until_alone(server, echo)
    assert system._core.observer is None
    gate.opened.set()  # the answers that nobody waits for any more hurt nobody
    is_well(server, echo)


def test_who_closes_only_the_way_out_still_gets_its_answers(server: ControlServer) -> None:
    with Raw(server.path, hello=False) as client:
        client.send(
            request_frame(1, "hello", {"protocol": PROTOCOL})
            + request_frame(2, "tree", {})
            + request_frame(3, "receipt", {})
        )
        client.socket.shutdown(socket.SHUT_WR)
        answers = [client.frame() for _ in range(3)]
        assert [found and found[:2] for found in answers] == [(1, "ok"), (2, "ok"), (3, "ok")]
        assert client.frame() is None


def test_a_half_open_connection_has_a_deadline(brief: ControlServer) -> None:
    with Raw(brief.path, hello=False) as silent:
        assert "has not said hello within 0.05 s" in silent.last_word()["message"]


def test_half_a_frame_has_a_deadline(brief: ControlServer) -> None:
    with Raw(brief.path) as half:
        half.send(FLOOD[:-1])
        assert "a frame has not arrived within 0.05 s" in half.last_word()["message"]


def test_an_idle_client_has_none(brief: ControlServer) -> None:
    with Raw(brief.path) as idle, Raw(brief.path, hello=False) as silent:
        assert silent.last_word()  # longer than any deadline of the other would have been
        assert idle.ask("receipt")["agents"] == []


# -- many clients -------------------------------------------------------------------------------


def test_two_hundred_clients(unhurried: ControlServer, echo: dsh.Agent, gate: Gate) -> None:
    limit = UNHURRIED.clients
    clients = [Raw(unhurried.path, hello=False) for _ in range(200)]
    for client in clients:
        try:
            client.request("hello", protocol=PROTOCOL)
        except BrokenPipeError:
            continue  # turned away already
    answers = [client.frame() for client in clients]
    served = [c for c, found in zip(clients, answers, strict=True) if found and found[1] == "ok"]
    refused = [found[2] for found in answers if found and found[1] == "error"]
    assert len(served) == limit
    assert len(refused) == 200 - limit
    assert {error["type"] for error in refused} == {"Busy"}
    for client in served:
        client.ids += 1
        assert client.ask("send", agent="echo", body=1, wait=True)["result"] == 1
    assert echo.ask(2).result(PATIENCE) == 2
    with pytest.raises(ControlError, match="64 clients are connected already") as busy:
        ControlClient.connect(unhurried.path)
    assert busy.value.type_name == "Busy"
    for client in clients:
        client.close()
    wait_until_alone(unhurried, echo)
    is_well(unhurried, echo)


def test_the_place_of_an_idle_client_goes_to_one_that_comes(
    brief: ControlServer, system: dsh.ActorSystem, gate: Gate
) -> None:
    system.create(gate.behaviour, id="slow")
    clients = [Raw(brief.path) for _ in range(BRIEF.clients)]
    for client in clients[1:]:
        client.request("send", agent="slow", body=1, wait=True)
    for client in clients[1:]:
        client.ids += 1
        client.ask("receipt")  # so the request before it is known to wait
    with Raw(brief.path) as late:
        assert late.ask("receipt")
        assert clients[0].last_word() is None
        gate.opened.set()
        for client in clients[1:]:
            assert client.frame() is not None
    for client in clients:
        client.close()


def test_without_descriptors_the_server_waits_and_goes_on(
    unhurried: ControlServer, echo: dsh.Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unhurried._loop is not None
    door = unhurried._loop._door
    true_listener = door._listener
    failed = Gate()

    class Poor:
        def accept(self) -> Any:
            failed.entered.set()
            door._listener = true_listener
            raise OSError(24, "Too many open files")

        def fileno(self) -> int:
            return true_listener.fileno()

    monkeypatch.setattr("dsh_actors.control.door._NO_DESCRIPTORS", 0.01)
    door._listener = Poor()  # type: ignore[assignment]
    with ControlClient.connect(unhurried.path, timeout=PATIENCE) as client:
        assert failed.entered.is_set()
        assert client.call("tree")["agents"]


def test_another_user_is_turned_away(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_actors.control.door.peer_uid", lambda _: os.geteuid() + 1)
    with Raw(server.path, hello=False) as client:
        word = client.last_word()
    assert (word["type"], word["message"]) == (
        "NotAuthorized",
        "this system belongs to another user",
    )


def test_where_the_kernel_does_not_say_who_comes_the_server_says_so(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_actors.control.door.peer_uid", lambda _: None)
    with Raw(server.path) as client:
        assert client.ask("hello")["peers_checked"] is False


def test_a_bug_in_a_verb_is_answered_and_the_server_goes_on(
    server: ControlServer, echo: dsh.Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server._loop is not None

    def broken() -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(server._loop._verbs._table, "receipt", broken)
    with ControlClient.connect() as client:
        with pytest.raises(ControlError, match="a bug") as bug:
            client.call("receipt")
        assert bug.value.type_name == "ZeroDivisionError"
        assert client.call("tree")["agents"][0]["id"] == "echo"


def test_a_result_that_cannot_be_told_is_an_error(
    server: ControlServer, client: ControlClient
) -> None:
    server.publish_result({"x": object()})
    with pytest.raises(ControlError, match=r"\$\.x") as error:
        client.call("result")
    assert error.value.type_name == "MessageError"


def test_codec_extensions_reach_the_agent_untouched(
    server: ControlServer, system: dsh.ActorSystem
) -> None:
    import datetime as dt

    system.create(lambda turn, message: [message, message + dt.timedelta(1)], id="dates")
    day = dt.date(2026, 1, 31)
    with ControlClient.connect() as client:
        answer = client.call("send", agent="dates", body=day, wait=True)
    assert answer["result"] == [day, dt.date(2026, 2, 1)]
    assert codec.decode(codec.encode(day)) == day
