"""Reads a YAML file into plain values and still knows on which line each of them stands.

The values are made from PyYAML's nodes here, not by its constructor, because a constructor drops
the lines, takes the last of two equal keys, and follows an alias into itself for ever. Lines are
looked up in the nodes only when an error needs one.
"""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from dsh_actors.errors import ConfigError

__all__ = ["Document", "Path", "path_text", "read_document", "read_value"]

Path: TypeAlias = tuple[str | int, ...]
"""A place in a document: the keys and indexes that lead to it."""

Node: TypeAlias = Any
"""One of PyYAML's nodes, whose types do not say what they have in common."""

MAX_DEPTH = 100
"""How deep lists and mappings may be nested."""

MAX_VALUES = 1_000_000
"""How many values a document may have once its aliases are expanded."""

_SCALAR, _LIST, _MAP, _MERGE, _STR = (
    f"tag:yaml.org,2002:{name}" for name in ("scalar", "seq", "map", "merge", "str")
)


class Document:
    """A YAML document.

    Parameters:
        file: the path of its file, for errors. Relative paths in it count from its folder.
        value: what it says, as plain values.
        root: PyYAML's node for it.
    """

    __slots__ = ("_root", "file", "folder", "value")

    def __init__(self, file: str, value: Any, root: Node) -> None:
        self.file, self.value, self._root = file, value, root
        self.folder = os.path.dirname(os.path.abspath(file))

    def name_of(self, path: Path) -> str:
        """Return the place of a value as errors name it."""
        return path_text(path)

    def line_of(self, path: Path, *, key: bool = False) -> int:
        """Return the line of the value at a path, or of its key; else of what is nearest to it."""
        node = self._root
        line = _line(node)
        for step in path:
            found = _child(node, step)
            if found is None:
                return line
            holder, node = found
            line = _line(holder if key else node)
        return line

    def error(
        self, message: str, path: Path = (), *, key: bool = False, hint: str = ""
    ) -> ConfigError:
        """Return an error about the value at a path, or about its key."""
        return ConfigError(message, file=self.file, line=self.line_of(path, key=key), hint=hint)


def path_text(path: Path) -> str:
    """Return a path as text on one line: ``agents[0].prompt``."""
    text = ""
    for step in path:
        is_word = isinstance(step, str) and step.replace("-", "_").isidentifier()
        text += f"[{step!r}]" if not is_word else f".{step}" if text else str(step)
    return text


def read_document(file: str) -> Document:
    """Read a file.

    Raises:
        ConfigError: there is no such file, it is not UTF-8 or not YAML, a key is there twice, or
            an alias contains itself.
    """
    return _parse(file, _read_text(file))


def read_value(name: str, text: str) -> Any:
    """Return what a piece of YAML says that stands in no file.

    Parameters:
        name: what errors call it.
        text: the YAML. What YAML takes for nothing at all, such as ``#fff``, is text.

    Raises:
        ConfigError: it is not YAML.
    """
    if not text.strip() or text.lstrip().startswith("#"):
        return text
    try:
        return _parse(name, text).value
    except ConfigError as error:
        raise ConfigError(error.message, file=name, hint=error.hint) from error


def _parse(file: str, text: str) -> Document:
    import yaml

    loader_type: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(file, text, loader_type)
        loader = loader_type(text)
        try:
            root = loader.get_single_node()
            if root is None:
                raise ConfigError(
                    "the file is empty", file=file, line=1, hint="begin with 'version: 1'"
                )
            reader = _Reader(file, loader)
            return Document(file, reader.value(root), root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ": ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(
            f"bad YAML: {' '.join(problem.split())}",
            file=file,
            line=mark.line + 1 if mark else None,
            hint="check the indentation, quotes and brackets there",
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"bad YAML: {error.reason}", file=file, line=line, hint="remove the character"
        ) from error


def _check_depth(file: str, text: str, loader_type: Any) -> None:
    """Look at the bare events first: PyYAML recurses, and deep enough that ends the process."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader_type):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark: Any = event.start_mark
                raise ConfigError(
                    f"nested deeper than {MAX_DEPTH} levels",
                    file=file,
                    line=mark.line + 1,
                    hint="flatten it",
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _read_text(file: str) -> str:
    try:
        with open(file, "rb") as stream:
            data = stream.read()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "the file is not UTF-8", file=file, line=line, hint="save it as UTF-8"
        ) from error
    except FileNotFoundError as error:
        raise ConfigError("there is no such file", file=file, hint="check the path") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"the file cannot be read ({reason})", file=file, hint="check its path and rights"
        ) from error


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _child(node: Node, step: str | int) -> tuple[Node, Node] | None:
    """Return the node of a key (or of a list's item) and the node of its value."""
    if node.id == "sequence":
        if isinstance(step, int) and 0 <= step < len(node.value):
            return node.value[step], node.value[step]
        return None
    if node.id != "mapping":
        return None
    merged = None
    for key, value in node.value:
        if key.tag == _MERGE:
            merged = merged or next(filter(None, (_child(n, step) for n in _merged(value))), None)
        elif key.value == str(step):
            return key, value
    return merged


def _merged(node: Node) -> list[Node]:
    return list(node.value) if node.id == "sequence" else [node]


class _Reader:
    """Makes the values of one document's nodes."""

    def __init__(self, file: str, loader: Any) -> None:
        self._file, self._loader = file, loader
        self._open: set[int] = set()  # the nodes that we are inside of
        self._done: dict[int, tuple[Any, int]] = {}  # value and size of those that have an end
        self._size = 0

    def value(self, node: Node) -> Any:
        if node.id == "scalar":
            self._count(1, node)
            return self._scalar(node)
        identity = id(node)
        if identity in self._open:
            raise self._error(
                node, "an alias (*) leads back to this anchor (&)", "write the value out"
            )
        if identity in self._done:
            value, size = self._done[identity]
            self._count(size, node)
            return value
        before = self._size
        self._count(1, node)
        self._open.add(identity)
        value = self._list(node) if node.id == "sequence" else self._map(node)
        self._open.discard(identity)
        self._done[identity] = (value, self._size - before)
        return value

    def _count(self, more: int, node: Node) -> None:
        self._size += more
        if self._size > MAX_VALUES:
            raise self._error(
                node, f"the aliases expand to more than {MAX_VALUES} values", "use fewer aliases"
            )

    def _scalar(self, node: Node) -> Any:
        if node.tag == _STR:
            return node.value
        if node.tag not in self._loader.yaml_constructors:
            raise self._foreign_tag(node)
        try:
            return self._loader.construct_object(node)
        except (AttributeError, LookupError) as error:
            # So PyYAML fails where a tag and its text do not fit, as in !!bool perhaps.
            kind = node.tag.rpartition(":")[2]
            raise self._error(
                node, f"{node.value!r} is not a value of the tag !!{kind}", "remove the tag"
            ) from error
        except (ValueError, OverflowError) as error:
            raise self._error(
                node, f"{node.value!r} is not a value ({error})", "quote it if it is text"
            ) from error

    def _list(self, node: Node) -> list[Any]:
        self._check_tag(node, _LIST)
        return [self.value(item) for item in node.value]

    def _map(self, node: Node) -> dict[Any, Any]:
        self._check_tag(node, _MAP)
        result: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged += _merged(value_node)
                continue
            if key_node.id != "scalar":
                raise self._error(key_node, "a key is a list or a mapping", "use plain text")
            key = self._scalar(key_node)
            if key in result:
                raise self._error(
                    key_node,
                    f"the key {key_node.value!r} is there twice (also on line {lines[key]})",
                    "keep one of them",
                )
            lines[key] = _line(key_node)
            result[key] = self.value(value_node)
        for part in merged:
            value = self.value(part)
            if not isinstance(value, dict):
                raise self._error(part, "'<<' merges only mappings", "give it a mapping")
            result = value | result
        return result

    def _check_tag(self, node: Node, expected: str) -> None:
        if node.tag != expected:
            raise self._foreign_tag(node)

    def _foreign_tag(self, node: Node) -> ConfigError:
        return self._error(node, f"the tag {node.tag!r} is not known here", "remove the tag")

    def _error(self, node: Node, message: str, hint: str) -> ConfigError:
        return ConfigError(message, file=self._file, line=_line(node), hint=hint)
