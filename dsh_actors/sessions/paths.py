"""Where the session store lives unless the user says otherwise."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsh_actors.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["default_store_path", "state_dir"]


def state_dir() -> Path:
    """Return the folder for what must survive a restart. It is not created here.

    ``$DSH_ACTORS_HOME/state`` if that variable is set, else ``$XDG_STATE_HOME/dsh-actors``, else
    ``~/.local/state/dsh-actors``. As the XDG specification asks, a relative ``XDG_STATE_HOME``
    is ignored.

    Raises:
        StoreError: there is no home folder to put it in.
    """
    from pathlib import Path

    home = os.environ.get("DSH_ACTORS_HOME")
    if home:
        return Path(os.path.abspath(os.path.expanduser(home)), "state")
    state_home = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state_home):
        return Path(state_home, "dsh-actors")
    user = os.path.expanduser("~")
    if not os.path.isabs(user):
        raise StoreError("no home folder for the session store; set DSH_ACTORS_HOME to a folder")
    return Path(user, ".local", "state", "dsh-actors")


def default_store_path() -> Path:
    """Return the path of the default store, ``sessions.db`` in the state folder."""
    return state_dir() / "sessions.db"
