"""What a tree file may say, once: for its validation and for its JSON Schema.

The grammar is written for pydantic's engine itself. Loading the whole of pydantic and building
model classes would cost a command about 80 ms at its start, the engine alone about 15.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import core_schema as cs

__all__ = ["DURATION", "HELP", "UNITS", "grammar"]

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"

_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
_BEHAVIOUR = r"^([^:]+\.py|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)" + (
    r":[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
)

HELP: dict[str, dict[str, str]] = {
    "tree": {
        "version": "The version of this format: 1.",
        "name": "What to call the tree; the file's name if absent.",
        "system": "Settings of the whole system.",
        "agents": "The root agents. A prompt of the command line goes to the first.",
        "parameters": "What --set NAME=VALUE may set and ${NAME} stands for.",
    },
    "system": {
        "workers": "How many pooled worker processes there are.",
        "stop_grace": "How long cancelled work may take to end: 5s, 500ms, 2m or seconds.",
        "inbox_limit": "How many messages the inbox of an agent takes.",
        "max_turns": "How many turns run at a time.",
    },
    "agent": {
        "id": "Unique in the tree: letters, digits, '.', '_' and '-'.",
        "behaviour": "package.module:name, or ./file.py:name relative to this file.",
        "isolation": "Where it lives: in this process, in a shared worker, in one of its own.",
        "restart": "When it is restarted: always, after a failure, or never.",
        "prompt": "Its first message; ${NAME} stands for a parameter.",
        "args": "Arguments for its behaviour; ${NAME} stands for a parameter.",
        "children": "Agents to create below it.",
    },
    "parameter": {
        "type": "How its text is read; str if absent.",
        "default": "Its value if none is set; without one it must be set.",
        "help": "What it is for.",
    },
}
"""What each key is for, by the kind of mapping that it stands in."""


def _text(pattern: str, name: str, message: str) -> cs.CoreSchema:
    inner = cs.str_schema(pattern=pattern, strict=True)
    return cs.custom_error_schema(inner, name, custom_error_message=message)


def _map(ref: str, required: tuple[str, ...], fields: dict[str, cs.CoreSchema]) -> cs.CoreSchema:
    return cs.typed_dict_schema(
        {
            key: cs.typed_dict_field(schema, required=key in required)
            for key, schema in fields.items()
        },
        extra_behavior="forbid",
        ref=ref,
    )


def _whole(least: int) -> cs.CoreSchema:
    return cs.int_schema(ge=least, strict=True)


def grammar() -> cs.CoreSchema:
    """Return the grammar of a tree file, version 1."""
    anything: Any = cs.any_schema()
    duration = cs.custom_error_schema(
        cs.union_schema(
            [
                cs.float_schema(ge=0, allow_inf_nan=False, strict=True),
                cs.str_schema(pattern=DURATION, strict=True),
            ]
        ),
        "duration",
        custom_error_message="a duration such as 5s, 500ms, 2m or a number of seconds",
    )
    agent = _map(
        "agent",
        ("id", "behaviour"),
        {
            "id": _text(
                _ID, "id", "letters, digits, '.', '_' and '-', beginning with a letter or digit"
            ),
            "behaviour": _text(_BEHAVIOUR, "behaviour", "package.module:name or ./file.py:name"),
            "isolation": cs.literal_schema(["inline", "pool", "own"]),
            "restart": cs.literal_schema(["permanent", "transient", "temporary"]),
            "prompt": anything,
            "args": cs.dict_schema(cs.str_schema(strict=True), anything),
            "children": cs.list_schema(cs.definition_reference_schema("agent")),
        },
    )
    system = _map(
        "system",
        (),
        {
            "workers": cs.int_schema(ge=1, le=1024, strict=True),
            "stop_grace": duration,
            "inbox_limit": _whole(1),
            "max_turns": _whole(1),
        },
    )
    parameter = _map(
        "parameter",
        (),
        {
            "type": cs.literal_schema(["str", "int", "float", "bool", "path", "json"]),
            "default": anything,
            "help": cs.str_schema(strict=True),
        },
    )
    name = _text(_NAME, "name", "a name of letters, digits, '_' and '-'")
    tree = _map(
        "tree",
        ("version", "agents"),
        {
            "version": cs.literal_schema([1]),
            "name": cs.str_schema(min_length=1, strict=True),
            "system": cs.definition_reference_schema("system"),
            "agents": cs.list_schema(cs.definition_reference_schema("agent"), min_length=1),
            "parameters": cs.dict_schema(name, cs.definition_reference_schema("parameter")),
        },
    )
    return cs.definitions_schema(
        cs.definition_reference_schema("tree"), [tree, system, agent, parameter]
    )
