"""One connection by itself, at times that the test chooses."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from dsh_actors.actors.future import Future
from dsh_actors.control.connection import Connection, Waiting
from dsh_actors.control.limits import Limits
from dsh_actors.control.protocol import MAX_REQUEST_BYTES, OK, PIECE_BYTES, request_frame
from dsh_actors.errors import ControlError, MessageError

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = Limits(hello=5, frame=10, stall=15, outbox=1000, outbox_limit=4 * PIECE_BYTES)


class Ends:
    """Both ends of a connection."""

    def __init__(self) -> None:
        self.client, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.client.setblocking(False)
        self.connection = Connection(theirs, LIMITS, 0.0)
        self.connection.greeted = True

    def fill(self) -> None:
        """Have what can be sent without anybody reading sent."""
        self.connection.send(1, OK, b"x" * 2 * PIECE_BYTES, 0.0)
        for _ in range(10):
            self.connection.write(0.0)
        assert self.connection.wants_write

    def read(self) -> int:
        try:
            return len(self.client.recv(1 << 20))
        except BlockingIOError:
            return 0


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.client.close()
    ends.connection.socket.close()


def test_no_request_is_done_for_a_client_that_does_not_read_its_answers(ends: Ends) -> None:
    connection = ends.connection
    ends.client.send(request_frame(1, "tree", {}))
    connection.read(0.0)
    assert connection.has_request
    ends.fill()
    assert not connection.has_request
    assert connection.next_request(0.0) is None
    while connection.wants_write:
        ends.read()
        connection.write(0.0)
    assert connection.next_request(0.0) == (1, "tree", {})
    assert connection.next_request(0.0) is None


def test_nothing_more_comes_in_while_a_request_waits(ends: Ends) -> None:
    connection = ends.connection
    frame = request_frame(1, "tree", {"x": "y" * (MAX_REQUEST_BYTES - 100)})
    start = 0
    while not connection.has_request:
        assert connection.wants_read
        start += ends.client.send(frame[start : start + 10_000])
        connection.read(0.0)
    assert not connection.wants_read


def test_each_frame_that_is_read_starts_the_clock_again(ends: Ends) -> None:
    connection, now = ends.connection, 0.0
    assert connection.deadline() is None
    connection.send(1, OK, b"x" * (4 * PIECE_BYTES - 1), now)
    while connection.wants_write:
        due = connection.deadline()
        assert due is not None
        assert due[0] > now  # however long all of it takes
        connection.write(now)
        if not ends.read():
            break
        now += LIMITS.stall * 0.45
    assert now > LIMITS.stall
    assert connection.deadline() is None


def test_one_who_stops_reading_is_overdue(ends: Ends) -> None:
    ends.fill()
    due = ends.connection.deadline()
    assert due == (LIMITS.stall, "it has not read a frame within 15 s")


def test_the_clock_of_a_frame_runs_from_its_first_byte(ends: Ends) -> None:
    connection, frame = ends.connection, request_frame(1, "tree", {})
    ends.client.send(frame[:3])
    connection.read(1.0)
    ends.client.send(frame[3:6])
    connection.read(5.0)
    assert connection.deadline() == (11.0, "a frame has not arrived within 10 s")
    ends.client.send(frame[6:])
    connection.read(6.0)
    assert connection.next_request(6.0) is not None
    assert connection.deadline() is None


def test_what_is_to_be_sent_is_bounded(ends: Ends) -> None:
    connection = ends.connection
    for _ in range(5):
        connection.send(1, OK, b"x" * PIECE_BYTES, 0.0)
    assert connection.is_over
    assert not connection.wants_write
    assert connection.reason == "it does not read its answers"


def test_events_wait_elsewhere_while_others_are_to_be_sent(ends: Ends) -> None:
    connection = ends.connection
    assert connection.takes_events
    connection.send(1, OK, b"x" * (LIMITS.stream_outbox - 100), 0.0)
    assert connection.takes_events
    connection.send(1, OK, b"x" * 100, 0.0)
    assert not connection.takes_events


def test_a_refused_client_gets_the_reason_and_nothing_after_it(ends: Ends) -> None:
    connection = ends.connection
    connection.refuse(ControlError("no"), 1.0)
    assert not connection.is_over
    assert not connection.wants_read
    connection.send(1, OK, b"x", 1.0)
    assert connection.deadline() == (1.0 + LIMITS.linger, "it was closed")
    connection.write(1.0)
    assert connection.is_over
    assert b"no" in ends.client.recv(1000)
    assert ends.read() == 0


def test_an_answer_is_the_value_or_the_error_of_its_future() -> None:
    good: Future[int] = Future()
    good.set_result(3)
    assert Waiting(good, lambda value: b"%d" % value).answer() == (True, b"3")
    bad: Future[int] = Future()
    bad.set_error(KeyError("x"))
    fine, data = Waiting(bad, lambda value: b"").answer()
    assert (fine, b"KeyError" in data) == (False, True)

    def fail(value: int) -> bytes:
        raise MessageError("$", "it cannot be carried")

    fine, data = Waiting(good, fail).answer()
    assert (fine, b"it cannot be carried" in data) == (False, True)
