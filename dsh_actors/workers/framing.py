"""The frames of a worker's link, as data: no sockets, no threads.

A frame is a length (32 bits, big endian) and a payload of one or more msgpack values in a row, so
that one system call carries everything that waits. The decoder takes bytes as they come and gives
back the values of the frames that are complete.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.codec.wire import MARK, STREAM_MARK
from dsh_actors.errors import DshActorsError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_FRAME_BYTES", "FrameDecoder", "ProtocolError", "encode_batch"]

MAX_FRAME_BYTES = 2 * codec.MAX_BYTES
"""The default limit of one payload, in bytes: a largest message with room for what wraps it."""

_LENGTH = struct.Struct(">I")
_HEADER = _LENGTH.size
_KEPT_BUFFER = 1 << 20


class ProtocolError(DshActorsError):
    """The peer sent something that is not a frame, or ended in the middle of one."""


def encode_batch(values: Iterable[bytes]) -> bytes:
    """Put encoded values into one frame.

    Parameters:
        values: what `dsh_actors.codec.encode` returned, at least one.

    Returns:
        The frame: the length, and the values in order.
    """
    payload = b"".join(values)
    return _LENGTH.pack(len(payload)) + payload


class FrameDecoder:
    """Turns a stream of bytes into the values in its frames.

    Parameters:
        max_frame: the largest payload that is accepted, in bytes.
    """

    __slots__ = ("_buffer", "_max_frame", "_unpacker", "_wanted")

    def __init__(self, max_frame: int = MAX_FRAME_BYTES) -> None:
        self._max_frame = max_frame
        # Bytes of frames that are not complete; a whole number of frames is never kept here.
        self._buffer = bytearray()
        # How many bytes the buffer must hold before it is worth another look.
        self._wanted = _HEADER
        self._unpacker = codec.stream_decoder(max_frame + len(STREAM_MARK))

    def feed(self, data: bytes | bytearray | memoryview) -> list[Any]:
        """Take the next bytes of the stream.

        Parameters:
            data: any number of bytes; nothing of them is kept by reference.

        Returns:
            The values of all frames that are now complete, in order.

        Raises:
            ProtocolError: the bytes are no frames, or a frame is empty or too large. The decoder
                is of no further use then.
        """
        values: list[Any] = []
        if not self._buffer:
            rest = self._decode_frames(memoryview(data), values)
            if rest:
                self._buffer += rest
            return values
        self._buffer += data
        if len(self._buffer) >= self._wanted:
            with memoryview(self._buffer) as view:
                used = len(view) - len(self._decode_frames(view, values))
            del self._buffer[:used]
        return values

    def end(self) -> None:
        """Say that the stream has ended.

        Raises:
            ProtocolError: it ended in the middle of a frame.
        """
        if self._buffer:
            raise ProtocolError(
                f"the stream ended inside a frame, {len(self._buffer)} of at least "
                f"{self._wanted} bytes had arrived"
            )

    def _decode_frames(self, view: memoryview, values: list[Any]) -> memoryview:
        """Append the values of the complete frames to `values`, return the bytes left over."""
        start, available = 0, len(view)
        while available - start >= _HEADER:
            (size,) = _LENGTH.unpack_from(view, start)
            if not 0 < size <= self._max_frame:
                raise ProtocolError(
                    f"not a frame: its length field says {size:,} bytes, "
                    f"1 to {self._max_frame:,} are allowed"
                )
            body = start + _HEADER
            if available - body < size:
                self._wanted = _HEADER + size
                return view[start:]
            self._decode_payload(view[body : body + size], values)
            start = body + size
        self._wanted = _HEADER
        return view[start:]

    def _decode_payload(self, payload: memoryview, values: list[Any]) -> None:
        large = len(payload) > _KEPT_BUFFER  # for a decoder of its own, whose buffer does not stay
        unpacker = (
            codec.stream_decoder(self._max_frame + len(STREAM_MARK)) if large else self._unpacker
        )
        try:
            unpacker.feed(payload)
            unpacker.feed(STREAM_MARK)
            values.extend(unpacker)
        except Exception as error:
            raise ProtocolError(f"a frame that cannot be decoded: {error!r}") from error
        # A value that is cut off has swallowed the mark, or at least a part of it.
        if not values or values.pop() is not MARK:
            raise ProtocolError("a value is cut off at the end of its frame")
