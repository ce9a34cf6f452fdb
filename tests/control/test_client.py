"""The client: what it says when the other side is gone, slow, old or mad."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.control import ControlClient, ControlError, ControlServer
from dsh_actors.control.protocol import (
    END,
    ERROR,
    EVENT,
    OK,
    PROTOCOL,
    error_data,
    frames_of,
    read_request,
)
from tests.control.raw import PATIENCE, Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HELLO = {"protocol": PROTOCOL, "system": "fake-1-ab"}


def said(id: int, op: str, value: Any) -> bytes:
    return b"".join(frames_of(id, op, codec.encode(value)))


class Fake:
    """A server that answers the requests of one client with given bytes, and then hangs up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread: threading.Thread | None = None
        self.hold = threading.Event()

    def answers(self, *answers: bytes, hang_up: bool = True) -> Path:
        if not hang_up:
            self.hold = threading.Event()
        else:
            self.hold.set()
        self.thread = threading.Thread(target=self._serve, args=(answers,))
        self.thread.start()
        return self.path

    def _serve(self, answers: tuple[bytes, ...]) -> None:
        client, _ = self.listener.accept()
        with client:
            client.settimeout(PATIENCE)
            for answer in answers:
                head = client.recv(4, socket.MSG_WAITALL)
                read_request(client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
                try:
                    client.sendall(answer)
                except BrokenPipeError:
                    return  # it has heard enough
            self.hold.wait(PATIENCE)

    def close(self) -> None:
        self.hold.set()
        if self.thread is not None:
            self.thread.join(PATIENCE)
        self.listener.close()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    fake = Fake(tmp_path / "fake.sock")
    yield fake
    fake.close()


def fails(what: Callable[[], Any]) -> ControlError:
    with pytest.raises(ControlError) as error:
        what()
    return error.value


def test_a_path_where_nobody_listens(tmp_path: Path) -> None:
    missing = fails(lambda: ControlClient.connect(tmp_path / "x.sock"))
    assert missing.type_name == "NoSystem"
    assert "nobody listens there" in str(missing)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "x.sock"))
    assert fails(lambda: ControlClient.connect(str(tmp_path / "x.sock"))).type_name == "NoSystem"
    (tmp_path / "file").touch()
    assert "nobody listens" in str(fails(lambda: ControlClient.connect(tmp_path / "file")))
    with pytest.raises(dsh.UsageError):
        ControlClient.connect("")
    assert "cannot connect" in str(fails(lambda: ControlClient.connect(Path("/x" * 80))))


def test_a_system_is_reached_by_id_prefix_path_or_as_the_only_one(
    server: ControlServer, system: dsh.ActorSystem
) -> None:
    for target in (None, system.id, system.id[:6], server.path, str(server.path)):
        with ControlClient.connect(target) as client:
            assert client.hello["system"] == system.id
            assert repr(client) == f"<ControlClient of {system.id}>"


def test_a_server_of_another_version_is_named(fake: Fake) -> None:
    path = fake.answers(said(1, OK, HELLO | {"protocol": 2}))
    error = fails(lambda: ControlClient.connect(path))
    assert error.type_name == "VersionMismatch"
    assert "the system speaks version 2 of the control protocol, and this command 1" in str(error)


def test_a_server_that_says_nothing_has_a_deadline(fake: Fake) -> None:
    path = fake.answers(hang_up=False)
    error = fails(lambda: ControlClient.connect(path, timeout=0.02))
    assert error.type_name == "Timeout"
    assert "has not answered within 0.02 s; it may be stopped or overloaded" in str(error)


@pytest.mark.parametrize("answer", [b"", b"\0\0\0", said(1, OK, HELLO)[:-1]])
def test_a_server_that_hangs_up_is_lost(fake: Fake, answer: bytes) -> None:
    path = fake.answers(answer)
    error = fails(lambda: ControlClient.connect(path))
    assert error.type_name == "ConnectionLost"
    assert f"{path}: the system has ended, or has closed this connection" in str(error)


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\1\xc1", b"\0\0\0\1\x90", said(1, "what", 1)],
)
def test_a_server_that_talks_garbage_is_no_system(fake: Fake, answer: bytes) -> None:
    path = fake.answers(answer)
    assert fails(lambda: ControlClient.connect(path)).type_name == "BadFrame"


def test_an_endless_answer_is_not_put_together(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsh_actors.control.client.MAX_ANSWER_BYTES", 1 << 20)
    path = fake.answers(said(1, OK, "x" * (2 << 20)))
    assert "an answer of more than 1,048,576 bytes" in str(
        fails(lambda: ControlClient.connect(path))
    )


def test_the_reason_of_a_hang_up_is_told_to_who_asks_next(fake: Fake) -> None:
    busy = b"".join(frames_of(0, ERROR, error_data(ControlError("full", type_name="Busy"))))
    path = fake.answers(said(1, OK, HELLO) + busy)
    with ControlClient.connect(path) as client:
        assert fake.thread is not None
        fake.thread.join(PATIENCE)  # it has gone
        for _ in range(2):
            error = fails(lambda: client.call("tree"))
            assert (error.type_name, str(error)) == ("Busy", "full")


def test_answers_find_their_requests_in_any_order(fake: Fake) -> None:
    late = said(2, OK, "late") + said(3, OK, "right")
    path = fake.answers(said(1, OK, HELLO), b"", late)
    with ControlClient.connect(path) as client:
        assert fails(lambda: client.call("tree", timeout=0.001)).type_name == "Timeout"
        assert client.call("receipt", timeout=PATIENCE) == "right"  # not the late one


def test_a_stream_ends_with_the_server_or_fails_without_a_farewell(fake: Fake) -> None:
    begun = said(2, EVENT, {"type": "watching"})
    path = fake.answers(
        said(1, OK, HELLO), begun + said(2, EVENT, {"type": "x"}) + said(2, END, None)
    )
    with ControlClient.connect(path) as client:
        assert [event["type"] for event in client.stream("watch")] == ["x"]
    fake.close()
    path.unlink()
    fake.__init__(path)  # type: ignore[misc]
    fake.answers(said(1, OK, HELLO), begun + said(2, EVENT, {"type": "x"}))
    with ControlClient.connect(path) as client:
        stream = client.stream("watch")
        assert next(stream)["type"] == "x"
        assert fails(lambda: next(stream)).type_name == "ConnectionLost"
        stream.close()


def test_a_stream_that_is_refused_or_fails_says_why(fake: Fake) -> None:
    error = b"".join(frames_of(3, ERROR, error_data(dsh.AgentGone("it has ended"))))
    path = fake.answers(
        said(1, OK, HELLO),
        b"".join(frames_of(2, ERROR, error_data(dsh.UsageError("no")))),
        said(3, EVENT, {"type": "watching"}) + error,
    )
    with ControlClient.connect(path) as client:
        assert str(fails(lambda: client.stream("watch"))) == "no"
        stream = client.stream("watch")
        assert fails(lambda: next(stream)).type_name == "AgentGone"
        assert stream.over
        with pytest.raises(StopIteration):
            next(stream)


def test_waiting_for_an_event_has_its_own_deadline(client: ControlClient) -> None:
    stream = client.stream("watch")
    assert stream.get(0) is None
    assert stream.get(0.001) is None
    assert not stream.over
    assert client.fileno() > 0


def test_what_takes_time_is_waited_for(
    client: ControlClient, system: dsh.ActorSystem, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_actors.control.client.TIMEOUT", 0.0)
    system.create(gate.behaviour, id="slow")
    threading.Timer(0.05, gate.opened.set).start()
    answer = client.call("send", agent="slow", body="at last", wait=True)
    assert answer["result"] == "at last"
    assert client.call("idle", agent="slow") is None


def test_a_closed_client_says_so(client: ControlClient) -> None:
    stream = client.stream("watch")
    client.close()
    client.close()
    assert "this connection was closed" in str(fails(lambda: client.call("tree")))
    assert "this connection was closed" in str(fails(lambda: next(stream)))
    stream.close()


def test_the_end_of_the_system_ends_what_waits(
    system: dsh.ActorSystem, folder: Path, gate: Gate
) -> None:
    system.create(gate.behaviour, id="slow")
    with ControlServer(system) as server, ControlClient.connect() as client:
        waiting: list[ControlError] = []

        def ask() -> None:
            waiting.append(fails(lambda: client.call("send", agent="slow", body=1, wait=True)))

        thread = threading.Thread(target=ask)
        thread.start()
        assert gate.entered.wait(PATIENCE)
        server.close()
        thread.join(PATIENCE)
    assert waiting[0].type_name == "SystemClosed"
    assert "is ending and answers no more" in str(waiting[0])


def test_a_request_larger_than_all_buffers_is_taken_whole(
    client: ControlClient, echo: dsh.Agent
) -> None:
    text = "x" * 1_000_000
    assert client.call("send", agent="echo", body=text, wait=True)["result"] == text


def test_the_socket_of_another_user_is_not_used(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_actors.control.dialling.peer_uid", lambda _: 12345)
    error = fails(lambda: ControlClient.connect(server.path))
    assert "belongs to another user (uid 12345)" in str(error)
