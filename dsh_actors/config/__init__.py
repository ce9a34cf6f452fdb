"""Configuration: the tree file, and what is laid over it, validated, with the file and the line
in every error.

``spec`` is the plain result; ``load`` reads files into it. PyYAML and pydantic are imported
only when a file is read.
"""

from __future__ import annotations

from dsh_actors.config.effective import effective_tree
from dsh_actors.config.load import load_tree, read_overlay
from dsh_actors.config.overlays import OverlayFile, OverlayPlace, find_overlays, overlay_places
from dsh_actors.config.schema import json_schema
from dsh_actors.config.spec import (
    MISSING,
    AgentSpec,
    Origin,
    Origins,
    ParameterSpec,
    SystemSpec,
    TreeSpec,
)

__all__ = [
    "MISSING",
    "AgentSpec",
    "Origin",
    "Origins",
    "OverlayFile",
    "OverlayPlace",
    "ParameterSpec",
    "SystemSpec",
    "TreeSpec",
    "effective_tree",
    "find_overlays",
    "json_schema",
    "load_tree",
    "overlay_places",
    "read_overlay",
]
