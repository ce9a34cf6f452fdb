"""Plain data to bytes and back: what a message, a result or an event may hold."""

from __future__ import annotations

from dsh_actors.codec.wire import (
    MAX_BYTES,
    decode,
    decode_leniently,
    encode,
    register,
    stream_decoder,
)

__all__ = ["MAX_BYTES", "decode", "decode_leniently", "encode", "register", "stream_decoder"]
