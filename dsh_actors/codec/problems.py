"""Finds the part of a value that cannot be carried, and says what to do about it.

Imported only when an encoding has failed, or when the value holds keys that need a look.
"""

from __future__ import annotations

import datetime as dt
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh_actors.codec.wire import registered_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["first_problem"]

_MAX_DEPTH = 1024  # no msgpack release takes more; a bound for the search, too


class _Place(NamedTuple):
    """A part of the value being searched, linked to the container that holds it."""

    value: Any
    step: str
    parent: _Place | None
    depth: int

    def path(self) -> str:
        steps: list[str] = []
        place: _Place | None = self
        while place is not None:
            steps.append(place.step)
            place = place.parent
        steps.reverse()
        if len(steps) > 20:
            steps[10:-9] = ["…"]
        return "".join(steps)

    def is_inside_itself(self) -> bool:
        place = self.parent
        while place is not None:
            if place.value is self.value:
                return True
            place = place.parent
        return False


def first_problem(value: Any, *, refused: Exception | None = None) -> tuple[str, str] | None:
    """Search a value depth first, in order, without recursion.

    Parameters:
        value: the value to search.
        refused: why the packer refused the value, if it did.

    Returns:
        The path of the first part that cannot be carried, and what is wrong with it. None if
        there is none, which happens only when the packer did not refuse the value.
    """
    deepest = root = _Place(value, "$", None, 0)
    pending = [root]
    while pending:
        place = pending.pop()
        children = _children(place)
        problem = (
            _problem_of_leaf(place.value) if children is None else _problem_of_container(place)
        )
        if problem is not None:
            return place.path(), problem
        if place.depth > deepest.depth:
            deepest = place
        pending.extend(reversed(children or ()))
    if refused is None:
        return None
    if isinstance(refused, RecursionError) or "recursion" in str(refused):
        return deepest.path(), "nested too deep; flatten it"
    return "$", f"cannot be encoded: {refused or repr(refused)}"


def _children(place: _Place) -> list[_Place] | None:
    value, depth = place.value, place.depth + 1
    if isinstance(value, dict):
        return [_Place(item, _key_step(key), place, depth) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_Place(item, f"[{index}]", place, depth) for index, item in enumerate(value)]
    names = registered_fields(value)
    if names is not None:
        return [_Place(getattr(value, name), f".{name}", place, depth) for name in names]
    return None


def _key_step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{_short(key)}]"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _problem_of_container(place: _Place) -> str | None:
    if place.is_inside_itself():
        return "it contains itself; send a copy without the cycle"
    if place.depth > _MAX_DEPTH:
        return "nested too deep; flatten it"
    return next(filter(None, map(_problem_of_key, _keys(place.value))), None)


def _keys(value: Any) -> Iterator[Any]:
    return iter(value) if isinstance(value, dict) else iter(())


def _problem_of_key(key: Any) -> str | None:
    if isinstance(key, tuple) or registered_fields(key) is not None:
        return (
            f"the key {_short(key)} is a {type(key).__qualname__}; keys must be str, int, float, "
            "bool, None, bytes, a date or a time: make one string of it"
        )
    problem = _problem_of_leaf(key)
    return problem and f"the key {_short(key)} is {problem}"


def _problem_of_leaf(value: Any) -> str | None:
    if isinstance(value, Enum):
        return f"an enum member ({value!s}); send its .value or its .name"
    if value is None or isinstance(value, bool | float | bytes | bytearray):
        return None
    if isinstance(value, memoryview):
        return None if value.contiguous else "a memoryview with gaps; send value.tobytes()"
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            return "an integer beyond 64 bits; send it as a string"
        return None
    if isinstance(value, str):
        return _problem_of_text(value)
    if isinstance(value, dt.date | dt.time | dt.timedelta):
        return None
    return _problem_of_object(value)


def _problem_of_text(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return (
            f"a string that is not Unicode text (lone surrogate at index {error.start}); "
            "send bytes: os.fsencode(value)"
        )
    return None


def _problem_of_object(value: Any) -> str:
    cls = type(value)
    if isinstance(value, set | frozenset):
        return f"a {cls.__qualname__}; send list(value), or sorted(value)"
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__qualname__", cls.__qualname__)
        return f"code, not data ({name}); send its name as 'module:name'"
    if hasattr(cls, "__dataclass_fields__"):
        return (
            f"a dataclass that is not registered ({cls.__qualname__}); decorate it with "
            "@register, or send dataclasses.asdict(value)"
        )
    if isinstance(value, BaseException):
        return f"an exception ({cls.__qualname__}); send str(error)"
    return f"an object of type {cls.__module__}.{cls.__qualname__}; {_advice(value)}"


def _advice(value: Any) -> str:
    if hasattr(value, "__fspath__") or type(value).__module__ in {"uuid", "decimal", "fractions"}:
        return "send str(value)"
    if hasattr(value, "tolist"):
        return "send value.tolist()"
    if hasattr(value, "fileno"):
        return "it belongs to this process; send what the receiver needs to open its own"
    if hasattr(value, "__iter__"):
        return "send list(value)"
    return "send plain data: its fields as a dict, or a registered dataclass"
