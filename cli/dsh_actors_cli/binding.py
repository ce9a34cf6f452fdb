"""Which session each agent of a tree file is bound to: decided before anything is started.

The launcher mints the sessions of a new run, and chooses those of one that is resumed. The ids
go to the system as slots, keyed by the agent of the file, and everything that shows one takes it
from there. The files of a run cannot say anything about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import SessionNotFound, UsageError
from dsh_actors.slots import NO_SLOTS, LaunchIdentity, Slots
from dsh_actors_cli.arguments import launch_record
from dsh_actors_cli.exit_line import exit_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

    from dsh_actors.config import TreeSpec
    from dsh_actors.sessions import Event, SessionHeader, SqliteReader
    from dsh_actors_cli.arguments import Options

__all__ = ["Binding", "bind"]

_IDENTITIES = "sessions"
"""In the record of a launch: the session of each root, by the agent's id."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a run is bound to.

    Attributes:
        slots: for the system.
        session_id: of the run: of the root that is resumed, or is asked first; empty if no
            sessions are kept.
        agent_id: the root that has this session.
        logs: the events of the sessions that are resumed, as they were found, by agent.
    """

    slots: Slots
    session_id: str
    agent_id: str
    logs: Mapping[str, Sequence[Event]] = field(default_factory=dict)

    @property
    def sessions(self) -> dict[str, str]:
        """The sessions of all roots, by the agent's id; that of the run first."""
        identities = self.slots.identities
        first = {self.agent_id: self.session_id} if self.session_id else {}
        return first | {agent: identity.id for agent, identity in identities.items()}


def bind(
    options: Options, spec: TreeSpec, hand_over: Callable[[str], NoReturn] | None = None
) -> Binding:
    """Decide on the sessions of a run. Nothing is written.

    Parameters:
        options: of the run.
        spec: the tree.
        hand_over: replaces this process by one that resumes a session; for the slot.

    Raises:
        SessionNotFound: the session to resume is not there.
        UsageError: it cannot be resumed with this tree.
        StoreError: the store cannot be read.
    """
    from dsh_actors.config import MISSING

    if options.resume is not None:
        return _bind_again(options, options.resume, spec, hand_over)
    first = next(agent.id for agent in spec.agents if agent.prompt is not MISSING)
    if not options.keep:
        return Binding(Slots(hand_over=hand_over) if hand_over else NO_SLOTS, "", first)
    return _binding(options, _minted(spec), first, hand_over)


def _binding(
    options: Options,
    identities: Mapping[str, LaunchIdentity],
    agent_id: str,
    hand_over: Callable[[str], NoReturn] | None,
    logs: Mapping[str, Sequence[Event]] | None = None,
) -> Binding:
    session_id = identities[agent_id].id
    record = launch_record(options)
    record[_IDENTITIES] = {agent: identity.id for agent, identity in identities.items()}
    slots = Slots(identities, exit_line(options, session_id), hand_over, record)
    return Binding(slots, session_id, agent_id, logs or {})


def _minted(spec: TreeSpec) -> dict[str, LaunchIdentity]:
    from dsh_actors.sessions.ids import new_session_id

    return {agent.id: LaunchIdentity(new_session_id(), resume=False) for agent in spec.agents}


def _bind_again(
    options: Options, wanted: str, spec: TreeSpec, hand_over: Callable[[str], NoReturn] | None
) -> Binding:
    """Bind a run to a session that is there, found by its id or the beginning of it.

    The other roots of that run go on as well, each in the session that it had. One that had not
    come so far as to have one gets it now, as does one that is new in the file. Beside a fork
    they are new, since those of its origin go on beside the origin.
    """
    from dsh_actors.sessions import SqliteReader, default_store_path
    from dsh_actors.sessions.ids import new_session_id

    path = options.store or default_store_path()
    if not wanted or (options.store is None and not path.exists()):
        raise SessionNotFound(f"{path}: no session {wanted!r}; there are none yet")
    with SqliteReader(path) as reader:
        header, events, _ = reader.load(reader.resolve(wanted))
        _check(header, spec, options)
        known = _recorded(header)
        identities = {}
        logs: dict[str, Sequence[Event]] = {}
        for agent in (each.id for each in spec.agents):
            id = header.id if agent == header.agent_id else known.get(agent)
            found = events if agent == header.agent_id else _events(reader, id)
            if found is not None:
                logs[agent] = found
            identities[agent] = LaunchIdentity(id or new_session_id(), resume=found is not None)
    return _binding(options, identities, header.agent_id, hand_over, logs)


def _events(reader: SqliteReader, session_id: str | None) -> Sequence[Event] | None:
    """Return the events of a session, or None if there is no such session."""
    if session_id is None:
        return None
    try:
        return reader.load(session_id).events
    except SessionNotFound:
        return None


def _check(header: SessionHeader, spec: TreeSpec, options: Options) -> None:
    if header.parent is not None:
        raise UsageError(
            f"session {header.id} is that of a child, {header.agent_id!r}; it comes back with "
            f"its root, so resume that: {header.root}"
        )
    roots = [agent.id for agent in spec.agents]
    if header.agent_id not in roots:
        raise UsageError(
            f"session {header.id} is that of agent {header.agent_id!r}, but the roots of "
            f"{options.tree} are {', '.join(roots)}; give the tree file that it was run with"
        )


def _recorded(header: SessionHeader) -> dict[str, str]:
    """Return the sessions of a run's roots, as they were recorded with one of them."""
    launch: Any = header.options.get("launch")
    known = launch.get(_IDENTITIES) if isinstance(launch, dict) else None
    if header.forked_from is not None or not isinstance(known, dict):
        return {}
    return {agent: id for agent, id in known.items() if isinstance(id, str)}
