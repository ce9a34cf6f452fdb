"""Reads a tree file into a ``TreeSpec``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dsh_actors.codec import encode
from dsh_actors.config.document import path_text, read_document
from dsh_actors.config.parameters import Substitution, declared_parameters, parameter_values
from dsh_actors.config.spec import MISSING, AgentSpec, SystemSpec, TreeSpec
from dsh_actors.config.validate import validate
from dsh_actors.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsh_actors.config.document import Document, Path

__all__ = ["json_schema", "load_tree", "parse_duration"]


def load_tree(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, str] | None = None,
    prompt: Any = MISSING,
    overlays: Sequence[str | os.PathLike[str]] | None = None,
    settings: Sequence[str] = (),
) -> TreeSpec:
    """Read and check a tree file. No behaviour is imported.

    Parameters:
        path: the file.
        parameters: values for its parameters, as text, by name. Relative paths among them count
            from the current folder.
        prompt: unless ``MISSING`` or None, the prompt of the first root agent, in place of the
            file's. It is taken as it is, without replacing ``${name}`` in it.

    Returns:
        The tree, with the paths of behaviours absolute and the parameters put in.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message is one line with the file,
            the line and what to do.
        MessageError: the given prompt cannot be carried in a message.
    """
    document = read_document(os.fspath(path))  # errors name the file as the user did
    validate(document)
    declared = declared_parameters(document)
    given = {**(parameters or {}), **dict(setting.split("=", 1) for setting in settings)}
    values = parameter_values(document, declared, given)
    reader = _AgentReader(document, Substitution(document, values))
    agents = reader.agents(document.value["agents"], ("agents",))
    if prompt is not MISSING and prompt is not None:
        encode(prompt)
        agents = (_with_prompt(agents[0], prompt), *agents[1:])
    return TreeSpec(
        name=document.value.get("name") or os.path.splitext(os.path.basename(document.file))[0],
        version=document.value["version"],
        system=_system(document.value.get("system", {})),
        agents=agents,
        parameters=declared,
        values=values,
        path=os.path.abspath(document.file),
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a tree file, for editors. Imports the whole of pydantic."""
    from pydantic.json_schema import GenerateJsonSchema

    from dsh_actors.config.grammar import HELP, grammar

    schema: dict[str, Any] = GenerateJsonSchema().generate(grammar())
    definitions = {"tree": schema, **schema["$defs"]}
    for name, helps in HELP.items():
        for key, text in helps.items():
            definitions[name]["properties"][key]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dsh-actors tree file",
        **schema,
    }


def parse_duration(value: float | str) -> float:
    """Return a valid duration (``5s``, ``500ms``, ``2m``, ``1h`` or a number) in seconds."""
    if not isinstance(value, str):
        return float(value)
    from dsh_actors.config.grammar import UNITS

    number = value.rstrip("msh")
    return float(number) * UNITS[value[len(number) :]]


def _system(fields: dict[str, Any]) -> SystemSpec:
    if "stop_grace" in fields:
        fields = {**fields, "stop_grace": parse_duration(fields["stop_grace"])}
    return SystemSpec(**fields)


def _with_prompt(agent: AgentSpec, prompt: Any) -> AgentSpec:
    from dataclasses import replace

    return replace(agent, prompt=prompt)


class _AgentReader:
    """Makes the agents of one valid document."""

    def __init__(self, document: Document, substitution: Substitution) -> None:
        self._document, self._substitution = document, substitution
        self._folder = os.path.dirname(os.path.abspath(document.file))
        self._lines: dict[str, int] = {}

    def agents(self, items: list[dict[str, Any]], path: Path) -> tuple[AgentSpec, ...]:
        return tuple(self._agent(fields, (*path, index)) for index, fields in enumerate(items))

    def _agent(self, fields: dict[str, Any], path: Path) -> AgentSpec:
        line = self._document.line_of(path)
        name = fields["id"]
        if name in self._lines:
            raise self._document.error(
                f"the id {name!r} is there twice (also on line {self._lines[name]})",
                (*path, "id"),
                hint="ids are unique in the whole tree; rename one of them",
            )
        self._lines[name] = self._document.line_of((*path, "id"))
        prompt = MISSING
        if "prompt" in fields:
            prompt = self._plain(fields["prompt"], (*path, "prompt"))
        return AgentSpec(
            id=name,
            behaviour=self._behaviour(fields["behaviour"]),
            isolation=fields.get("isolation", "inline"),
            restart=fields.get("restart", "temporary"),
            prompt=prompt,
            args=self._plain(fields.get("args", {}), (*path, "args")),
            children=self.agents(fields.get("children", []), (*path, "children")),
            line=line,
        )

    def _behaviour(self, reference: str) -> str:
        module, _, name = reference.partition(":")
        if not module.endswith(".py"):
            return reference
        return f"{os.path.normpath(os.path.join(self._folder, module))}:{name}"

    def _plain(self, value: Any, path: Path) -> Any:
        """Put the parameters in and make sure that a message can carry the value."""
        value = self._substitution.apply(value, path)
        try:
            encode(value)
        except MessageError as error:
            place = (*path, *_culprit(value))
            raise self._document.error(f"{path_text(place)}: {error.problem}", place) from error
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
