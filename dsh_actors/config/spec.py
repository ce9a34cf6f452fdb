"""What a tree file says, as plain frozen data.

Nothing here knows of files, YAML or validation: a tree can as well be written in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MISSING",
    "AgentSpec",
    "Isolation",
    "Missing",
    "ParameterSpec",
    "Restart",
    "SystemSpec",
    "TreeSpec",
]

Isolation = Literal["inline", "pool", "own"]
Restart = Literal["permanent", "transient", "temporary"]


class Missing(Enum):
    """The type of ``MISSING``: an absent prompt, where None would be a prompt."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """Settings of the whole system.

    Parameters:
        workers: how many pooled worker processes there are; None leaves it to the system.
        stop_grace: seconds between a cancel and the end by force.
        inbox_limit: how many messages an agent's inbox takes.
        max_turns: how many turns run at a time.
    """

    workers: int | None = None
    stop_grace: float = 5.0
    inbox_limit: int = 100_000
    max_turns: int = 64


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A declared parameter of a tree.

    Parameters:
        name: its name in ``--set NAME=VALUE`` and ``${NAME}``.
        type: ``str``, ``int``, ``float``, ``bool``, ``path`` or ``json``.
        default: its value if none is given, or ``MISSING`` if one must be given.
        help: what it is for.
        line: where it is declared, counted from 1.
    """

    name: str
    type: str = "str"
    default: Any = MISSING
    help: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent to create, with its children.

    Parameters:
        id: unique in the tree.
        behaviour: ``package.module:name``, or ``/absolute/path.py:name``.
        isolation: where it lives: ``inline``, ``pool`` or ``own``.
        restart: when it is restarted: ``permanent``, ``transient`` or ``temporary``.
        prompt: its first message, or ``MISSING`` for none.
        args: arguments for its behaviour.
        children: the agents to create below it.
        line: where it is declared, counted from 1; 0 if it does not come from a file.
    """

    id: str
    behaviour: str
    isolation: Isolation = "inline"
    restart: Restart = "temporary"
    prompt: Any = MISSING
    args: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[AgentSpec, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """A tree of agents.

    Parameters:
        name: what to call it; the file's name without its ending, if the file names none.
        version: of the file's format; 1.
        system: settings of the system.
        agents: the roots.
        parameters: the declared parameters, by name.
        values: the value that each parameter has in this run, by name.
        path: the absolute path of the file; empty if there is none.
    """

    name: str
    version: int = 1
    system: SystemSpec = SystemSpec()
    agents: tuple[AgentSpec, ...] = ()
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
