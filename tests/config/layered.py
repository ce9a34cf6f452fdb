"""A tree file and what is laid over it, for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.config import OverlayFile, TreeSpec, load_tree

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_actors.config import AgentSpec

TREE = """\
version: 1
name: census
system: {workers: 2, stop_grace: 5s}
parameters:
  root: {type: path, default: src}
  limit: {type: int, default: 3}
agents:
  - id: census
    behaviour: ./agents.py:census
    restart: transient
    prompt: {root: "${root}", deep: {a: 1, b: 2}}
    args: {model: {provider: one, route: fast}, limit: "${limit}"}
    children:
      - id: helper.one
        behaviour: ./agents.py:helper
        isolation: own
        args: {x: 1, y: {z: 2}}
"""


class Layered:
    """Writes files into a folder and loads them.

    Parameters:
        folder: for all of them.
        tree: the text of the tree file.
    """

    def __init__(self, folder: Path, tree: str = TREE) -> None:
        self.folder = folder
        self.tree = self.write("tree.yaml", tree)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def overlay(self, text: str, name: str = "over.yaml") -> Path:
        return self.write(name, f"version: 1\n{text}")

    def load(self, *overlays: str | Path | OverlayFile, **more: Any) -> TreeSpec:
        """Load the tree; a text is the text of an overlay, without its version."""
        files = [
            self.overlay(overlay, f"over{number}.yaml") if isinstance(overlay, str) else overlay
            for number, overlay in enumerate(overlays)
        ]
        return load_tree(self.tree, overlays=files, **more)


def agent(spec: TreeSpec, name: str) -> AgentSpec:
    """The agent with this id, wherever it stands."""
    waiting = list(spec.agents)
    while waiting:
        found = waiting.pop()
        if found.id == name:
            return found
        waiting += found.children
    raise AssertionError(f"there is no agent {name!r}")
