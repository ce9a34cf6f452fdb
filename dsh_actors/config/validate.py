"""Checks a document against the grammar and turns pydantic's findings into one-line errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.config.document import path_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh_actors.config.document import Document, Path
    from dsh_actors.errors import ConfigError

__all__ = ["did_you_mean", "got", "validate"]

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "dict_type": "a mapping",
    "list_type": "a list",
}
_LIMITS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def validate(document: Document) -> None:
    """Check a tree file's document.

    Raises:
        ConfigError: for the finding that comes first in the file.
    """
    from pydantic_core import SchemaValidator, ValidationError

    from dsh_actors.config.grammar import grammar

    _check_version(document)
    try:
        SchemaValidator(grammar()).validate_python(document.value)
    except ValidationError as error:
        findings = [_finding(document, found) for found in error.errors(include_url=False)]
        raise min(findings, key=lambda finding: finding.line or 0) from None


def _check_version(document: Document) -> None:
    """Look at the version before all else: another version has other rules."""
    value = document.value
    if not isinstance(value, dict):
        raise document.error(
            f"expected a mapping, got {got(value)}", hint="begin with 'version: 1'"
        )
    if "version" not in value:
        raise document.error("missing key 'version'", hint="begin with 'version: 1'")
    version = value["version"]
    if version != 1 or isinstance(version, bool):
        raise document.error(
            f"version: expected 1, got {got(version)}",
            ("version",),
            hint="write 'version: 1', or update dsh-actors if the file is of a newer one",
        )


def _finding(document: Document, found: Any) -> ConfigError:
    kind, path, value = found["type"], found["loc"], found["input"]
    if path and path[-1] == "[key]":
        return _bad_key(document, found)
    if kind == "missing":
        message = f"missing key {path[-1]!r}{_inside(path[:-1])}"
        return document.error(message, path[:-1], hint="add it")
    if kind == "extra_forbidden":
        key = path[-1]
        valid = _keys_beside(path)
        return document.error(
            f"unknown key {key!r}{_inside(path[:-1])}",
            path,
            key=True,
            hint=did_you_mean(str(key), valid) or f"the keys are {', '.join(valid)}",
        )
    if kind == "too_short":
        return document.error(
            f"{path_text(path)}: the list is empty", path, hint="add an id and a behaviour"
        )
    expected, hint = _expected(kind, found.get("ctx", {}), found["msg"], value)
    return document.error(
        f"{path_text(path)}: expected {expected}, got {got(value)}", path, hint=hint
    )


def _bad_key(document: Document, found: Any) -> ConfigError:
    *holder, key, _ = found["loc"]
    expected = "text" if found["type"] == "string_type" else found["msg"]
    return document.error(
        f"{path_text(tuple(holder))}: the key {key!r} is not {expected}",
        (*holder, key),
        key=True,
        hint="quote it" if found["type"] == "string_type" else "rename it",
    )


def _expected(kind: str, context: Any, message: str, value: Any) -> tuple[str, str]:
    """Return what was expected and, if there is something to say, what to do."""
    if kind == "literal_error":
        expected = context["expected"]
        return expected, did_you_mean(
            str(value), expected.replace("'", "").replace(" or ", ", ").split(", ")
        )
    if kind in _LIMITS:
        words, limit = _LIMITS[kind]
        return f"{words} {context[limit]}", ""
    if kind == "string_too_short":
        return "some text", ""
    if kind == "string_type" and isinstance(value, int | float):
        return "text", "quote it"
    if kind == "recursion_loop":
        return "agents that do not contain themselves", "write the children out"
    return _KINDS.get(kind, message), ""


def _keys_beside(path: Path) -> list[str]:
    """Return the keys that are known where a path ends."""
    from dsh_actors.config.grammar import HELP

    inside = {"system": "system", "parameters": "parameter", "agents": "agent"}
    kind = "tree" if len(path) == 1 else inside[str(path[0])]
    return list(HELP[kind])


def _inside(path: Path) -> str:
    return f" in {path_text(path)}" if path else ""


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest valid word, or nothing if none is near."""
    import difflib

    near = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""


def got(value: Any) -> str:
    """Return a value as an error names it: short, on one line, with its kind where that helps."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
