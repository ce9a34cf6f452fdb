"""Reads a tree file, and what is laid over it, into a ``TreeSpec``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dsh_actors.codec import encode
from dsh_actors.config.document import read_document
from dsh_actors.config.layers import Layers
from dsh_actors.config.limits import parse_duration, read_budget, read_worker_limits
from dsh_actors.config.parameters import Substitution, declared_parameters, parameter_values
from dsh_actors.config.spec import MISSING, AgentSpec, Origin, SystemSpec, TreeSpec
from dsh_actors.config.validate import validate
from dsh_actors.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh_actors.config.document import Document, Path
    from dsh_actors.config.layers import Stated

__all__ = ["load_tree", "read_overlay"]


def load_tree(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, str] | None = None,
    prompt: Any = MISSING,
    overlays: Sequence[str | os.PathLike[str]] | None = None,
    settings: Sequence[str] = (),
) -> TreeSpec:
    """Read and check a tree file, with what is laid over it. No behaviour is imported.

    Nothing but the files, the arguments and the current folder has a say in the result: no
    environment variable does, and what is written in a file cannot ask for one.

    Parameters:
        path: the file.
        parameters: values for its parameters, as text, by name. Relative paths among them count
            from the current folder.
        prompt: unless ``MISSING`` or None, the prompt of the first root agent, in place of the
            file's. It is taken as it is, without replacing ``${name}`` in it.
        overlays: files to lay over it, in this order; those of :func:`find_overlays` are not
            looked for here. What an ``OverlayFile`` of the system, the user or the project says
            of agents and parameters that the tree does not have is passed over; in any other
            file it is an error.
        settings: ``NAME=VALUE`` for parameters, and ``system.KEY=VALUE`` and
            ``agents.ID.KEY=VALUE`` for what is laid over the tree last.

    Returns:
        The tree, with the paths of behaviours absolute and the parameters put in.

    Raises:
        ConfigError: a file cannot be read or is wrong; the message is one line with the file,
            the line and what to do.
        MessageError: the given prompt cannot be carried in a message.
    """
    layers, given = _lay(os.fspath(path), overlays or (), settings)
    given = {**(parameters or {}), **given}
    declared = declared_parameters(layers)
    values = parameter_values(layers, declared, given)
    reader = _AgentReader(layers, Substitution(layers, values))
    agents = reader.agents(layers.value["agents"], ("agents",))
    if prompt is not MISSING and prompt is not None:
        encode(prompt)
        agents = (_with_prompt(agents[0], prompt), *agents[1:])
    return TreeSpec(
        name=layers.value.get("name") or os.path.splitext(os.path.basename(layers.file))[0],
        version=layers.value["version"],
        system=_system(layers),
        agents=agents,
        parameters=declared,
        values=values,
        path=os.path.abspath(layers.file),
        notices=(*layers.notices, *reader.notices),
        skipped=tuple(layers.skipped),
        origins=TreeOrigins(layers, reader.policy_origins, frozenset(given)),
    )


def read_overlay(path: str | os.PathLike[str]) -> Document:
    """Read and check an overlay, apart from any tree.

    Raises:
        ConfigError: as for :func:`load_tree`.
    """
    document = read_document(os.fspath(path))
    validate(document, "overlay")
    return document


def _lay(
    tree: str, overlays: Sequence[str | os.PathLike[str]], settings: Sequence[str]
) -> tuple[Layers, dict[str, str]]:
    """Return the tree with everything laid over it, and the parameters among the settings."""
    document = read_document(tree)  # errors name the file as the user did
    validate(document)
    layers = Layers(document)
    for overlay in overlays:
        patches = read_overlay(overlay)
        layers.apply(patches, strict=getattr(overlay, "level", "config") == "config")
    if not settings:
        given: dict[str, str] = {}
        paths: list[tuple[str, str]] = []
    else:
        from dsh_actors.config.settings import Settings, split_settings

        given, paths = split_settings(settings)
        if paths:
            Settings().apply(layers, paths)
    if overlays or paths:
        validate(layers)
    return layers, given


class TreeOrigins:
    """Where each value of a loaded tree comes from. See ``Origins``."""

    def __init__(
        self,
        layers: Layers,
        policies: Mapping[str, Mapping[str, Origin]],
        given: frozenset[str],
    ) -> None:
        self._layers, self._policies, self._given = layers, policies, given
        self._places: dict[str, Path] | None = None

    def of(self, *path: str | int) -> Origin | None:
        """Return where a value stands; None if nobody has written it, so that it is a default."""
        place: Path = path
        if path[:1] == ("parameters",) and path[2:] == ("value",):
            if path[1] in self._given:
                return Origin("--set", 0)
            place = (*path[:2], "default")
        if path[:1] == ("agents",):
            name = str(path[1])
            if path[2:3] == ("policy",):
                return self._policies.get(name, {}).get(str(path[3])) if len(path) > 3 else None
            if self._places is None:
                self._places = self._layers.agents()
            place = (*self._places[name], *path[2:])
        return self._layers.origin_of(place) if self._is_there(place) else None

    def _is_there(self, place: Path) -> bool:
        value = self._layers.value
        for step in place:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return False
        return True


def _system(layers: Layers) -> SystemSpec:
    fields = dict(layers.value.get("system", {}))
    if "stop_grace" in fields:
        fields["stop_grace"] = parse_duration(fields["stop_grace"])
    if "worker_limits" in fields:
        limits = read_worker_limits(fields["worker_limits"])
        fields["worker_limits"] = limits
        soft, hard = limits.get("memory_soft"), limits.get("memory_hard")
        if soft is not None and hard is not None and soft > hard:
            raise layers.error(
                "system.worker_limits: memory_soft is above memory_hard",
                ("system", "worker_limits", "memory_soft"),
                hint="make it smaller",
            )
    return SystemSpec(**fields)


def _with_prompt(agent: AgentSpec, prompt: Any) -> AgentSpec:
    from dataclasses import replace

    return replace(agent, prompt=prompt)


class _AgentReader:
    """Makes the agents of valid layers."""

    def __init__(self, document: Layers, substitution: Substitution) -> None:
        self._document, self._substitution = document, substitution
        self._seen: dict[str, Origin] = {}
        self.policy_origins: dict[str, Mapping[str, Origin]] = {}
        self.notices: list[str] = []

    def agents(self, items: list[dict[str, Any]], path: Path) -> tuple[AgentSpec, ...]:
        return tuple(self._agent(fields, (*path, index)) for index, fields in enumerate(items))

    def _agent(self, fields: dict[str, Any], path: Path) -> AgentSpec:
        name = fields["id"]
        stands = self._document.origin_of((*path, "id"))
        if name in self._seen:
            other = self._seen[name]
            also = f"on line {other.line}" if other.file == stands.file else f"at {other}"
            raise self._document.error(
                f"the id {name!r} is there twice (also {also})",
                (*path, "id"),
                hint="ids are unique in the whole tree; rename one of them",
            )
        self._seen[name] = stands
        prompt = MISSING
        if "prompt" in fields:
            prompt = self._plain(fields["prompt"], (*path, "prompt"))
        return AgentSpec(
            id=name,
            behaviour=self._behaviour(fields["behaviour"], (*path, "behaviour")),
            isolation=fields.get("isolation", "inline"),
            restart=fields.get("restart", "temporary"),
            prompt=prompt,
            args=self._plain(fields.get("args", {}), (*path, "args")),
            policy=self._policy(name, path),
            budget=read_budget(fields["budget"]) if "budget" in fields else None,
            interrupted=fields.get("interrupted"),
            children=self.agents(fields.get("children", []), (*path, "children")),
            line=self._document.line_of(path),
        )

    def _behaviour(self, reference: str, path: Path) -> str:
        module, _, name = reference.partition(":")
        if not module.endswith(".py"):
            return reference
        folder = self._document.folder_of(path)
        return f"{os.path.normpath(os.path.join(folder, module))}:{name}"

    def _policy(self, agent: str, path: Path) -> dict[str, Any] | None:
        stated = self._document.policies_of(path)
        if not stated:
            return None
        from dsh_actors.config.limits import EffectivePolicy

        effective = EffectivePolicy(agent)
        for each in stated:
            effective.state(each, self._substitute)
        assert effective.policy is not None
        self.policy_origins[agent] = effective.origins
        self.notices += effective.notices
        return effective.policy.to_plain()

    def _substitute(self, paths: Any, stated: Stated) -> Any:
        return self._substitution.at(stated.layer).apply(paths, (*stated.path, "paths"))

    def _plain(self, value: Any, path: Path) -> Any:
        """Put the parameters in and make sure that a message can carry the value."""
        value = self._substitution.apply(value, path)
        try:
            encode(value)
        except MessageError as error:
            place = (*path, *_culprit(value))
            raise self._document.error(
                f"{self._document.name_of(place)}: {error.problem}", place
            ) from error
        return value


def _culprit(value: Any) -> Path:
    """Return where in a value the part is that cannot be carried."""
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    for step, item in items:
        try:
            encode(item)
        except MessageError:
            return (step, *_culprit(item))
    return ()
