"""Which systems run is told by their sockets: dead ones go, living ones stay."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dsh_actors.control import ControlClient, ControlError, ControlServer, running_systems
from dsh_actors.control.discovery import Record, find_system, record_path, temporary_name
from dsh_actors.control.endpoint import Endpoint
from dsh_actors.control.folder import make_folder
from tests.control.raw import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import dsh_actors as dsh

OTHER = """
import sys
import dsh_actors as dsh
from dsh_actors.control import ControlServer
system = dsh.ActorSystem(workers=1, name=sys.argv[1])
server = ControlServer(system)
server.start()
print(system.id, flush=True)
sys.stdin.read()
"""


@contextmanager
def another(name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A system in a process of its own; gives the process and the system's id."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdin.close()
        process.stdout.close()


def test_none_is_listed_where_none_ever_was(folder: Path) -> None:
    assert running_systems() == []
    with pytest.raises(ControlError, match=r"no system is running here; start one"):
        ControlClient.connect()


def test_a_system_is_listed_as_long_as_it_is_served(system: dsh.ActorSystem, folder: Path) -> None:
    with ControlServer(system) as server:
        (found,) = running_systems()
        assert (found.id, found.pid, found.name) == (system.id, os.getpid(), "dsh")
        assert found.path == server.path == folder / f"{system.id}.sock"
        assert found.path.stat().st_mode & 0o777 == 0o600
    assert running_systems() == []
    assert list(folder.iterdir()) == []


def test_what_a_killed_system_left_is_removed_and_a_living_one_stays(folder: Path) -> None:
    with another("dead") as (process, dead), another("live") as (_, live):
        assert {found.id for found in running_systems()} == {dead, live}
        process.kill()
        process.wait(PATIENCE)
        assert [found.id for found in running_systems()] == [live]
        assert sorted(os.listdir(folder)) == [f"{live}.json", f"{live}.sock"]


def test_one_that_is_stopped_is_not_taken_for_dead(folder: Path) -> None:
    with another("frozen") as (process, frozen):
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        with pytest.raises(ControlError, match="may be stopped or overloaded") as late:
            ControlClient.connect(timeout=0.05)
        assert late.value.type_name == "Timeout"
        assert [found.id for found in running_systems()] == [frozen]
        process.send_signal(signal.SIGCONT)
        with ControlClient.connect(frozen) as client:
            assert client.hello["pid"] == process.pid


def test_one_whose_queue_is_full_is_not_taken_for_dead(folder: Path) -> None:
    make_folder(folder)
    record = Record.of_this_process("busy-1-ab", "busy", 1.0)
    endpoint = Endpoint.open(folder, record)
    clients = []
    try:
        endpoint.listener.listen(0)
        while True:  # until it takes no more
            client = socket.socket(socket.AF_UNIX)
            clients.append(client)
            client.setblocking(False)
            if client.connect_ex(str(endpoint.path)) != 0:
                break
        assert [found.id for found in running_systems()] == ["busy-1-ab"]
        with pytest.raises(ControlError, match="does not take connections"):
            ControlClient.connect(timeout=0.05)
    finally:
        for client in clients:
            client.close()
        endpoint.close()


def test_a_socket_that_outlives_its_owner_in_another_process_is_removed(folder: Path) -> None:
    make_folder(folder)
    gone = Record("gone-1-ab", "gone", os.getpid(), 1.0, Record.of_this_process("", "", 0).place, 1)
    endpoint = Endpoint.open(folder, gone)  # somebody listens, but it is not the owner
    try:
        assert running_systems() == []
        assert os.listdir(folder) == []
    finally:
        endpoint.close()


def test_what_is_not_of_this_machine_is_judged_by_its_socket_only(folder: Path) -> None:
    make_folder(folder)
    far = Record("far-1-ab", "far", 2**22 + 1, 1.0, "elsewhere", 1)
    endpoint = Endpoint.open(folder, far)
    try:
        assert [found.id for found in running_systems()] == ["far-1-ab"]
    finally:
        endpoint.listener.close()
    assert running_systems() == []
    assert os.listdir(folder) == []


def test_a_socket_without_a_record_is_asked_or_else_removed(
    server: ControlServer, system: dsh.ActorSystem, folder: Path
) -> None:
    assert server.path is not None
    for spoil in ("", "{", "[]", '{"id": 3}', "null"):
        record_path(server.path).write_text(spoil)
        assert [found.id for found in running_systems()] == [system.id]
    record_path(server.path).unlink()
    assert [found.id for found in running_systems()] == [system.id]
    stale = folder / "stale.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    assert [found.id for found in running_systems()] == [system.id]
    assert not stale.exists()


def test_rests_of_a_start_are_removed_with_their_process(folder: Path) -> None:
    make_folder(folder)
    mine = Record.of_this_process("a-1-ab", "a", 1.0)
    dead = mine._replace(id="b-1-ab", pid=2**22 + 1)
    for record in (mine, dead):
        record.write(folder / f"{record.id}.json")
    fresh = folder / temporary_name(dead)
    old = folder / temporary_name(dead)
    kept = folder / temporary_name(mine)
    for path in (fresh, old, kept):
        path.touch()
    for path in (old, kept):
        os.utime(path, (1, 1))
    (folder / "notes.txt").touch()
    assert running_systems() == []
    assert set(os.listdir(folder)) == {"a-1-ab.json", fresh.name, kept.name, "notes.txt"}


def test_a_folder_that_is_not_private_is_not_believed(server: ControlServer, folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(ControlError, match="chmod 700"):
        running_systems()
    with pytest.raises(ControlError, match="chmod 700"):
        ControlClient.connect()


def test_a_system_is_found_by_how_its_id_begins(folder: Path) -> None:
    make_folder(folder)
    ends = [
        Endpoint.open(folder, Record.of_this_process(id, id[:3], start))
        for start, id in enumerate(("abc-1-aa", "abd-1-ab", "abd-1-abc"))
    ]
    try:
        assert find_system("abc").id == "abc-1-aa"
        assert find_system("abd-1-ab").id == "abd-1-ab"  # whole, though another begins so too
        assert [found.id for found in running_systems()] == ["abc-1-aa", "abd-1-ab", "abd-1-abc"]
        with pytest.raises(
            ControlError, match=r"several begin with 'abd', .*: abd-1-ab, abd-1-abc"
        ):
            find_system("abd")
        with pytest.raises(ControlError, match="several systems are running, say which: abc-1-aa"):
            find_system(None)
        with pytest.raises(ControlError, match="no system 'x' is running; these are: abc-1-aa"):
            find_system("x")
    finally:
        for end in ends:
            end.close()


def test_nobody_takes_over_a_name_that_is_in_use(
    server: ControlServer, system: dsh.ActorSystem
) -> None:
    second = ControlServer(system)
    with pytest.raises(ControlError, match="has a control server already"):
        second.start()
    assert second.close()
    with ControlClient.connect(system.id) as client:
        assert client.hello["system"] == system.id


def test_only_the_own_socket_is_removed(system: dsh.ActorSystem, folder: Path) -> None:
    server = ControlServer(system)
    server.start()
    path = server.path
    assert path is not None
    path.unlink()
    path.write_text("of somebody else")
    server.close()
    assert path.read_text() == "of somebody else"


def test_a_start_that_fails_leaves_nothing(
    system: dsh.ActorSystem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dsh_actors.control.endpoint.os.rename", fail)
    server = ControlServer(system)
    with pytest.raises(ControlError, match="cannot be opened: No space left on device"):
        server.start()
    assert os.listdir(folder) == []
    monkeypatch.undo()
    server.start()  # it may be tried again
    assert server.close()


def test_a_record_is_read_only_if_it_makes_sense(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    good = Record.of_this_process("a-1-ab", "a", 1.0)
    good.write(path)
    assert Record.read(path) == good
    assert not good.is_gone
    for spoiled in ({"pid": "7"}, {"started": None}, {"id": 1}, {"pid_started": []}):
        path.write_text(json.dumps(good._asdict() | spoiled))
        assert Record.read(path) is None
