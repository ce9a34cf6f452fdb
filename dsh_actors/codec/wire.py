"""Plain data to bytes and back: what a message, a result or an event may hold.

The format is msgpack. Beyond what msgpack carries itself (None, bool, int of 64 bits, float, str,
bytes, list, dict), dates and times and registered dataclasses travel as extension types. Tuples
arrive as lists, and subclasses of the plain types arrive as the plain type. Nothing is pickled, so
decoding never runs code that the bytes chose. A value that cannot be carried is refused where it
is sent, with its place in the value: ``$.jobs[3].callback``.

Two passes keep the usual message cheap: the C packer alone, and only if it refuses, a pass with a
Python hook for the richer types. The walk that names the place of an error runs only on failure.
"""

from __future__ import annotations

import datetime as dt
import struct
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

import msgpack

from dsh_actors.errors import MessageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_BYTES", "decode", "encode", "register", "registered_fields", "stream_decoder"]

MAX_BYTES = 64 << 20
"""The default limit of one encoded value, in bytes."""

_MAX_DATACLASS_DEPTH = 60  # each level costs Python frames, here and at the receiver
_PACKER_BUFFER = 2048
_DATETIME, _DATE, _TIME, _TIMEDELTA, _DATACLASS = 1, 2, 3, 4, 5
_MARK = 127
_LEAVES = frozenset({str, int, float, bool, type(None), bytes})
_KEYS = (str, int, float, bytes, memoryview, dt.date, dt.time, dt.timedelta)
STREAM_MARK = msgpack.packb(msgpack.ExtType(_MARK, b"\0"))
"""Bytes that a stream decoder turns into `MARK`, which no encoded value can be."""

MARK = object()

_DELTA = struct.Struct(">iii")

_Packer = msgpack.Packer
_unpackb = msgpack.unpackb
_ExtType = msgpack.ExtType

_C = TypeVar("_C", bound=type)


class _Registration(NamedTuple):
    name: str
    cls: type
    fields: tuple[str, ...]


_by_class: dict[type, _Registration] = {}
_by_name: dict[str, _Registration] = {}


def registered_fields(value: Any) -> tuple[str, ...] | None:
    """The names of the fields that are encoded, if the value is of a registered dataclass."""
    registration = _by_class.get(type(value))
    return None if registration is None else registration.fields


# -- Registered dataclasses -------------------------------------------------------------------


@overload
def register(cls: _C, /, *, name: str | None = None) -> _C: ...
@overload
def register(cls: None = None, /, *, name: str | None = None) -> Callable[[_C], _C]: ...
def register(cls: _C | None = None, /, *, name: str | None = None) -> _C | Callable[[_C], _C]:
    """Let instances of a dataclass travel in messages, results and events.

    The class must be registered in the receiving process too, which is so when the module that
    defines it is imported there. Instances of its subclasses are not covered. Decoding calls the
    class with its fields as keyword arguments, so ``__post_init__`` runs.

    Parameters:
        cls: the dataclass. ``@register`` and ``@register(name=...)`` both decorate one.
        name: the name that goes into the bytes; default ``module:qualified name``. Stored sessions
            keep it, so give one to a class that may be moved or renamed.

    Returns:
        The class itself.

    Raises:
        UsageError: this is not a dataclass, or the name belongs to another class.
    """
    if cls is None:
        return lambda decorated: register(decorated, name=name)
    declared: dict[str, Any] | None = cls.__dict__.get("__dataclass_fields__")
    if declared is None:
        raise UsageError(
            f"{cls!r} is not a dataclass; put @register above @dataclass, "
            "or send plain data instead"
        )
    import dataclasses  # loaded already, by whoever made this dataclass

    fields = tuple(field.name for field in dataclasses.fields(cls) if field.init)
    name = name or f"{_home(cls)}:{cls.__qualname__}"
    known = _by_name.get(name)
    if known is not None and _identity(known.cls) != _identity(cls):
        raise UsageError(
            f"the name {name!r} is registered for {known.cls!r} already; "
            "pass another one: @register(name=...)"
        )
    _by_class[cls] = _by_name[name] = _Registration(name, cls, fields)
    return cls


def _home(cls: type) -> str:
    # multiprocessing imports the parent's script under this alias in a worker.
    return "__main__" if cls.__module__ == "__mp_main__" else cls.__module__


def _identity(cls: type) -> tuple[str, str]:
    """A reloaded module makes a new class of the same identity, which replaces the old one."""
    return _home(cls), cls.__qualname__


# -- Encoding ---------------------------------------------------------------------------------


def encode(value: Any, *, limit: int = MAX_BYTES) -> bytes:
    """Encode plain data.

    Parameters:
        value: what to encode; see the head of this module for what it may hold.
        limit: the largest allowed result, in bytes.

    Returns:
        The encoded value.

    Raises:
        MessageError: the value holds something that cannot be carried, refers to itself, is
            nested too deep or is too large; the error has the path of the offending part.
    """
    try:
        # A packer of its own for each call: it costs little, needs no lock, stays correct when a
        # finaliser encodes in the middle of another call, and keeps no large buffer alive.
        data: bytes = _Packer(strict_types=True, buf_size=_PACKER_BUFFER).pack(value)
    except Exception:
        data = _encode_rich(value)
    if len(data) > limit:
        raise MessageError(
            "$",
            f"it takes {len(data):,} bytes and the limit is {limit:,}; "
            "split it, or write it to a file and send the path",
        )
    return data


def _encode_rich(value: Any) -> bytes:
    encoder = _RichEncoder()
    try:
        data = encoder.pack(value)
    except Exception as error:
        raise _refusal(value, error) from error
    # The packer takes any key; one that arrives as a list would fail only at the receiver.
    if encoder.check_keys and not _keys_arrive(value):
        raise _refusal(value, TypeError("a key of a dict cannot be carried"))
    return data


def _refusal(value: Any, error: Exception) -> MessageError:
    from dsh_actors.codec.problems import first_problem

    return MessageError(*(first_problem(value, refused=error) or ("$", str(error))))


def _keys_arrive(value: Any) -> bool:
    """Whether the keys of all dicts in a value that could be packed are usable when decoded."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            for key in part:
                if type(key) not in _LEAVES and not isinstance(key, _KEYS):
                    return False
            pending += [item for item in part.values() if type(item) not in _LEAVES]
        elif isinstance(part, list | tuple):
            pending += [item for item in part if type(item) not in _LEAVES]
        else:
            pending += [getattr(part, name) for name in registered_fields(part) or ()]
    return True


class _RichEncoder:
    """One encoding with the Python hook, for what the strict C packer refuses."""

    __slots__ = ("check_keys", "depth")

    def __init__(self) -> None:
        self.check_keys = False
        self.depth = 0

    def pack(self, value: Any) -> bytes:
        packed: bytes = _Packer(
            strict_types=True, default=self.convert, buf_size=_PACKER_BUFFER
        ).pack(value)
        return packed

    def convert(self, value: Any) -> Any:
        """Turn one value that the packer refused into one that it takes."""
        cls = type(value)
        if cls is tuple:
            self.check_keys = True
            return list(value)
        registration = _by_class.get(cls)
        if registration is not None:
            return self._dataclass(value, registration)
        if isinstance(value, dt.datetime):
            return _ExtType(_DATETIME, dt.datetime.isoformat(value).encode())
        if isinstance(value, dt.date):
            return _ExtType(_DATE, dt.date.isoformat(value).encode())
        if isinstance(value, dt.time):
            return _ExtType(_TIME, dt.time.isoformat(value).encode())
        if isinstance(value, dt.timedelta):
            return _ExtType(_TIMEDELTA, _DELTA.pack(value.days, value.seconds, value.microseconds))
        return self._plain_subclass(value)

    def _dataclass(self, value: Any, registration: _Registration) -> Any:
        if registration.cls.__hash__ is not None:
            self.check_keys = True
        if self.depth >= _MAX_DATACLASS_DEPTH:
            raise RecursionError("dataclasses are nested too deep")
        self.depth += 1
        fields = {name: getattr(value, name) for name in registration.fields}
        data = self.pack([registration.name, fields])
        self.depth -= 1
        return _ExtType(_DATACLASS, data)

    def _plain_subclass(self, value: Any) -> Any:
        """The plain form of an instance of a subclass, by the plain type's own methods."""
        cls = type(value)
        if not _is_enum(value) and not hasattr(cls, "__dataclass_fields__"):
            if isinstance(value, str):
                return str.__str__(value)
            if isinstance(value, int):
                return int.__int__(value)
            if isinstance(value, float):
                return float.__float__(value)
            if isinstance(value, dict):
                return dict(value.items())
            if isinstance(value, tuple):
                self.check_keys = True
                return list(value)
            if isinstance(value, list):
                return list(value)
            if isinstance(value, bytes | bytearray):
                return bytes(memoryview(value))
        raise TypeError(f"cannot encode {cls.__qualname__}")


# -- Decoding ---------------------------------------------------------------------------------


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Decode what `encode` made.

    Parameters:
        data: the bytes of exactly one value.

    Returns:
        The value.

    Raises:
        MessageError: the bytes are not one encoded value, or hold a dataclass that is not
            registered in this process or no longer takes the fields that were encoded.
    """
    try:
        return _unpackb(data, strict_map_key=False, ext_hook=_decode_extension, timestamp=3)
    except MessageError:
        raise
    except Exception as error:
        raise _not_decodable(error) from error


def decode_leniently(data: bytes | bytearray | memoryview) -> Any:
    """Decode what `encode` made, with the fields of a dataclass that is not known here as a dict.

    For data that outlives the program that wrote it: it is read by programs without its classes,
    and by ones in which a class has changed since.

    Raises:
        MessageError: the bytes are not one encoded value.
    """
    try:
        return _unpackb(data, strict_map_key=False, ext_hook=_decode_lenient, timestamp=3)
    except MessageError:
        raise
    except Exception as error:
        raise _not_decodable(error) from error


def stream_decoder(max_bytes: int) -> Any:
    """Make a decoder of many values in a row.

    Parameters:
        max_bytes: how many undecoded bytes it may hold.

    Returns:
        A ``msgpack.Unpacker``: ``feed(data)`` takes bytes, iterating yields decoded values.
    """
    return msgpack.Unpacker(
        strict_map_key=False,
        ext_hook=_decode_extension,
        timestamp=3,
        max_buffer_size=max_bytes,
    )


def _not_decodable(error: Exception) -> MessageError:
    return MessageError("$", f"these bytes are not one encoded value ({error or repr(error)})")


def _decode_extension(code: int, data: bytes) -> Any:
    if code == _DATACLASS:
        return _decode_dataclass(data)
    if code == _TIMEDELTA:
        return dt.timedelta(*_DELTA.unpack(data))
    if code == _MARK:
        return MARK
    text = data.decode("ascii")
    if code == _DATETIME:
        return _exactly(dt.datetime.fromisoformat(text), text)
    if code == _DATE:
        return dt.date.fromisoformat(text)
    if code == _TIME:
        return _exactly(dt.time.fromisoformat(text), text)
    raise MessageError("$", f"unknown extension type {code}")


def _decode_lenient(code: int, data: bytes) -> Any:
    if code != _DATACLASS:
        return _decode_extension(code, data)
    name, fields = decode_leniently(data)
    registration = _by_name.get(name)
    if registration is None:
        return fields
    try:
        return registration.cls(**fields)
    except Exception:
        return fields


def _decode_dataclass(data: bytes) -> Any:
    name, fields = decode(data)
    registration = _by_name.get(name)
    if registration is None:
        raise MessageError(
            "$",
            f"the dataclass {name!r} is not registered in this process; "
            "import the module that registers it",
        )
    try:
        return registration.cls(**fields)
    except Exception as error:
        raise MessageError("$", f"the dataclass {name!r} cannot be made: {error}") from error


def _is_enum(value: Any) -> bool:
    enum = sys.modules.get("enum")  # without it no enum can exist
    return enum is not None and isinstance(value, enum.Enum)


_Zoned = TypeVar("_Zoned", dt.datetime, dt.time)


def _exactly(value: _Zoned, text: str) -> _Zoned:
    """Give a value the offset in its text, which CPython takes for UTC if it is below a second."""
    if value.tzinfo is not dt.UTC or text.endswith("+00:00"):
        return value
    sign = -1 if text[-16] == "-" else 1  # as in -00:00:00.000001
    offset = dt.timedelta(microseconds=sign * int(text[-6:]))
    return value.replace(tzinfo=dt.timezone(offset))
