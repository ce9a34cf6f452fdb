"""A system with a control server, in a folder of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.control import ControlClient, ControlServer
from tests.control.raw import UNHURRIED, Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where sockets go in this test."""
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path / "run"


@pytest.fixture
def system() -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1) as system:
        yield system


@pytest.fixture
def server(system: dsh.ActorSystem, folder: Path) -> Iterator[ControlServer]:
    with ControlServer(system) as server:
        yield server


@pytest.fixture
def serve(system: dsh.ActorSystem, folder: Path) -> Iterator[Callable[..., ControlServer]]:
    """Starts a server with other limits."""
    servers = []

    def start(**limits: Any) -> ControlServer:
        server = ControlServer(system, limits=replace(UNHURRIED, **limits))
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def unhurried(serve: Callable[..., ControlServer]) -> ControlServer:
    """A server whose deadlines have no part in a test."""
    return serve()


@pytest.fixture
def client(server: ControlServer) -> Iterator[ControlClient]:
    with ControlClient.connect() as client:
        yield client


@pytest.fixture
def echo(system: dsh.ActorSystem) -> Any:
    """An agent that says what it heard."""
    return system.create(lambda turn, message: message, id="echo").agent


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds turns until it is opened."""
    gate = Gate()
    yield gate
    gate.opened.set()
