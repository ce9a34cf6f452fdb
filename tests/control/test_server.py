"""A control server in somebody's program: it comes and goes in order, and leaves no trace."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import dsh_actors as dsh
from dsh_actors.control import ControlClient, ControlError, ControlServer, running_systems
from dsh_actors.control.folder import MAX_SOCKET_PATH
from dsh_actors.control.limits import Limits
from dsh_actors.control.peer import peer_uid
from tests.control.raw import PATIENCE, Gate, Raw


def test_it_starts_once_and_ends_once(system: dsh.ActorSystem, folder: Path) -> None:
    server = ControlServer(system)
    assert server.path is None
    assert server.close()  # it never ran
    with pytest.raises(dsh.SystemClosed):
        server.start()
    server = ControlServer(system)
    server.start()
    server.start()
    path = server.path
    assert path is not None
    assert path.exists()
    assert server.close()
    assert server.close()
    assert server.path is None
    assert os.listdir(folder) == []
    with pytest.raises(dsh.SystemClosed, match="make a new one"):
        server.start()
    with ControlServer(system) as again:
        assert again.path == path


def test_it_is_for_a_system() -> None:
    with pytest.raises(dsh.UsageError, match="for an ActorSystem, not for 3"):
        ControlServer(3)  # type: ignore[arg-type]


def test_it_changes_nothing_else_in_the_process(system: dsh.ActorSystem, folder: Path) -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    threads = set(threading.enumerate())
    with ControlServer(system):
        started = set(threading.enumerate()) - threads
        assert [thread.name for thread in started] == [f"dsh-{system.id}-control"]
        assert {n: signal.getsignal(n) for n in signal.valid_signals()} == before
    assert set(threading.enumerate()) == threads


def test_it_may_start_and_end_on_any_thread(system: dsh.ActorSystem, folder: Path) -> None:
    def serve() -> None:
        with ControlServer(system), ControlClient.connect() as client:
            served.append(client.hello["system"])

    served: list[str] = []
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(PATIENCE)
    assert served == [system.id]


def test_two_systems_of_one_program(system: dsh.ActorSystem, folder: Path) -> None:
    with (
        dsh.ActorSystem(workers=1, name="other") as other,
        ControlServer(system),
        ControlServer(other),
    ):
        assert [found.id for found in running_systems()] == [system.id, other.id]
        with pytest.raises(ControlError, match="several systems are running"):
            ControlClient.connect()
        with ControlClient.connect("other") as client:
            assert client.hello["name"] == "other"


def test_a_system_that_has_ended_still_tells_what_became_of_it(folder: Path) -> None:
    with dsh.ActorSystem(workers=1) as system:
        server = ControlServer(system)
        server.start()
        system.create(lambda turn, message: message, id="a")
    with ControlClient.connect() as client:
        assert client.call("tree")["agents"] == []
        assert client.call("receipt")["agents"][0]["id"] == "a"
        with pytest.raises(ControlError) as gone:
            client.call("send", agent="a", body=1)
        assert gone.value.type_name == "AgentGone"
    assert server.close()


def test_the_answer_to_a_shutdown_reaches_its_client(folder: Path) -> None:
    """The program closes the server the moment that the system has ended."""
    for _ in range(20):
        system = dsh.ActorSystem(workers=1)
        ended = threading.Event()

        def shutdown(grace: float | None, system: Any = system, ended: Any = ended) -> Any:
            future = system.shutdown(grace)
            future.add_done_callback(lambda _: ended.set())
            return future

        with ControlServer(system, shutdown=shutdown) as server:
            receipts: list[Any] = []
            client = ControlClient.connect(server.path)
            thread = threading.Thread(target=lambda: receipts.append(client.call("shutdown")))  # noqa: B023
            thread.start()
            assert ended.wait(PATIENCE)
        thread.join(PATIENCE)
        client.close()
        assert receipts[0]["survivors"] == []


def test_what_is_done_by_the_time_of_the_close_is_answered(
    server: ControlServer, system: dsh.ActorSystem, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = system.create(gate.behaviour, id="a").agent
    assert server._loop is not None
    # Nobody tells the server that the answer is there; it has to look itself.
    monkeypatch.setattr(server._loop, "settled", lambda *_: None)
    with Raw(server.path) as client:
        id = client.request("send", agent="a", body="done", wait=True)
        assert gate.entered.wait(PATIENCE)
        gate.opened.set()
        agent.when_idle().result(PATIENCE)
        assert server.close()
        assert client.frame() == (id, "ok", {"message": 1, "result": "done"})


def test_a_close_does_not_wait_for_clients_that_do_not_read(
    system: dsh.ActorSystem, folder: Path
) -> None:
    system.create(lambda turn, message: "x" * message, id="large")
    server = ControlServer(system, limits=Limits(linger=0.05))
    server.start()
    with Raw(server.path) as stalled, Raw(server.path) as watcher:
        watcher.request("watch")
        stalled.request("send", agent="large", body=8 << 20, wait=True)
        with ControlClient.connect() as client:
            client.call("idle", agent="large")
        assert server.close()
        assert watcher.frame() is not None


def test_a_close_from_its_own_thread_does_not_wait_for_itself(
    system: dsh.ActorSystem, folder: Path
) -> None:
    closed: list[bool] = []

    def shutdown(grace: float | None) -> Any:
        closed.append(server.close())
        return system.shutdown(grace)

    server = ControlServer(system, shutdown=shutdown)
    server.start()
    with Raw(server.path) as client:
        client.request("shutdown")
        while client.frame() is not None:  # its answer, or that there will be none; and the end
            pass
    assert closed[0] is False
    assert server.close()


def test_a_listener_that_holds_up_a_verb_does_not_hold_up_the_close(
    system: dsh.ActorSystem, folder: Path, gate: Gate
) -> None:
    listening = Gate()

    def listener(event: Any) -> None:
        listening.entered.set()
        listening.opened.wait(PATIENCE)

    system.create(gate.behaviour, id="a").agent.send(1)
    assert gate.entered.wait(PATIENCE)
    remove = system.on("cancel_requested", listener)
    server = ControlServer(system)
    server.start()
    path = server.path
    assert path is not None
    with Raw(path) as client:
        client.request("interrupt", agent="a")
        assert listening.entered.wait(PATIENCE)
        assert server.close(timeout=-0.95) is False  # it says so, and does not hang
        assert not path.exists()
        listening.opened.set()
        remove()
        assert server.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_own_it(server: ControlServer, system: dsh.ActorSystem) -> None:
    path = server.path
    assert path is not None
    with Raw(path) as client:
        client.request("watch")
        assert client.frame() is not None
        assert server._loop is not None
        opened = [
            server._endpoint.listener.fileno() if server._endpoint else -1,
            server._loop._bell.fileno(),
            *(each.socket.fileno() for each in server._loop._connections),
        ]
        inodes = {os.fstat(number).st_ino for number in opened}
        child = os.fork()
        if child == 0:  # pragma: no cover (the coverage of a forked child is not collected)
            code = 1
            try:
                kept = set()
                for number in range(256):
                    try:
                        kept.add(os.fstat(number).st_ino)
                    except OSError:
                        continue
                try:
                    server.start()
                except dsh.ForkedSystemError:
                    code = 0 if server.close() and not kept & inodes else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert path.exists()
        client.ids += 1
        assert client.ask("tree")["system"] == system.id


def test_a_program_that_forgets_to_close_leaves_nothing(folder: Path) -> None:
    code = (
        "import dsh_actors as dsh\n"
        "from dsh_actors.control import ControlServer\n"
        "system = dsh.ActorSystem(workers=1)\n"
        "server = ControlServer(system)\n"
        "server.start()\n"
        "import os\n"
        "print(sorted(os.listdir(server.path.parent)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert ".sock" in ran.stdout
    assert ran.stderr == ""
    assert os.listdir(folder) == []


def test_a_long_folder_gets_a_short_name(system: dsh.ActorSystem, tmp_path: Path) -> None:
    room = MAX_SOCKET_PATH - len(str(tmp_path)) - len("//0123456789abcdef.sock")
    folder = tmp_path / ("d" * room)
    with ControlServer(system, folder=folder) as server:
        assert server.path is not None
        assert len(server.path.name) == 21
        with ControlClient.connect(system.id, folder=folder) as client:
            assert client.hello["system"] == system.id
    with pytest.raises(ControlError, match="set DSH_ACTORS_HOME to a folder with a shorter path"):
        ControlServer(system, folder=tmp_path / ("d" * (room + 1))).start()


def test_a_system_with_an_odd_name(folder: Path) -> None:
    with (
        dsh.ActorSystem(workers=1, name="../ü b/c") as system,
        ControlServer(system) as server,
        ControlClient.connect(Path(str(server.path))) as client,
    ):
        assert server.path is not None
        assert server.path.parent == folder
        assert client.hello["name"] == "../ü b/c"
        assert [found.name for found in running_systems()] == ["../ü b/c"]


def test_who_is_at_the_other_end() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        assert peer_uid(mine) == os.geteuid()
