"""Where the files are that are laid over a tree file.

    system      ``dsh-actors/config.yaml`` in each folder of ``$XDG_CONFIG_DIRS`` (``/etc/xdg``)
    user        ``$DSH_ACTORS_HOME/config.yaml``, else ``$XDG_CONFIG_HOME/dsh-actors/config.yaml``
    project     ``.dsh-actors.yaml`` beside the tree file, or in the nearest folder above it

Files of these three levels serve many trees; what they say of agents that a tree does not have is
passed over. A file that a user names, with ``--config``, is meant for the tree at hand, and each
of its ids has to be there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Level", "OverlayFile", "OverlayPlace", "find_overlays", "overlay_places"]

Level: TypeAlias = Literal["system", "user", "project", "config"]
PROJECT_FILE = ".dsh-actors.yaml"


class OverlayFile(NamedTuple):
    """A file to lay over a tree file. It can be used wherever a path can.

    Parameters:
        path: of the file.
        level: on whose behalf it is there.
    """

    path: str
    level: Level = "config"

    def __fspath__(self) -> str:
        return self.path


class OverlayPlace(NamedTuple):
    """A place where an overlay may be.

    Parameters:
        path: of the file.
        level: on whose behalf it would be there.
        found: whether it is there and may be used.
        refusal: why it is not used although it is there.
    """

    path: str
    level: Level
    found: bool
    refusal: str = ""


def find_overlays(tree: str | os.PathLike[str]) -> list[OverlayFile]:
    """Return the overlays of the system, the user and the project, in the order of their use.

    Parameters:
        tree: the tree file; it need not exist.
    """
    return [OverlayFile(place.path, place.level) for place in overlay_places(tree) if place.found]


def overlay_places(tree: str | os.PathLike[str] | Path) -> Iterator[OverlayPlace]:
    """Yield every place where an overlay is looked for, in the order of their use.

    The folders of ``$XDG_CONFIG_DIRS`` come with the most important one last. Relative folders in
    the variables are passed over, as the XDG specification asks.
    """
    folders = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for folder in reversed(folders.split(os.pathsep)):
        if os.path.isabs(folder):
            yield _place(os.path.join(folder, "dsh-actors", "config.yaml"), "system")
    user = _user_file()
    if user:
        yield _place(user, "user")
    yield _project_place(os.path.abspath(os.fspath(tree)))


def _place(path: str, level: Level) -> OverlayPlace:
    return OverlayPlace(path, level, os.path.exists(path))


def _user_file() -> str:
    home = os.environ.get("DSH_ACTORS_HOME")
    if home:
        return os.path.join(os.path.abspath(os.path.expanduser(home)), "config.yaml")
    config_home = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config_home):
        config_home = os.path.expanduser(os.path.join("~", ".config"))
    # There may be no home folder at all, in a container; then there is no such file either.
    return os.path.join(config_home, "dsh-actors", "config.yaml") if config_home[0] == "/" else ""


def _project_place(tree: str) -> OverlayPlace:
    """Look beside the tree file, then upwards to the root of its repository or the home folder.

    A tree file that is in neither has no folders above it that belong to the same project: in
    ``/tmp``, for one, a stranger could put a file. For the same reason the file has to belong to
    the user, to root, or to the owner of the tree file, who decides about everything anyway.
    """
    folder = os.path.dirname(tree)
    beside = os.path.join(folder, PROJECT_FILE)
    nearest = beside if os.path.exists(beside) else _above(folder)
    if nearest and not _is_trusted(nearest, tree):
        return OverlayPlace(nearest, "project", False, "it belongs to another user")
    return OverlayPlace(nearest or beside, "project", bool(nearest))


def _above(folder: str) -> str:
    """Return the nearest project file above a folder, within its repository or the home folder."""
    home = os.path.expanduser("~")
    nearest = ""
    while folder != home and not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above
        path = os.path.join(folder, PROJECT_FILE)
        if not nearest and os.path.exists(path):
            nearest = path
    return nearest


def _is_trusted(path: str, tree: str) -> bool:
    owners = {0, os.getuid()}
    try:
        owners.add(os.stat(tree).st_uid)
        return os.stat(path).st_uid in owners
    except OSError:
        return True  # whoever reads it says what is wrong
