"""Checks a document against the grammar and turns pydantic's findings into one-line errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsh_actors.config.document import Path
    from dsh_actors.config.layers import Source
    from dsh_actors.errors import ConfigError

__all__ = ["Kind", "did_you_mean", "got", "known", "validate"]

Kind = Literal["tree", "overlay"]

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "dict_type": "a mapping",
    "list_type": "a list",
}
_LIMITS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def validate(document: Source, kind: Kind = "tree") -> None:
    """Check a tree file's document, or an overlay's.

    Raises:
        ConfigError: for the finding that comes first in the file.
    """
    from pydantic_core import ValidationError

    _check_version(document)
    try:
        _validator(kind).validate_python(document.value)
    except ValidationError as error:
        found = _telling(error.errors(include_url=False))
        findings = [_finding(document, kind, each) for each in found]
        raise min(findings, key=lambda finding: finding.line or 0) from None


@cache
def _validator(kind: Kind) -> Any:
    from pydantic_core import SchemaValidator

    from dsh_actors.config.grammar import overlay_grammar, tree_grammar

    return SchemaValidator(tree_grammar() if kind == "tree" else overlay_grammar())


def _telling(found: list[Any]) -> list[Any]:
    """Leave out each missing key that is there under a misspelt name: that tells more."""
    extra = [each["loc"] for each in found if each["type"] == "extra_forbidden"]

    def is_misspelt(path: Path) -> bool:
        beside = (str(loc[-1]) for loc in extra if loc[:-1] == path[:-1])
        return bool(did_you_mean(str(path[-1]), beside))

    return [each for each in found if each["type"] != "missing" or not is_misspelt(each["loc"])]


def _check_version(document: Source) -> None:
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


def _finding(document: Source, kind_of_file: Kind, found: Any) -> ConfigError:
    kind, path, value = found["type"], found["loc"], found["input"]
    if path and path[-1] == "[key]":
        return _bad_key(document, found)
    if kind == "missing":
        message = f"missing key {path[-1]!r}{_inside(document, path[:-1])}"
        return document.error(message, path[:-1], hint="add it")
    if kind == "extra_forbidden":
        return document.error(
            f"unknown key {path[-1]!r}{_inside(document, path[:-1])}",
            path,
            key=True,
            hint=_hint_for(str(path[-1]), _keys_beside(path, kind_of_file)),
        )
    if kind == "too_short":
        return document.error(
            f"{document.name_of(path)}: the list is empty", path, hint="add an id and a behaviour"
        )
    expected, hint = _expected(kind, found.get("ctx", {}), found["msg"], value)
    return document.error(
        f"{document.name_of(path)}: expected {expected}, got {got(value)}", path, hint=hint
    )


def _bad_key(document: Source, found: Any) -> ConfigError:
    *holder, key, _ = found["loc"]
    expected = "text" if found["type"] == "string_type" else found["msg"]
    return document.error(
        f"{document.name_of(tuple(holder))}: the key {key!r} is not {expected}",
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


def _keys_beside(path: Path, kind: Kind) -> list[str]:
    """Return the keys that are known where a path ends."""
    from dsh_actors.config.help import HELP

    if len(path) == 1:
        return list(HELP[kind])
    if path[-2] == "worker_limits" and path[0] == "system":
        return list(HELP["worker_limits"])
    if path[0] != "agents":
        inside = {"system": "system", "parameters": "parameter" if kind == "tree" else "default"}
        return list(HELP[inside[str(path[0])]])
    if path[-2] in ("policy", "budget"):
        return list(HELP[str(path[-2])])
    return list(HELP["patch" if kind == "overlay" and len(path) == 3 else "agent"])


def _hint_for(key: str, valid: list[str]) -> str:
    from dsh_actors.config.help import REMOVED

    plain = key.replace("-", "").replace("_", "").lower()
    return REMOVED.get(plain) or did_you_mean(key, valid) or f"the keys are {', '.join(valid)}"


def _inside(document: Source, path: Path) -> str:
    return f" in {document.name_of(path)}" if path else ""


def known(what: str, name: str, names: Iterable[str]) -> str:
    """Return what to do about a name that a tree does not have: the nearest one, or all.

    Parameters:
        what: how to say what there is, e.g. ``it has``.
        name: the unknown one.
        names: those that there are.
    """
    every = list(names)
    near = did_you_mean(name, every)
    if near or not every:
        return near
    return f"{what} {', '.join(every[:12])}{' ...' if len(every) > 12 else ''}"


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
