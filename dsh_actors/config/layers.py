"""A tree file with overlays and settings laid over it, as one document.

``Layers`` looks like a document: it has a value, and for each place in it an error that names
the file and the line where that value really stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dsh_actors.config.patch import Patch
from dsh_actors.config.spec import Origin
from dsh_actors.config.validate import known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.config.document import Document, Path
    from dsh_actors.errors import ConfigError

__all__ = ["Layer", "Layers", "Source", "Stated", "value_at"]


class Source(Protocol):
    """Something that values come from: a file, the command line, or layers of them."""

    @property
    def file(self) -> str:
        """What errors call it."""

    @property
    def value(self) -> Any:
        """All that it says."""

    def line_of(self, path: Path, *, key: bool = False) -> int:
        """Return the line of the value at a path, or of its key; 0 if there are no lines."""

    def name_of(self, path: Path) -> str:
        """Return the place of a value as errors name it."""

    def error(
        self, message: str, path: Path = (), *, key: bool = False, hint: str = ""
    ) -> ConfigError:
        """Return an error about the value at a path, or about its key."""


class Layer(Source, Protocol):
    """A source that is one file, or the command line."""

    @property
    def folder(self) -> str:
        """The folder from which relative paths in it count."""


class Stated(NamedTuple):
    """What one layer says of something."""

    layer: Layer
    path: Path
    value: Any


class Layers:
    """A valid tree file, and what is laid over it.

    Attributes:
        value: the merged tree.
        notices: what the user should know: what was dropped.
        skipped: what was passed over, since it is of agents or parameters that are not there.
    """

    def __init__(self, base: Document) -> None:
        self.file = base.file
        self.value: Any = base.value
        self.notices: list[str] = []
        self.skipped: list[str] = []
        self._origins: dict[Path, tuple[Layer, Path]] = {(): (base, ())}
        self._policies: dict[str, list[Stated]] | None = None  # by agent; None until they differ

    # -- as a document -------------------------------------------------------------------------

    def find(self, path: Path) -> tuple[Layer, Path]:
        """Return where the value at a path of the merged tree comes from."""
        for length in range(len(path), 0, -1):
            found = self._origins.get(path[:length])
            if found is not None:
                return found[0], (*found[1], *path[length:])
        return self._origins[()][0], path

    def line_of(self, path: Path, *, key: bool = False) -> int:
        """Return the line of a value in its own file."""
        layer, place = self.find(path)
        return layer.line_of(place, key=key)

    def name_of(self, path: Path) -> str:
        """Return the place of a value in its own file."""
        layer, place = self.find(path)
        return layer.name_of(place)

    def folder_of(self, path: Path) -> str:
        """Return the folder from which a relative path in a value counts."""
        return self.find(path)[0].folder

    def origin_of(self, path: Path) -> Origin:
        """Return the file and the line of a value."""
        layer, place = self.find(path)
        return Origin(layer.file, layer.line_of(place))

    def owner_of(self, path: Path) -> str:
        """Return `` of agent 'x'`` for a path into an agent, and nothing for any other."""
        if path[0] != "agents":
            return ""
        end = 2
        while path[end] == "children" and len(path) > end + 1:
            end += 2
        return f" of agent {value_at(self.value, path[:end])['id']!r}"

    def error(
        self, message: str, path: Path = (), *, key: bool = False, hint: str = ""
    ) -> ConfigError:
        """Return an error about the value at a path, or about its key."""
        layer, place = self.find(path)
        return layer.error(message, place, key=key, hint=hint)

    def policies_of(self, path: Path) -> list[Stated]:
        """Return each policy that a layer states for the agent at a path, in their order."""
        entry = value_at(self.value, path)
        if self._policies is not None:
            return self._policies.get(entry["id"], [])
        if "policy" not in entry:
            return []
        layer, place = self.find((*path, "policy"))
        return [Stated(layer, place, entry["policy"])]

    # -- laying over ---------------------------------------------------------------------------

    def apply(self, overlay: Document, *, strict: bool) -> None:
        """Lay a valid overlay over the tree.

        Parameters:
            overlay: what to lay over it.
            strict: whether each agent and each parameter that it names has to be there.

        Raises:
            ConfigError: it names one that is not there, or asks to delete what it replaces.
        """
        self.open()
        value = overlay.value
        merging = value.get("merge", False)
        patch = Patch(self, overlay, merging=merging)
        for key in ("name", "system"):
            if key in value:
                patch.key(self.value, (key,), value[key], (key,))
        for name, fields in value.get("parameters", {}).items():
            self._apply_default(overlay, name, fields["default"], strict)
        self._apply_patches(overlay, merging, strict)

    def open(self) -> None:
        """Make the upper parts of the value our own, so that they can be changed."""
        if self._policies is not None:
            return
        self.value = dict(self.value)
        self.value["agents"] = _own(self.value["agents"])
        if "parameters" in self.value:
            fields = self.value["parameters"].items()
            self.value["parameters"] = {name: dict(field) for name, field in fields}
        self._policies = {}
        self._state_policies(self.value["agents"], ("agents",))

    def agents(self) -> dict[str, Path]:
        """Return where each agent of the merged tree is, by its id."""
        return dict(_places(self.value["agents"], ("agents",)))

    def put(
        self, holder: dict[str, Any], path: Path, value: Any, origin: tuple[Layer, Path]
    ) -> None:
        """Put a value in the place of another one, of which nothing is left."""
        holder[str(path[-1])] = value
        self.forget(path)
        self._origins[path] = origin

    def forget(self, path: Path) -> None:
        """Forget where a value and all below it came from."""
        length = len(path)
        for place in [place for place in self._origins if place[:length] == path]:
            del self._origins[place]

    def state_policy(self, agent: str, stated: Stated) -> None:
        """Add what a layer says of an agent's policy."""
        assert self._policies is not None
        self._policies.setdefault(agent, []).append(stated)

    def adopt(self, holder: dict[str, Any], path: Path) -> None:
        """Make the children that an overlay has put at a path part of the tree."""
        holder["children"] = _own(holder["children"])
        self._state_policies(holder["children"], path)

    def _state_policies(self, agents: list[dict[str, Any]], path: Path) -> None:
        for index, entry in enumerate(agents):
            place = (*path, index)
            if "policy" in entry:
                layer, source = self.find((*place, "policy"))
                self.state_policy(entry["id"], Stated(layer, source, entry["policy"]))
            self._state_policies(entry.get("children", []), (*place, "children"))

    def _apply_default(self, overlay: Document, name: str, default: Any, strict: bool) -> None:
        declared = self.value.get("parameters", {})
        path = ("parameters", name)
        if name in declared:
            self.put(declared[name], (*path, "default"), default, (overlay, (*path, "default")))
            return
        error = overlay.error(
            f"parameters: the tree has no parameter {name!r}",
            path,
            key=True,
            hint=known("it has", name, declared) or "it declares none",
        )
        self._refuse(error, strict)

    def _apply_patches(self, overlay: Document, merging: bool, strict: bool) -> None:
        seen: dict[str, int] = {}
        for index, patch in enumerate(overlay.value.get("agents", [])):
            source = ("agents", index)
            name = patch["id"]
            if name in seen:
                raise overlay.error(
                    f"agent {name!r} is patched twice (also on line {seen[name]})",
                    (*source, "id"),
                    hint="write one patch for it",
                )
            seen[name] = overlay.line_of((*source, "id"))
            places = self.agents()
            if name in places:
                place = places[name]
                Patch(self, overlay, merging=patch.get("merge", merging)).agent(
                    value_at(self.value, place), place, patch, source
                )
                continue
            error = overlay.error(
                f"agents: the tree has no agent {name!r}",
                (*source, "id"),
                hint=known("it has", name, places),
            )
            self._refuse(error, strict)

    def _refuse(self, error: ConfigError, strict: bool) -> None:
        if strict:
            raise error
        self.skipped.append(str(error))


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path that is there."""
    for step in path:
        value = value[step]
    return value


def _own(agents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Copy agents as deep as they are agents."""
    return [
        {**entry, "children": _own(entry["children"])} if "children" in entry else dict(entry)
        for entry in agents
    ]


def _places(agents: list[dict[str, Any]], path: Path) -> Iterator[tuple[str, Path]]:
    for index, entry in enumerate(agents):
        place = (*path, index)
        yield entry["id"], place
        yield from _places(entry.get("children", []), (*place, "children"))
