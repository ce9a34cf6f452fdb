"""The folder of the sockets is the user's alone, or it is not used."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dsh_actors.control.folder import (
    MAX_SOCKET_PATH,
    check_folder,
    make_folder,
    runtime_dir,
    socket_path,
)
from dsh_actors.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_dir() == tmp_path / "home" / "run"
    monkeypatch.delenv("DSH_ACTORS_HOME")
    assert runtime_dir() == tmp_path / "dsh-actors"
    own = Path("/tmp", f"dsh-actors-{os.geteuid()}")
    for useless in ("relative/path", str(tmp_path / "missing"), ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", useless)
        assert runtime_dir() == own


def test_it_is_made_for_its_owner_alone(tmp_path: Path, no_umask: None) -> None:
    folder = tmp_path / "new" / "run"
    make_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    make_folder(folder)


def test_a_narrow_umask_does_not_lock_the_owner_out(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        make_folder(tmp_path / "run")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_one_that_is_missing_is_just_not_there(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "run") is False


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o720])
def test_one_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ControlError, match=f"mode 0{mode:o}.*chmod 700") as refused:
        make_folder(folder)
    assert refused.value.type_name == "UnsafeFolder"
    assert stat.S_IMODE(folder.stat().st_mode) == mode  # it is for the user to say what is right


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with pytest.raises(ControlError, match="is a symbolic link"):
        make_folder(tmp_path / "run")
    (tmp_path / "real").rmdir()
    with pytest.raises(ControlError, match="is a symbolic link"):
        make_folder(tmp_path / "run")  # also one that leads nowhere


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(ControlError, match="is not a folder"):
        make_folder(tmp_path / "run")


def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(ControlError, match="belongs to another user"):
        make_folder(folder)


def test_one_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ControlError, match=r"file/run: .* cannot be created: File exists"):
        make_folder(tmp_path / "file" / "run")


def test_the_name_of_a_socket(tmp_path: Path) -> None:
    assert socket_path(Path("/r"), "dsh-1-ab") == Path("/r/dsh-1-ab.sock")
    for odd in ("a/b-1-ab", "../x", ".hidden", "ü-1-ab", "x" * 200, ""):
        path = socket_path(Path("/r"), odd)
        assert path.parent == Path("/r")
        assert len(path.name) == 21
        assert path == socket_path(Path("/r"), odd)


def test_a_long_path_gets_a_short_name_and_a_longer_one_is_refused() -> None:
    room = MAX_SOCKET_PATH - len("/x/" + "0" * 16 + ".sock")
    path = socket_path(Path("/" + "x" * room), "some-system-1234-abcdef01")
    assert len(str(path)) <= MAX_SOCKET_PATH
    with pytest.raises(ControlError, match=r"socket takes .* set DSH_ACTORS_HOME") as refused:
        socket_path(Path("/" + "x" * (room + 2)), "some-system-1234-abcdef01")
    assert refused.value.type_name == "PathTooLong"
