"""The control plane: a running system listens on a private unix socket.

with ActorSystem() as system, ControlServer(system):
    ...

with ControlClient.connect() as client:            # in another process of the same user
    print(client.call("tree"))
    for event in client.stream("watch"):
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsh_actors.control.client import ControlClient, Stream
    from dsh_actors.control.discovery import RunningSystem, running_systems
    from dsh_actors.control.folder import runtime_dir
    from dsh_actors.control.server import ControlServer
    from dsh_actors.errors import ControlError

__all__ = [
    "ControlClient",
    "ControlError",
    "ControlServer",
    "RunningSystem",
    "Stream",
    "running_systems",
    "runtime_dir",
]

_HOMES = {
    "ControlClient": "client",
    "ControlServer": "server",
    "RunningSystem": "discovery",
    "Stream": "client",
    "running_systems": "discovery",
    "runtime_dir": "folder",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and no more: a client does not need the server."""
    import importlib

    if name == "ControlError":
        from dsh_actors.errors import ControlError

        return ControlError
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
