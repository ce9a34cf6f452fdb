"""The limits of agents and workers, from what a tree file and its overlays state."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dsh_actors.config.spec import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.config.document import Path
    from dsh_actors.config.layers import Layer, Stated
    from dsh_actors.lifecycle.policy import Policy

__all__ = ["POLICY_KEYS", "EffectivePolicy", "parse_duration", "read_budget", "read_worker_limits"]

POLICY_KEYS = {
    "tools": "tools",
    "paths": "paths",
    "network": "network",
    "isolation": "isolation",
    "depth": "max_depth",
}
"""The fields of a ``Policy``, by their keys in a file."""


class EffectivePolicy:
    """The meet of all that is stated of an agent's policy: no layer allows what another does not.

    Parameters:
        agent: the agent's id.

    Attributes:
        policy: the meet; None if nothing is stated.
        origins: where each key of it was last narrowed.
        notices: where a layer asks for more than it gets.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.policy: Policy | None = None
        self.origins: dict[str, Origin] = {}
        self.notices: list[str] = []

    def state(self, stated: Stated, substitute: Callable[[Any, Stated], Any]) -> None:
        """Take in what the next layer states.

        Parameters:
            stated: by which layer, where, and what.
            substitute: puts the parameters in.

        Raises:
            ConfigError: a path in it is none once the parameters are in.
        """
        from dsh_actors.lifecycle.policy import Policy

        fields = dict(stated.value)
        if "paths" in fields:
            fields["paths"] = [
                _absolute(stated, index, path)
                for index, path in enumerate(substitute(fields["paths"], stated))
            ]
        asked = Policy(**{POLICY_KEYS[key]: value for key, value in fields.items()})
        before = self.policy
        after = asked if before is None else before.meet(asked)
        self.policy = after
        denied = []
        for key in fields:
            name = POLICY_KEYS[key]
            value = getattr(after, name)
            if before is None or getattr(before, name) != value or key not in self.origins:
                place = (*stated.path, key)
                self.origins[key] = Origin(stated.layer.file, stated.layer.line_of(place))
            if getattr(asked, name) != value:
                denied.append(key)
        if denied:
            where = Origin(stated.layer.file, stated.layer.line_of(stated.path, key=True))
            self.notices.append(
                f"{where}: 'policy' of agent {self._agent!r} asks for more than is allowed "
                f"without it, and does not get that ({', '.join(denied)})"
            )


def _absolute(stated: Stated, index: int, path: Any) -> str:
    layer: Layer = stated.layer
    if not isinstance(path, str) or not path or "\0" in path:
        place: Path = (*stated.path, "paths", index)
        raise layer.error(f"{layer.name_of(place)}: {path!r} is no path", place)
    return os.path.normpath(os.path.join(layer.folder, os.path.expanduser(path)))


def read_budget(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a valid budget as plain data, with its time in seconds."""
    if "wall" in fields:
        return {**fields, "wall": parse_duration(fields["wall"])}
    return dict(fields)


def read_worker_limits(fields: dict[str, Any]) -> dict[str, int]:
    """Return valid limits of worker processes with sizes in bytes, without those erased."""
    return {key: parse_size(value) for key, value in fields.items() if value is not None}


def parse_size(value: int | str) -> int:
    """Return a valid size (``512MiB``, ``1.5GiB`` or a number) in bytes."""
    if not isinstance(value, str):
        return value
    from dsh_actors.config.grammar import SIZE_UNITS

    return int(float(value[:-3]) * SIZE_UNITS[value[-3:]])


def parse_duration(value: float | str) -> float:
    """Return a valid duration (``5s``, ``500ms``, ``2m``, ``1h`` or a number) in seconds."""
    if not isinstance(value, str):
        return float(value)
    from dsh_actors.config.grammar import UNITS

    number = value.rstrip("msh")
    return float(number) * UNITS[value[len(number) :]]
