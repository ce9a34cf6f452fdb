"""Clients that send garbage, vanish, or come in great numbers: nobody else notices."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.control import ControlClient, ControlError, ControlServer
from dsh_actors.control.protocol import PROTOCOL, request_frame
from tests.control.raw import (
    FLOOD,
    PATIENCE,
    UNHURRIED,
    Gate,
    Raw,
    framed,
    is_well,
    wait_until_alone,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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


def test_a_half_open_connection_has_a_deadline(serve: Callable[..., ControlServer]) -> None:
    brief = serve(hello=0.05)
    with Raw(brief.path, hello=False) as silent:
        assert "has not said hello within 0.05 s" in silent.last_word()["message"]


def test_half_a_frame_has_a_deadline(serve: Callable[..., ControlServer]) -> None:
    brief = serve(frame=0.05)
    with Raw(brief.path) as half:
        half.send(FLOOD[:-1])
        assert "a frame has not arrived within 0.05 s" in half.last_word()["message"]


def test_an_idle_client_has_none(serve: Callable[..., ControlServer]) -> None:
    brief = serve(frame=0.05, stall=0.05)
    with Raw(brief.path) as idle, Raw(brief.path) as half:
        half.send(FLOOD[:-1])
        assert half.last_word()  # longer than any deadline of the other would have been
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
    serve: Callable[..., ControlServer], system: dsh.ActorSystem, gate: Gate
) -> None:
    brief = serve(clients=8, spare=0.0)
    system.create(gate.behaviour, id="slow")
    clients = [Raw(brief.path) for _ in range(8)]
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
