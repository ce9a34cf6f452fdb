"""What travels over the socket of a system: frames, requests and answers, as data.

A frame is a length (32 bits, big endian) and that many bytes of msgpack, without extension types.

A client sends requests, ``{"id": int, "verb": str, "fields": {...}}``; the first one must be
``hello`` with its ``protocol``. A message for an agent is encoded on its own (see
``dsh_actors.codec``) and travels as a binary, so that the server need not understand it.

The server answers with ``[id, op, data]``, where the data is a binary that holds one encoded
value. ``ok`` and ``error`` end the request. ``event`` is one of a stream, which ``end`` or
``error`` ends. Data that is larger than a piece is sent in pieces: all but the last come as
``part``. An error with the id 0 concerns the connection, which the server then closes.

Nothing is ever unpickled, and no length is believed before it was compared with a limit.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from dsh_actors import codec
from dsh_actors.errors import AgentFailed, ControlError, MessageError, TurnAborted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ERROR",
    "EVENT",
    "MAX_ANSWER_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_REQUEST_BYTES",
    "OK",
    "PART",
    "PIECE_BYTES",
    "PROTOCOL",
    "BadFrame",
    "FrameBuffer",
    "Request",
    "check_body",
    "error_data",
    "frames_of",
    "read_answer",
    "read_request",
    "request_frame",
    "to_error",
]

PROTOCOL = 1
"""The version of the protocol; another one is not understood."""

MAX_REQUEST_BYTES = 1 << 20
"""The largest frame that a client may send."""

PIECE_BYTES = 256 << 10
"""The most data in one frame of the server."""

MAX_FRAME_BYTES = PIECE_BYTES + 64
"""The largest frame that the server sends."""

MAX_ANSWER_BYTES = 4 * codec.MAX_BYTES
"""The most data that a client puts together to one answer or event."""

OK, ERROR, EVENT, END, PART = "ok", "error", "event", "end", "part"
_OPS = frozenset((OK, ERROR, EVENT, END, PART))
_LENGTH = struct.Struct(">I")
_MAX_ID = (1 << 53) - 1


class BadFrame(ControlError):
    """The peer sent something that is no frame of this protocol; it is of no further use."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type_name="BadFrame")


class Request(NamedTuple):
    """What a client asks for."""

    id: int
    verb: str
    fields: dict[str, Any]


class FrameBuffer:
    """Turns a stream of bytes into the payloads of its frames, one by one.

    Parameters:
        limit: the largest payload that is accepted, in bytes.
    """

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._buffer += data

    def __len__(self) -> int:
        """How many bytes wait, of complete frames and incomplete ones."""
        return len(self._buffer)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take: a frame, or what is taken for one and is none."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return False
        (size,) = _LENGTH.unpack_from(buffer)
        return len(buffer) >= _LENGTH.size + size or not 0 < size <= self._limit

    def take(self) -> bytes | None:
        """Return the payload of the next frame, or None if it is not complete yet.

        Raises:
            BadFrame: this is no frame, or it is empty or too large.
        """
        if not self.is_ready:
            return None
        buffer = self._buffer
        (size,) = _LENGTH.unpack_from(buffer)
        if not 0 < size <= self._limit:
            raise BadFrame(
                f"not a frame: its length field says {size:,} bytes, "
                f"1 to {self._limit:,} are allowed"
            )
        end = _LENGTH.size + size
        payload = bytes(memoryview(buffer)[_LENGTH.size : end])
        del buffer[:end]
        return payload


def _pack(value: Any) -> bytes:
    payload: bytes = msgpack.packb(value)
    return _LENGTH.pack(len(payload)) + payload


def _unpack(payload: bytes) -> Any:
    try:
        return msgpack.unpackb(payload, ext_hook=_no_extension)
    except Exception as error:
        raise BadFrame(f"a frame that cannot be decoded: {error!r}") from error


def _no_extension(code: int, data: bytes) -> Any:
    raise BadFrame(f"a frame with the extension type {code}")


# -- requests -----------------------------------------------------------------------------------


def request_frame(id: int, verb: str, fields: Mapping[str, Any]) -> bytes:
    """Encode a request; ``body`` is encoded on its own.

    Raises:
        MessageError: a field cannot be carried.
        ControlError: it is too large.
    """
    sent = {
        name: codec.encode(value) if name == "body" else value for name, value in fields.items()
    }
    try:
        frame = _pack({"id": id, "verb": verb, "fields": sent})
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageError("$", f"a field of {verb!r} is no plain data: {error}") from error
    size = len(frame) - _LENGTH.size
    if size > MAX_REQUEST_BYTES:
        raise ControlError(
            f"the request has {size:,} bytes and the control socket takes at most "
            f"{MAX_REQUEST_BYTES:,}; put large content into a file and send its path",
            type_name="TooLarge",
        )
    return frame


def read_request(payload: bytes) -> Request:
    """Decode a request.

    Raises:
        BadFrame: it is none.
    """
    value = _unpack(payload)
    if not isinstance(value, dict) or not {"id", "verb"} <= value.keys() <= _REQUEST_KEYS:
        raise BadFrame("not a request: it must have an id, a verb and fields, and nothing else")
    id, verb, fields = value["id"], value["verb"], value.get("fields", {})
    if type(id) is not int or not 0 < id <= _MAX_ID:
        raise BadFrame("not a request: its id must be a positive integer below 2**53")
    if not isinstance(verb, str) or not isinstance(fields, dict):
        raise BadFrame("not a request: the verb must be a text, and the fields a map")
    if not all(isinstance(name, str) for name in fields):
        raise BadFrame("not a request: the names of the fields must be texts")
    return Request(id, verb, fields)


_REQUEST_KEYS = frozenset(("id", "verb", "fields"))


def check_body(body: bytes) -> None:
    """See that an encoded message is one value, without making anything of it.

    Raises:
        MessageError: it is not.
    """
    try:
        msgpack.unpackb(body, strict_map_key=False, ext_hook=lambda code, data: None)
    except Exception as error:
        raise MessageError("$", f"the message is not one encoded value: {error!r}") from error


# -- answers ------------------------------------------------------------------------------------


def frames_of(id: int, op: str, data: bytes) -> Iterator[bytes]:
    """Encode an answer or event, in as many frames as it takes.

    Parameters:
        id: of the request.
        op: what the last frame says.
        data: the encoded value.
    """
    start = 0
    while len(data) - start > PIECE_BYTES:
        yield _pack([id, PART, data[start : start + PIECE_BYTES]])
        start += PIECE_BYTES
    yield _pack([id, op, data[start:] if start else data])


def read_answer(payload: bytes) -> tuple[int, str, bytes]:
    """Decode one frame of the server: the id of the request, the op and the data.

    Raises:
        BadFrame: it is none.
    """
    value = _unpack(payload)
    if (
        not isinstance(value, list)
        or [type(each) for each in value] != [int, str, bytes]
        or value[1] not in _OPS
    ):
        raise BadFrame("the system sent something that is no answer")
    return value[0], value[1], value[2]


def error_data(error: BaseException) -> bytes:
    """Encode an error: the name of its type, its message, and what else a caller may need."""
    kind = type(error).__name__
    details: dict[str, Any] = {}
    if isinstance(error, ControlError):
        kind = error.type_name
    elif isinstance(error, AgentFailed):
        details = {"type": error.type_name, "traceback": error.traceback_text}
    elif isinstance(error, TurnAborted):
        details = {"cause": error.cause}
    elif isinstance(error, BaseExceptionGroup):
        details = {
            "errors": [
                {"type": type(each).__name__, "message": str(each)} for each in error.exceptions
            ]
        }
    return codec.encode({"type": kind, "message": str(error), "details": details})


def to_error(data: bytes) -> ControlError:
    """Make the error that a server sent."""
    value = codec.decode_leniently(data)
    if not isinstance(value, Mapping):
        return BadFrame("the system sent an error that says nothing")
    return ControlError(
        str(value.get("message", "")),
        type_name=str(value.get("type", "ControlError")),
        details=value.get("details"),
    )
