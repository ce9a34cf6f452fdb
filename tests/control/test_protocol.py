"""Frames, requests and answers: any bytes are decoded or refused, and nothing else happens."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsh_actors import codec
from dsh_actors.control import protocol
from dsh_actors.control.protocol import BadFrame, FrameBuffer, Request
from dsh_actors.errors import AgentFailed, ControlError, MessageError, TurnAborted
from tests.control.raw import framed

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def requests_in(data: bytes, sizes: list[int]) -> list[Request]:
    """Decode a stream that arrives in chunks of these sizes."""
    buffer, found, start = FrameBuffer(protocol.MAX_REQUEST_BYTES), [], 0
    for size in [*sizes, len(data)]:
        buffer.feed(data[start : start + size])
        start += size
        while (payload := buffer.take()) is not None:
            found.append(protocol.read_request(payload))
    return found


@given(st.binary(max_size=400), st.lists(st.integers(0, 40), max_size=20))
@example(b"\0\0\0\1\xc1", [])
@example(b"\0\0\0\2\x81\x80", [1, 1])  # a map as the key of a map
@example(framed(msgpack.Timestamp(1, 0)), [])
@example(struct.pack(">I", 4) + b"\xdf\xff\xff\xff", [])  # a map of four billion entries
@example(struct.pack(">I", 1500) + b"\x91" * 1499 + b"\x90", [])  # nested very deeply
def test_any_bytes_are_requests_or_refused(data: bytes, sizes: list[int]) -> None:
    try:
        for request in requests_in(data, sizes):
            assert isinstance(request, Request)
    except BadFrame:
        pass


@given(plain)
def test_any_value_is_a_request_and_an_answer_or_refused(value: Any) -> None:
    payload = msgpack.packb(value)
    for read in (protocol.read_request, protocol.read_answer):
        try:
            assert isinstance(read(payload), tuple)
        except BadFrame:
            pass


@given(
    st.lists(st.tuples(st.text(), st.dictionaries(st.text(), plain, max_size=3)), max_size=4),
    st.lists(st.integers(1, 60), max_size=20),
)
def test_requests_survive_however_they_are_cut(
    asked: list[tuple[str, dict[str, Any]]], sizes: list[int]
) -> None:
    stream = b"".join(
        protocol.request_frame(number, verb, fields)
        for number, (verb, fields) in enumerate(asked, 1)
    )
    found = requests_in(stream, sizes)
    assert [(request.id, request.verb) for request in found] == [
        (number, verb) for number, (verb, _) in enumerate(asked, 1)
    ]
    for request, (_, fields) in zip(found, asked, strict=True):
        body = request.fields.pop("body", None)
        if "body" in fields:
            assert codec.decode(body) == fields["body"]
        assert request.fields == {name: v for name, v in fields.items() if name != "body"}


@pytest.mark.parametrize(
    "value",
    [
        7,
        {},
        {"id": 1},
        {"id": 1, "verb": "x", "more": 1},
        {"id": 0, "verb": "x"},
        {"id": -1, "verb": "x"},
        {"id": True, "verb": "x"},
        {"id": 2**53, "verb": "x"},
        {"id": "1", "verb": "x"},
        {"id": 1, "verb": b"x"},
        {"id": 1, "verb": "x", "fields": []},
        {"id": 1, "verb": "x", "fields": {b"a": 1}},
    ],
)
def test_what_is_no_request_is_refused(value: Any) -> None:
    with pytest.raises(BadFrame, match="not a request"):
        protocol.read_request(msgpack.packb(value))


@pytest.mark.parametrize("size", [0, protocol.MAX_REQUEST_BYTES + 1, 0xFFFFFFFF])
def test_a_length_is_compared_before_anything_is_kept_for_it(size: int) -> None:
    buffer = FrameBuffer(protocol.MAX_REQUEST_BYTES)
    buffer.feed(struct.pack(">I", size))
    assert buffer.is_ready
    with pytest.raises(BadFrame, match="not a frame"):
        buffer.take()


def test_a_large_answer_comes_in_pieces_that_fit_the_frame() -> None:
    data = bytes(range(256)) * 4000
    frames = list(protocol.frames_of(7, protocol.OK, data))
    assert max(map(len, frames)) <= protocol.MAX_FRAME_BYTES
    buffer = FrameBuffer(protocol.MAX_FRAME_BYTES)
    got = b""
    for number, frame in enumerate(frames, 1):
        buffer.feed(frame)
        payload = buffer.take()
        assert payload is not None
        id, op, piece = protocol.read_answer(payload)
        assert (id, op) == (7, protocol.OK if number == len(frames) else protocol.PART)
        got += piece
    assert got == data


@pytest.mark.parametrize("size", [0, 1, protocol.PIECE_BYTES, protocol.PIECE_BYTES + 1])
def test_pieces_at_the_edges(size: int) -> None:
    frames = list(protocol.frames_of(1, protocol.EVENT, b"x" * size))
    assert len(frames) == (2 if size > protocol.PIECE_BYTES else 1)


def test_a_request_that_is_too_large_is_refused_where_it_is_made() -> None:
    with pytest.raises(ControlError, match="at most 1,048,576"):
        protocol.request_frame(1, "send", {"body": "x" * (1 << 20)})


def test_a_field_that_is_no_plain_data_is_refused_where_it_is_made() -> None:
    with pytest.raises(MessageError, match="'stop' is no plain data"):
        protocol.request_frame(1, "stop", {"agent": object()})
    with pytest.raises(MessageError):
        protocol.request_frame(1, "send", {"body": object()})


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x01\x01", b"\x91", b"\xd9\xffa", b"\x91" * 3000])
def test_a_body_must_be_one_encoded_value(body: bytes) -> None:
    with pytest.raises(MessageError, match="one encoded value"):
        protocol.check_body(body)


def test_errors_keep_their_type_and_what_matters() -> None:
    def through(error: BaseException) -> ControlError:
        return protocol.to_error(protocol.error_data(error))

    failed = through(AgentFailed("KeyError", "'x'", "Traceback ..."))
    assert (failed.type_name, str(failed)) == ("AgentFailed", "KeyError: 'x'")
    assert failed.details == {"type": "KeyError", "traceback": "Traceback ..."}
    assert through(TurnAborted("deadline")).details == {"cause": "deadline"}
    assert through(ControlError("no", type_name="Busy")).type_name == "Busy"
    group = through(ExceptionGroup("two", [ValueError("a"), KeyError("b")]))
    assert group.details == {
        "errors": [{"type": "ValueError", "message": "a"}, {"type": "KeyError", "message": "'b'"}]
    }
    assert protocol.to_error(codec.encode(3)).type_name == "BadFrame"
