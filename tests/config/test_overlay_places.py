"""Where the overlays of the system, the user and the project are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsh_actors.config import find_overlays, load_tree, overlay_places


@pytest.fixture(autouse=True)
def _nothing_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    for name in ("DSH_ACTORS_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("version: 1\n", encoding="utf-8")
    return path


def test_system_then_user_then_project(tmp_path: Path) -> None:
    tree = make(tmp_path / "work" / "tree.yaml")
    system = make(tmp_path / "xdg" / "dsh-actors" / "config.yaml")
    user = make(tmp_path / "home" / ".config" / "dsh-actors" / "config.yaml")
    project = make(tmp_path / "work" / ".dsh-actors.yaml")
    assert [(Path(found), found.level) for found in find_overlays(tree)] == [
        (system, "system"),
        (user, "user"),
        (project, "project"),
    ]


def test_nothing_is_there(tmp_path: Path) -> None:
    assert find_overlays(tmp_path / "tree.yaml") == []
    assert [place.level for place in overlay_places(tmp_path / "tree.yaml")] == [
        "system",
        "user",
        "project",
    ]


def test_the_most_important_folder_of_the_system_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path / "first" / "dsh-actors" / "config.yaml")
    second = make(tmp_path / "second" / "dsh-actors" / "config.yaml")
    dirs = [tmp_path / "first", "relative", tmp_path / "second"]
    monkeypatch.setenv("XDG_CONFIG_DIRS", os.pathsep.join(map(str, dirs)))
    assert [Path(found) for found in find_overlays(tmp_path / "t.yaml")] == [second, first]


def test_the_variables_that_move_the_file_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = make(tmp_path / "config" / "dsh-actors" / "config.yaml")
    own = make(tmp_path / "own" / "config.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert [Path(found) for found in find_overlays("t.yaml")] == [moved]
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path / "own"))
    assert [Path(found) for found in find_overlays("t.yaml")] == [own]
    monkeypatch.delenv("DSH_ACTORS_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert find_overlays("t.yaml") == []


def test_the_nearest_file_above_within_the_repository(tmp_path: Path) -> None:
    tree = make(tmp_path / "repository" / "a" / "b" / "tree.yaml")
    outside = make(tmp_path / ".dsh-actors.yaml")
    assert find_overlays(tree) == []  # without a repository, nothing above belongs to it
    (tmp_path / "repository" / ".git").mkdir()
    assert find_overlays(tree) == []
    root = make(tmp_path / "repository" / ".dsh-actors.yaml")
    assert [Path(found) for found in find_overlays(tree)] == [root]
    nearer = make(tmp_path / "repository" / "a" / ".dsh-actors.yaml")
    assert [Path(found) for found in find_overlays(tree)] == [nearer]
    beside = make(tmp_path / "repository" / "a" / "b" / ".dsh-actors.yaml")
    assert [Path(found) for found in find_overlays(tree)] == [beside]
    assert outside.exists()


def test_a_repository_that_is_a_worktree_ends_it_too(tmp_path: Path) -> None:
    """There ``.git`` is a file."""
    tree = make(tmp_path / "worktree" / "a" / "tree.yaml")
    (tmp_path / "worktree" / ".git").write_text("gitdir: elsewhere", encoding="utf-8")
    root = make(tmp_path / "worktree" / ".dsh-actors.yaml")
    make(tmp_path / ".dsh-actors.yaml")
    assert [Path(found) for found in find_overlays(tree)] == [root]


def test_the_search_ends_at_the_home_folder(tmp_path: Path) -> None:
    tree = make(tmp_path / "home" / "trees" / "tree.yaml")
    make(tmp_path / ".dsh-actors.yaml")
    assert find_overlays(tree) == []
    at_home = make(tmp_path / "home" / ".dsh-actors.yaml")
    assert [Path(found) for found in find_overlays(tree)] == [at_home]


def test_a_file_of_a_stranger_is_not_used_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make(tmp_path / "tree.yaml")
    planted = make(tmp_path / ".dsh-actors.yaml")
    real = os.stat

    def owned_by_a_stranger(path: str) -> os.stat_result:
        found = real(path)
        if os.fspath(path) != str(planted):
            return found
        return os.stat_result((*found[:4], 54321, *found[5:10]))

    monkeypatch.setattr("dsh_actors.config.overlays.os.stat", owned_by_a_stranger)
    assert find_overlays(tree) == []
    *_, place = overlay_places(tree)
    assert (place.path, place.refusal) == (str(planted), "it belongs to another user")


def test_a_library_reads_no_file_that_it_is_not_given(tmp_path: Path) -> None:
    tree = tmp_path / "tree.yaml"
    tree.write_text("version: 1\nagents: [{id: a, behaviour: 'm:f'}]", encoding="utf-8")
    (tmp_path / ".dsh-actors.yaml").write_text("not: valid", encoding="utf-8")
    assert load_tree(tree).agents[0].id == "a"
