"""What ``--set`` gives: a parameter by its name, or a value of the tree by its dotted path.

    root=src                        the parameter ``root``
    system.workers=3                a setting of the system
    agents.census.isolation=own     a key of an agent, wherever in the tree it stands
    agents.census.args.limit=10     a value inside of one; what stands beside it stays

The value of a path is YAML. All settings together are one layer, the last one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dsh_actors.config.document import read_value
from dsh_actors.config.layers import Stated, value_at
from dsh_actors.config.validate import did_you_mean, got, known
from dsh_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh_actors.config.document import Path
    from dsh_actors.config.layers import Layers

__all__ = ["Settings", "split_settings"]

_OPTION = "--set"


def split_settings(settings: Sequence[str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the parameters by name, and the paths with their values, as text.

    Raises:
        ConfigError: one is not KEY=VALUE.
    """
    parameters: dict[str, str] = {}
    paths: list[tuple[str, str]] = []
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not (equals and key):
            raise ConfigError(f"{_OPTION}: {setting!r} is not KEY=VALUE")
        if "." in key:
            paths.append((key, text))
        else:
            parameters[key] = text
    return parameters, paths


class Settings:
    """The layer of the command line. Relative paths in it count from the current folder."""

    file = _OPTION
    value: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.folder = os.getcwd()

    def line_of(self, path: Path, *, key: bool = False) -> int:
        """Return 0: there are no lines."""
        return 0

    def name_of(self, path: Path) -> str:
        """Return a path as it would be typed."""
        return ".".join(map(str, path))

    def error(
        self, message: str, path: Path = (), *, key: bool = False, hint: str = ""
    ) -> ConfigError:
        """Return an error about a setting."""
        return ConfigError(message, file=_OPTION, hint=hint)

    def apply(self, layers: Layers, settings: Sequence[tuple[str, str]]) -> None:
        """Lay the settings over a tree, one after the other.

        Raises:
            ConfigError: a path leads nowhere, or a value is not YAML.
        """
        layers.open()
        policies: dict[str, dict[str, Any]] = {}  # the entries whose policy has been set
        for dotted, text in settings:
            value = read_value(f"{_OPTION} {dotted}", text)
            entry, place, name, steps = self._entry(layers, dotted)
            if steps[0] == "policy" and name not in policies:
                # It states a policy of its own, which takes nothing from what others state.
                policies[name] = entry
                origin = (self, ("agents", name, "policy"))
                layers.put(entry, (*place, "policy"), {}, origin)
            source = ("agents", name) if name else ("system",)
            self._set(layers, entry, place, steps, value, source)
        for name, entry in policies.items():
            stated = Stated(self, ("agents", name, "policy"), entry["policy"])
            layers.state_policy(name, stated)

    def _entry(self, layers: Layers, dotted: str) -> tuple[dict[str, Any], Path, str, list[str]]:
        """Return the entry that a path leads to, its place, its id, and the rest of the path."""
        top, *steps = dotted.split(".")
        if top == "system":
            name = ""
            place: Path = ("system",)
            if "system" not in layers.value:
                layers.put(layers.value, place, {}, (self, place))
            layers.value["system"] = dict(layers.value["system"])
        elif top == "agents":
            name, place, steps = self._agent(layers, dotted, steps)
        else:
            raise self.error(
                f"{dotted}: a path begins with 'system' or 'agents'",
                hint=did_you_mean(top, ("system", "agents")),
            )
        if not all(steps) or not steps:
            raise self.error(
                f"{dotted}: the path ends too early", hint=f"write {dotted.rstrip('.')}.KEY=VALUE"
            )
        if name and steps[0] in ("id", "children"):
            raise self.error(
                f"{dotted}: {steps[0]!r} cannot be set",
                hint="give a file that replaces what is there, with --config",
            )
        return value_at(layers.value, place), place, name, steps

    def _agent(self, layers: Layers, dotted: str, steps: list[str]) -> tuple[str, Path, list[str]]:
        """Find the agent. Its id may have dots in it; the longest one that is there counts."""
        places = layers.agents()
        for length in range(len(steps), 0, -1):
            name = ".".join(steps[:length])
            if name in places:
                return name, places[name], steps[length:]
        name = steps[0] if steps else ""
        raise self.error(
            f"{dotted}: the tree has no agent {name!r}", hint=known("it has", name, places)
        )

    def _set(
        self,
        layers: Layers,
        holder: dict[str, Any],
        place: Path,
        steps: list[str],
        value: Any,
        source: Path,
    ) -> None:
        key, *rest = steps
        place, source = (*place, key), (*source, key)
        if not rest:
            layers.put(holder, place, value, (self, source))
            return
        inner = holder.get(key, {})
        if not isinstance(inner, dict):
            raise self.error(
                f"{self.name_of((*source, *rest))}: {self.name_of(source)} is {got(inner)}, "
                "no mapping"
            )
        if key in holder:
            holder[key] = inner = dict(inner)
        else:
            inner = {}
            layers.put(holder, place, inner, (self, source))
        self._set(layers, inner, place, rest, value, source)
