"""The JSON Schemas of a tree file and of an overlay, for editors."""

from __future__ import annotations

from typing import Any

__all__ = ["json_schema"]


def json_schema(kind: str = "tree") -> dict[str, Any]:
    """Return the JSON Schema of a file. Imports the whole of pydantic.

    Parameters:
        kind: ``tree`` or ``overlay``.
    """
    from pydantic.json_schema import GenerateJsonSchema

    from dsh_actors.config.grammar import overlay_grammar, tree_grammar
    from dsh_actors.config.help import HELP

    grammar = tree_grammar() if kind == "tree" else overlay_grammar()
    schema: dict[str, Any] = GenerateJsonSchema().generate(grammar)
    definitions = {kind: schema, **schema["$defs"]}
    for name, definition in definitions.items():
        for key, described in definition["properties"].items():
            described["description"] = HELP[name][key]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dsh-actors tree file" if kind == "tree" else "dsh-actors overlay",
        **schema,
    }
