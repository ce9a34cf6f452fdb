"""What a tree file and an overlay may say, once: for validation and for the JSON Schemas.

The grammar is written for pydantic's engine itself. Loading the whole of pydantic and building
model classes would cost a command about 80 ms at its start, the engine alone about 15.

Which session an agent is bound to, and the line that is printed at the exit, are not here: only
the launcher of a system knows them.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import core_schema as cs

__all__ = ["DURATION", "SIZE", "SIZE_UNITS", "UNITS", "overlay_grammar", "tree_grammar"]

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"
SIZE_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE = r"^[1-9][0-9]*(\.[0-9]+)?(KiB|MiB|GiB)$"

_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
_BEHAVIOUR = r"^([^:]+\.py|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)" + (
    r":[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
)
_ISOLATIONS = ["inline", "pool", "own"]
_Fields = dict[str, cs.CoreSchema]


def _text(pattern: str, name: str, message: str) -> cs.CoreSchema:
    inner = cs.str_schema(pattern=pattern, strict=True)
    return cs.custom_error_schema(inner, name, custom_error_message=message)


def _map(ref: str, required: tuple[str, ...], fields: _Fields) -> cs.CoreSchema:
    return cs.typed_dict_schema(
        {
            key: cs.typed_dict_field(schema, required=key in required)
            for key, schema in fields.items()
        },
        extra_behavior="forbid",
        ref=ref,
    )


def _erasable(fields: _Fields) -> _Fields:
    """Let null stand for each value: a deep merge takes it as "delete"."""
    return {key: cs.nullable_schema(schema) for key, schema in fields.items()}


def _ref(name: str) -> cs.CoreSchema:
    return cs.definition_reference_schema(name)


def _whole(least: int) -> cs.CoreSchema:
    return cs.int_schema(ge=least, strict=True)


def _duration() -> cs.CoreSchema:
    return cs.custom_error_schema(
        cs.union_schema(
            [
                cs.float_schema(ge=0, allow_inf_nan=False, strict=True),
                cs.str_schema(pattern=DURATION, strict=True),
            ]
        ),
        "duration",
        custom_error_message="a duration such as 5s, 500ms, 2m or a number of seconds",
    )


def _agent_fields() -> _Fields:
    anything: Any = cs.any_schema()
    return {
        "id": _text(
            _ID, "id", "letters, digits, '.', '_' and '-', beginning with a letter or digit"
        ),
        "behaviour": _text(_BEHAVIOUR, "behaviour", "package.module:name or ./file.py:name"),
        "isolation": cs.literal_schema(_ISOLATIONS),
        "restart": cs.literal_schema(["permanent", "transient", "temporary"]),
        "interrupted": cs.literal_schema(["fail", "retry"]),
        "prompt": anything,
        "args": cs.dict_schema(cs.str_schema(strict=True), anything),
        "policy": _ref("policy"),
        "budget": _ref("budget"),
        "children": cs.list_schema(_ref("agent")),
    }


def _policy() -> cs.CoreSchema:
    texts = cs.list_schema(cs.str_schema(min_length=1, strict=True))
    return _map(
        "policy",
        (),
        {
            "tools": texts,
            "paths": texts,
            "network": cs.bool_schema(strict=True),
            "isolation": cs.list_schema(cs.literal_schema(_ISOLATIONS)),
            "depth": _whole(0),
        },
    )


def _budget_fields() -> _Fields:
    fields: _Fields = {"wall": _duration()}
    for name in ("turns", "children", "depth", "processes", "tokens"):
        fields[name] = _whole(0)
    fields["cost"] = cs.float_schema(ge=0, allow_inf_nan=False, strict=True)
    return fields


def _system_fields() -> _Fields:
    return {
        "workers": cs.int_schema(ge=1, le=1024, strict=True),
        "stop_grace": _duration(),
        "inbox_limit": _whole(1),
        "max_turns": _whole(1),
        "worker_limits": _ref("worker_limits"),
    }


def _size() -> cs.CoreSchema:
    return cs.custom_error_schema(
        cs.union_schema([_whole(1), cs.str_schema(pattern=SIZE, strict=True)]),
        "size",
        custom_error_message="a size such as 512MiB, 1.5GiB or a number of bytes",
    )


def _worker_limit_fields() -> _Fields:
    return {
        "memory_soft": _size(),
        "memory_hard": _size(),
        "cpu_seconds": _whole(1),
        "open_files": _whole(32),
    }


def _parameters(of: str) -> cs.CoreSchema:
    name = _text(_NAME, "name", "a name of letters, digits, '_' and '-'")
    return cs.dict_schema(name, _ref(of))


def tree_grammar() -> cs.CoreSchema:
    """Return the grammar of a tree file, version 1."""
    agents: Any = cs.list_schema(_ref("agent"), min_length=1)
    tree = _map(
        "tree",
        ("version", "agents"),
        {
            "version": cs.literal_schema([1]),
            "name": cs.str_schema(min_length=1, strict=True),
            "system": _ref("system"),
            "agents": agents,
            "parameters": _parameters("parameter"),
        },
    )
    parameter = _map(
        "parameter",
        (),
        {
            "type": cs.literal_schema(["str", "int", "float", "bool", "path", "json"]),
            "default": cs.any_schema(),
            "help": cs.str_schema(strict=True),
        },
    )
    agent = _map("agent", ("id", "behaviour"), _agent_fields())
    system = _map("system", (), _system_fields())
    budget = _map("budget", (), _budget_fields())
    limits = _map("worker_limits", (), _worker_limit_fields())
    return cs.definitions_schema(
        _ref("tree"), [tree, system, limits, agent, parameter, _policy(), budget]
    )


def overlay_grammar() -> cs.CoreSchema:
    """Return the grammar of an overlay, version 1."""
    merge = cs.bool_schema(strict=True)
    overlay = _map(
        "overlay",
        ("version",),
        {
            "version": cs.literal_schema([1]),
            "merge": merge,
            "name": cs.str_schema(min_length=1, strict=True),
            "system": _ref("system"),
            "agents": cs.list_schema(_ref("patch")),
            "parameters": _parameters("default"),
        },
    )
    fields = _agent_fields()
    name = {"id": fields.pop("id")}
    # What a policy allows only ever shrinks: there is nothing to delete.
    policy = {"policy": fields.pop("policy")}
    fields["budget"] = _ref("patch_budget")
    patch = _map("patch", ("id",), {**name, "merge": merge, **policy, **_erasable(fields)})
    default = _map("default", ("default",), {"default": cs.any_schema()})
    return cs.definitions_schema(
        _ref("overlay"),
        [
            overlay,
            _map("system", (), _erasable(_system_fields())),
            _map("worker_limits", (), _erasable(_worker_limit_fields())),
            patch,
            default,
            _map("agent", ("id", "behaviour"), _agent_fields()),
            _policy(),
            _map("budget", (), _budget_fields()),
            _map("patch_budget", (), _erasable(_budget_fields())),
        ],
    )
