"""What several verbs do with the tree of a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dsh_actors.config import AgentSpec, TreeSpec
    from dsh_actors.errors import ConfigError

__all__ = ["load", "misnamed", "walk"]

_FAULT = "BehaviourError: "


def load(
    tree: str, *, config: Sequence[str] = (), settings: Sequence[str] = (), prompt: Any = None
) -> TreeSpec:
    """Read a tree file, with everything that is laid over it.

    Parameters:
        tree: the file.
        config: the files of `--config`, in order.
        settings: what `--set` gave, as `KEY=VALUE`, in order.
        prompt: unless None, the prompt of the first root agent.

    Raises:
        ConfigError: a file or a setting is wrong.
    """
    from dataclasses import replace

    from dsh_actors.config import OverlayFile, load_tree, overlay_places

    places = list(overlay_places(tree))
    found = [OverlayFile(place.path, place.level) for place in places if place.found]
    spec = load_tree(tree, prompt=prompt, overlays=[*found, *config], settings=settings)
    refused = tuple(f"{p.path} is not used: {p.refusal}" for p in places if p.refusal)
    return replace(spec, notices=refused + spec.notices) if refused else spec


def walk(agents: Iterable[AgentSpec]) -> Iterator[AgentSpec]:
    """Yield the agents and all those below them, each before its children."""
    for agent in agents:
        yield agent
        yield from walk(agent.children)


def misnamed(spec: TreeSpec, error: str) -> ConfigError | None:
    """Return the error in the file, if `error` says that a behaviour named in it is unusable.

    A behaviour may be imported in a worker only, so that the fault comes back as an agent that
    failed; it is a fault of the file all the same. A behaviour that asks for another one by a
    wrong name is not: that name does not stand in the file.

    Parameters:
        spec: the tree.
        error: the message of a `BehaviourError`, perhaps with the type's name before it.
    """
    from dsh_actors.errors import ConfigError

    message = error.removeprefix(_FAULT)
    for agent in walk(spec.agents):
        if message.startswith(f"behaviour {agent.behaviour!r}"):
            file, line = spec.path, agent.line
            origin = spec.origins and spec.origins.of("agents", agent.id, "behaviour")
            if origin and os.path.abspath(origin.file) != spec.path:
                file, line = origin  # an overlay has put it there
            return ConfigError(f"agent {agent.id!r}: {message}", file=file, line=line or None)
    return None
