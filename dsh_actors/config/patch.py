"""How one entry of an overlay changes one entry of the tree.

It replaces whole top-level keys, and tells what of their nested mappings is lost. With
``merge: true`` it merges deeply instead, as RFC 7386 does: mappings merge, everything else
replaces, null deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.config.document import Path
    from dsh_actors.config.layers import Layer, Layers

__all__ = ["Patch"]


class Patch:
    """Lays parts of an overlay over parts of the tree.

    Parameters:
        layers: the tree.
        overlay: the overlay.
        merging: whether to merge deeply.
    """

    def __init__(self, layers: Layers, overlay: Layer, *, merging: bool) -> None:
        self._layers, self._overlay, self._merging = layers, overlay, merging

    def agent(self, entry: dict[str, Any], path: Path, patch: dict[str, Any], source: Path) -> None:
        """Patch the agent at a path of the tree with what stands at a path of the overlay."""
        from dsh_actors.config.layers import Stated

        for key, value in patch.items():
            if key == "policy":
                # It neither replaces nor merges: whatever is stated holds, all of it.
                stated = Stated(self._overlay, (*source, key), value)
                self._layers.state_policy(entry["id"], stated)
            elif key not in ("id", "merge"):
                self.key(entry, (*path, key), value, (*source, key))
                if key == "children" and value is not None:
                    self._layers.adopt(entry, (*path, key))

    def key(self, entry: dict[str, Any], path: Path, value: Any, source: Path) -> None:
        """Patch the value at a path of the tree, whose last key is one of the entry's."""
        if self._merging:
            self._merge(entry, path, value, source)
            return
        old = entry.get(str(path[-1]))
        keeps = "; 'merge: true' keeps what it does not mention"
        hint = keeps if isinstance(value, dict) else ""
        self._tell_dropped(old, value, path, source, hint)
        self._layers.put(entry, path, value, (self._overlay, source))

    def _merge(self, entry: dict[str, Any], path: Path, value: Any, source: Path) -> None:
        key = str(path[-1])
        old = entry.get(key)
        if value is None:
            entry.pop(key, None)
            self._layers.forget(path)
            return
        if not isinstance(value, dict):
            self._tell_dropped(old, value, path, source, "")
            self._layers.put(entry, path, value, (self._overlay, source))
            return
        if isinstance(old, dict):
            entry[key] = merged = dict(old)
        else:
            merged = {}
            self._layers.put(entry, path, merged, (self._overlay, source))
        for inner, item in value.items():
            self._merge(merged, (*path, inner), item, (*source, inner))

    def _tell_dropped(self, old: Any, new: Any, path: Path, source: Path, hint: str) -> None:
        if path[-1] == "children":
            old, new = _by_id(old), _by_id(new)
        dropped = [".".join(map(str, place)) for place in _dropped(old, new)]
        if dropped:
            where = f"{self._overlay.file}:{self._overlay.line_of(source, key=True)}"
            self._layers.notices.append(
                f"{where}: {path[-1]!r}{self._layers.owner_of(path)} replaces that of "
                f"{self._layers.origin_of(path)} and drops {', '.join(dropped)}{hint}"
            )


def _dropped(old: Any, new: Any) -> Iterator[Path]:
    """Yield where a mapping has keys that are not in what replaces it."""
    if not isinstance(old, dict):
        return
    for key, value in old.items():
        if not isinstance(new, dict) or key not in new:
            yield (key,)
        else:
            for place in _dropped(value, new[key]):
                yield (key, *place)


def _by_id(agents: Any) -> Any:
    """Return agents as mappings by their ids, so that they can be compared as such."""
    if not isinstance(agents, list):
        return agents
    return {
        entry["id"]: {
            key: _by_id(value) if key == "children" else value
            for key, value in entry.items()
            if key != "id"
        }
        for entry in agents
    }
