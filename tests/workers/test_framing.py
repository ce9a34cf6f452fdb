"""Frames as data: any cut of the stream gives the same values, and damage is named."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors import codec
from dsh_actors.workers.framing import FrameDecoder, ProtocolError, encode_batch

batches = st.lists(
    st.lists(st.integers().filter(lambda n: abs(n) < 2**63) | st.binary(max_size=300), min_size=1)
)


@given(batches, st.lists(st.integers(1, 400)))
def test_the_values_do_not_depend_on_how_the_stream_is_cut(
    sent: list[list[Any]], cuts: list[int]
) -> None:
    stream = b"".join(encode_batch(map(codec.encode, batch)) for batch in sent)
    decoder = FrameDecoder()

    arrived, start = [], 0
    for size in [*cuts, len(stream)]:
        arrived += decoder.feed(stream[start : start + size])
        start += size
    decoder.end()

    assert arrived == [value for batch in sent for value in batch]


def test_a_frame_is_given_out_as_soon_as_its_last_byte_is_there() -> None:
    frame = encode_batch([codec.encode("a"), codec.encode("b")])
    decoder = FrameDecoder()

    assert decoder.feed(frame[:-1]) == []
    assert decoder.feed(frame[-1:] + frame[:2]) == ["a", "b"]
    assert decoder.feed(frame[2:]) == ["a", "b"]


def test_a_large_frame_arrives_and_small_ones_after_it() -> None:
    large = b"x" * (3 << 20)
    decoder = FrameDecoder()
    stream = encode_batch([codec.encode(large)]) + encode_batch([codec.encode(1)])

    arrived = []
    for start in range(0, len(stream), 1 << 16):
        arrived += decoder.feed(stream[start : start + (1 << 16)])

    assert arrived == [large, 1]


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (struct.pack(">I", 101) + b"x", "101 bytes, 1 to 100 are allowed"),
        (b"GET / HTTP/1.1\r\n", "not a frame"),
        (struct.pack(">I", 0), "0 bytes"),
        (struct.pack(">I", 2) + b"\x01\xc1", "cannot be decoded"),
        (struct.pack(">I", 3) + b"\x01\xd9\x05", "cut off at the end"),
        (struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff", "cannot be decoded"),
        (struct.pack(">I", 3) + b"\xd4\x63\x00", "unknown extension type 99"),
    ],
)
def test_damage_raises_a_protocol_error(stream: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        FrameDecoder(max_frame=100).feed(stream)


@pytest.mark.parametrize("kept", [1, 4, 6])
def test_an_end_inside_a_frame_is_an_error(kept: int) -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_batch([codec.encode("abc")])[:kept])

    with pytest.raises(ProtocolError, match="ended inside a frame"):
        decoder.end()
