"""Parameters of a tree: their declaration, their text on the command line, ``${name}``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from dsh_actors.config.spec import MISSING, ParameterSpec
from dsh_actors.config.validate import did_you_mean, got

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsh_actors.config.document import Path
    from dsh_actors.config.layers import Layers, Source

__all__ = ["Substitution", "declared_parameters", "parameter_values"]

_REFERENCE = re.compile(r"\$(\$?)\{([^{}]*)\}")
_BOOLS = {"true": True, "yes": True, "on": True, "1": True}
_BOOLS |= {"false": False, "no": False, "off": False, "0": False}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "path": ((str,), "text"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
}


def declared_parameters(document: Layers) -> dict[str, ParameterSpec]:
    """Return the parameters that a valid document declares, by name.

    Raises:
        ConfigError: a default is not of its parameter's type.
    """
    declared = {}
    for name, fields in document.value.get("parameters", {}).items():
        path = ("parameters", name)
        spec = ParameterSpec(
            name=name,
            type=fields.get("type", "str"),
            default=fields.get("default", MISSING),
            help=fields.get("help", ""),
            line=document.line_of(path, key=True),
        )
        if not _fits(spec):
            types, expected = _KINDS[spec.type]
            raise document.error(
                f"parameters.{name}.default: expected {expected}, got {got(spec.default)}",
                (*path, "default"),
                hint="quote it" if types == (str,) else "",
            )
        declared[name] = spec
    return declared


def _fits(spec: ParameterSpec) -> bool:
    """Whether a parameter's default is of its type. None fits all: it means "nothing given"."""
    if spec.type == "json" or spec.default is MISSING or spec.default is None:
        return True
    types = _KINDS[spec.type][0]
    if isinstance(spec.default, bool):
        return bool in types  # Python's bool is an int, a parameter's is not
    return isinstance(spec.default, types)


def parameter_values(
    document: Layers, declared: Mapping[str, ParameterSpec], given: Mapping[str, str]
) -> dict[str, Any]:
    """Return the value of each parameter: the given text, read by its type, or the default.

    A relative path that was given counts from the current folder, a default from the folder of
    the file that it stands in. A default of null stays None.

    Raises:
        ConfigError: an unknown parameter is given, a text does not fit, or a value is missing.
    """
    for name in given:
        if name not in declared:
            raise document.error(
                f"--set {name}: the tree has no parameter {name!r}",
                ("parameters",),
                key=True,
                hint=did_you_mean(name, declared)
                or (f"it has {', '.join(declared)}" if declared else "it declares none"),
            )
    values: dict[str, Any] = {}
    for name, spec in declared.items():
        if name in given:
            values[name] = _read(document, spec, given[name])
        elif spec.default is MISSING:
            raise document.error(
                f"parameter {name!r} needs a value",
                ("parameters", name),
                key=True,
                hint=f"add --set {name}=VALUE" + (f" ({spec.help})" if spec.help else ""),
            )
        elif spec.type == "path" and spec.default is not None:
            folder = document.folder_of(("parameters", name, "default"))
            values[name] = os.path.normpath(os.path.join(folder, os.path.expanduser(spec.default)))
        else:
            values[name] = spec.default
    return values


def _read(document: Layers, spec: ParameterSpec, text: str) -> Any:
    try:
        if spec.type == "int":
            return int(text)
        if spec.type == "float":
            return float(text)
        if spec.type == "bool":
            return _BOOLS[text.strip().lower()]
        if spec.type == "path":
            return os.path.abspath(os.path.expanduser(text))
        if spec.type == "json":
            import json

            return json.loads(text)
    except (ValueError, KeyError, RecursionError):
        expected = _KINDS.get(spec.type, ((), "JSON"))[1]
        raise document.error(
            f"--set {spec.name}: expected {expected}, got {got(text)}",
            ("parameters", spec.name),
            key=True,
            hint="the parameter is declared here",
        ) from None
    return text


class Substitution:
    """Puts the values of parameters in the place of ``${name}``.

    A string that is one reference and nothing else becomes the value itself, of whatever type;
    inside a longer string the value is put in as text. ``$${`` stands for ``${``. Keys of
    mappings are left alone.
    """

    def __init__(self, document: Source, values: Mapping[str, Any]) -> None:
        self._document, self._values = document, values

    def at(self, document: Source) -> Substitution:
        """Return the same for values of another document."""
        return Substitution(document, self._values)

    def apply(self, value: Any, path: Path) -> Any:
        """Return a copy of a value with its references replaced.

        Raises:
            ConfigError: a reference names no parameter.
        """
        if isinstance(value, str):
            return self._text(value, path) if "${" in value else value
        if isinstance(value, list):
            return [self.apply(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.apply(item, (*path, key)) for key, item in value.items()}
        return value

    def _text(self, text: str, path: Path) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole and not whole[1]:
            return self._lookup(whole[2], path)
        return _REFERENCE.sub(
            lambda match: match[0][1:] if match[1] else _as_text(self._lookup(match[2], path)),
            text,
        )

    def _lookup(self, name: str, path: Path) -> Any:
        name = name.strip()
        if name not in self._values:
            raise self._document.error(
                f"${{{name}}}: the tree has no parameter {name!r}",
                path,
                hint=did_you_mean(name, self._values)
                or "declare it under 'parameters', or write $${ for plain text",
            )
        return self._values[name]


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return "" if value is None else json.dumps(value, default=str, ensure_ascii=False)
