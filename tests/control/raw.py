"""Clients that keep to no protocol, and what else the tests of the control plane share."""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import msgpack

from dsh_actors import codec
from dsh_actors.control import ControlClient
from dsh_actors.control.limits import Limits
from dsh_actors.control.protocol import (
    ERROR,
    MAX_FRAME_BYTES,
    PART,
    PROTOCOL,
    FrameBuffer,
    read_answer,
    request_frame,
)

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import dsh_actors as dsh
    from dsh_actors.control import ControlServer

FLOOD = request_frame(7, "receipt", {})
UNHURRIED = Limits(stall=600.0, frame=600.0, hello=600.0)
"""So that deadlines have no part in a test, but for those that it sets itself."""

PATIENCE = 20.0
"""Seconds after which a test gives up; none of them waits for so long if all is well."""


class Raw:
    """A connection that sends what it is told to."""

    def __init__(self, path: Path | None, *, hello: bool = True) -> None:
        assert path is not None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.socket.settimeout(PATIENCE)
        self.buffer = FrameBuffer(MAX_FRAME_BYTES)
        self.ids = 0
        if hello:
            self.ask("hello", protocol=PROTOCOL)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, verb: str, **fields: Any) -> int:
        self.ids += 1
        self.send(request_frame(self.ids, verb, fields))
        return self.ids

    def frame(self) -> tuple[int, str, Any] | None:
        """The next frame, or None at the end."""
        while (payload := self.buffer.take()) is None:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer.feed(data)
        id, op, data = read_answer(payload)
        return id, op, data if op == PART else codec.decode(data)

    def ask(self, verb: str, **fields: Any) -> Any:
        id = self.request(verb, **fields)
        found = self.frame()
        assert found is not None
        assert found[:2] == (id, "ok"), found
        return found[2]

    def last_word(self) -> Any:
        """The error that the server closes this connection with; it must close it."""
        word = None
        while (found := self.frame()) is not None:
            if found[:2] == (0, ERROR):
                word = found[2]
        return word

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def framed(value: Any) -> bytes:
    """A frame around anything."""
    payload: bytes = msgpack.packb(value)
    return struct.pack(">I", len(payload)) + payload


class Gate:
    """A behaviour whose turns wait until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def behaviour(self, turn: dsh.Turn, message: Any) -> Any:
        self.entered.set()
        while not self.opened.wait(0.01):
            turn.check()
        return message


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


def wait_until_alone(server: ControlServer, echo: dsh.Agent) -> None:
    """Wait until the server has closed all its clients; the tree must be well meanwhile."""
    assert server._loop is not None
    while server._loop._connections:
        assert echo.ask(1).result(PATIENCE) == 1
