"""What a tree file says, as plain frozen data.

Nothing here knows of files, YAML or validation: a tree can as well be written in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MISSING",
    "AgentSpec",
    "Interrupted",
    "Isolation",
    "Missing",
    "Origin",
    "Origins",
    "ParameterSpec",
    "Restart",
    "SystemSpec",
    "TreeSpec",
]

Isolation = Literal["inline", "pool", "own"]
Restart = Literal["permanent", "transient", "temporary"]
Interrupted = Literal["fail", "retry"]


class Missing(Enum):
    """The type of ``MISSING``: an absent prompt, where None would be a prompt."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING


class Origin(NamedTuple):
    """Where a value stands.

    Parameters:
        file: the file, or ``--set`` for the command line.
        line: counted from 1; 0 for the command line.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Origins(Protocol):
    """Where each value of a tree comes from."""

    def of(self, *path: str | int) -> Origin | None:
        """Return where a value stands; None if nobody has written it, so that it is a default.

        Parameters:
            path: ``"system", KEY``, or ``"agents", ID, KEY`` with further keys and indexes below
                it, or ``"parameters", NAME, KEY``, where the key ``value`` is what the parameter
                has in this run, or ``"name"``.
        """


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """Settings of the whole system.

    Parameters:
        workers: how many pooled worker processes there are; None leaves it to the system.
        stop_grace: seconds between a cancel and the end by force.
        inbox_limit: how many messages an agent's inbox takes.
        max_turns: how many turns run at a time.
        worker_limits: what each worker process may use, by the name of its limit.
    """

    workers: int | None = None
    stop_grace: float = 5.0
    inbox_limit: int = 100_000
    max_turns: int = 64
    worker_limits: Mapping[str, int] = field(default_factory=dict)


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
        policy: what it may do, as :meth:`dsh_actors.Policy.to_plain` writes it; None for all
            that its parent may.
        budget: what it may use, as :meth:`dsh_actors.Budget.to_plain` writes it; None for a
            share in its parent's.
        interrupted: what becomes of a prompt whose turn a crash cut off: ``fail`` or ``retry``;
            None leaves it to the behaviour.
        children: the agents to create below it.
        line: where it is declared, counted from 1; 0 if it does not come from a file.
    """

    id: str
    behaviour: str
    isolation: Isolation = "inline"
    restart: Restart = "temporary"
    prompt: Any = MISSING
    args: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None
    budget: Mapping[str, Any] | None = None
    interrupted: Interrupted | None = None
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
        notices: what the user should know before the tree runs: what an overlay drops, and
            where it asks for more than a policy allows.
        skipped: what was passed over in overlays that serve many trees, since it is of agents or
            parameters that this one does not have.
        origins: where each value comes from; None if the tree comes from no file.
    """

    name: str
    version: int = 1
    system: SystemSpec = SystemSpec()
    agents: tuple[AgentSpec, ...] = ()
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    notices: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    origins: Origins | None = field(default=None, compare=False, repr=False)
