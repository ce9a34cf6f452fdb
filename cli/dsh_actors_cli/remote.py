"""Finds the running system or agent that a verb is about, and says what there is otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.errors import ControlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dsh_actors.control import ControlClient, RunningSystem
    from dsh_actors.system import TreeNode

__all__ = ["Remote", "find_agent", "find_system", "nodes_of", "tree_nodes"]

# How many names an error lists.
_MOST = 5


class Remote:
    """An agent in a running system, with a connection to it. A context manager.

    Parameters:
        client: connected to the system; it is closed with this.
        system: the id of the system.
        agent: the id of the agent.
    """

    def __init__(self, client: ControlClient, system: str, agent: str) -> None:
        self.client, self.system, self.agent = client, system, agent

    @property
    def name(self) -> str:
        """What names the agent among all systems."""
        return f"{self.system}/{self.agent}"

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


def find_system(wanted: str | None) -> RunningSystem:
    """Return the running system that is meant.

    Parameters:
        wanted: its id, as far as it is the only such one, or its name; None for the only one.

    Raises:
        UsageError: there is none or more than one; it names them.
    """
    from dsh_actors.control import running_systems

    systems = running_systems()
    if wanted is None:
        found = systems
    else:
        found = [s for s in systems if s.id == wanted] or [
            s for s in systems if s.id.startswith(wanted)
        ]
    if len(found) == 1:
        return found[0]
    if not systems:
        what = "no system" if wanted is None else f"no system {wanted!r}, nor any other,"
        raise UsageError(
            f"{what} is running here; 'dsh-actors run TREE --detach' starts one in the background"
        )
    names = _listing(system.id for system in found or systems)
    if wanted is None:
        raise UsageError(f"several systems are running; say which: {names}")
    if found:
        raise UsageError(f"{wanted!r} could be {names}; type more of the id")
    from dsh_actors_cli.app import nearest

    raise UsageError(f"no system {wanted!r} is running{nearest(wanted, [s.id for s in systems])}")


def find_agent(wanted: str) -> Remote:
    """Return the live agent that is meant, with a connection to its system.

    Parameters:
        wanted: ``SYSTEM/AGENT``, where the system's id may be cut short; or the agent's id, if
            there is only one such agent in all running systems.

    Raises:
        UsageError: there is no such agent, or several; it names them, or the nearest one.
    """
    from dsh_actors.control import running_systems

    systems = running_systems()
    if not systems:
        find_system(None)
    clients = _Clients()
    try:
        found = [
            (system, agent)
            for system in systems
            for agent in _names_in(system, wanted)
            if clients.has(system, agent)
        ]
        if len(found) == 1:
            system, agent = found[0]
            return Remote(clients.take(system), system.id, agent)
        if found:
            names = _listing(f"{system.id}/{agent}" for system, agent in found)
            raise UsageError(f"{wanted!r} is alive in several systems; say which: {names}")
        raise UsageError(_no_agent(wanted, systems, clients))
    finally:
        clients.close()


class _Clients:
    """A connection to each system that was asked for something, made when it is needed."""

    def __init__(self) -> None:
        self._open: dict[str, ControlClient] = {}

    def get(self, system: RunningSystem) -> ControlClient:
        from dsh_actors.control import ControlClient

        client = self._open.get(system.id)
        if client is None:
            client = self._open[system.id] = ControlClient.connect(system.path)
        return client

    def has(self, system: RunningSystem, agent: str) -> bool:
        """Return whether the agent is alive there. A system that is gone has none."""
        try:
            self.get(system).call("agent", agent=agent)
        except ControlError as error:
            if error.type_name in ("AgentGone", "NoSystem", "ConnectionLost"):
                return False
            raise
        return True

    def take(self, system: RunningSystem) -> ControlClient:
        return self._open.pop(system.id)

    def close(self) -> None:
        for client in self._open.values():
            client.close()
        self._open.clear()


def _names_in(system: RunningSystem, wanted: str) -> Iterator[str]:
    """Yield what the agent would be called in this system."""
    yield wanted
    start, slash, agent = wanted.partition("/")
    if slash and agent and start and system.id.startswith(start):
        yield agent


def _no_agent(wanted: str, systems: Sequence[RunningSystem], clients: _Clients) -> str:
    from dsh_actors_cli.app import nearest

    start, slash, _ = wanted.partition("/")
    inside = [s for s in systems if slash and start and s.id.startswith(start)]
    known: list[str] = []
    for system in inside or systems:
        try:
            tree = clients.get(system).call("tree")
        except ControlError:
            continue  # it has just ended
        prefix = f"{system.id}/" if slash else ""
        known.extend(prefix + node["id"] for node in nodes_of(tree["agents"]))
    if not known:
        return f"there is no live agent {wanted!r}, nor any other"
    if len(known) > _MOST:
        import difflib

        close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]}?" if close else "; 'dsh-actors tree' shows them"
        return f"there is no live agent {wanted!r}{hint}"
    return f"there is no live agent {wanted!r}{nearest(wanted, known)}"


def _listing(names: Iterable[str]) -> str:
    all_names = list(names)
    shown = ", ".join(all_names[:_MOST])
    more = len(all_names) - _MOST
    return f"{shown} and {more} more" if more > 0 else shown


def nodes_of(agents: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the agents of a tree as plain data, each before those below it."""
    todo = list(agents)[::-1]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(node["children"][::-1])


def tree_nodes(agents: Iterable[Mapping[str, Any]]) -> list[TreeNode]:
    """Return a tree that came as plain data as it is in the system itself."""
    from dataclasses import fields

    from dsh_actors.system import TreeNode

    known = {field.name for field in fields(TreeNode)} - {"children"}
    return [
        TreeNode(
            **{name: value for name, value in node.items() if name in known},
            children=tree_nodes(node["children"]),
        )
        for node in agents
    ]
