"""Links: order, batching, back-pressure, and exactly one end with its reason."""

from __future__ import annotations

import os
import queue
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors import codec
from dsh_actors.errors import MessageError
from dsh_actors.workers.framing import ProtocolError, encode_batch
from dsh_actors.workers.link import Link, LinkClosed, LinkStalled

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 10.0  # seconds; a bound for failing tests, not a delay


class End:
    """One end of a link, with what arrived there."""

    def __init__(self, sock: socket.socket, name: str, **options: Any) -> None:
        self.batches: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self.reasons: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self.delivered_before_the_end = -1
        self.delivered = 0
        self.link = Link(
            sock, on_messages=self.on_messages, on_close=self.on_close, name=name, **options
        )

    def on_messages(self, messages: list[Any]) -> None:
        self.delivered += len(messages)
        self.batches.put(messages)

    def on_close(self, reason: BaseException | None) -> None:
        self.delivered_before_the_end = self.delivered
        self.reasons.put(reason)

    def take(self, count: int) -> list[Any]:
        taken: list[Any] = []
        while len(taken) < count:
            taken += self.batches.get(timeout=WAIT)
        return taken

    def reason(self) -> BaseException | None:
        reason = self.reasons.get(timeout=WAIT)
        assert self.link.join(WAIT)
        assert self.reasons.empty()
        return reason


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    left, right = (End(s, n) for s, n in zip(socket.socketpair(), "lr", strict=True))
    left.link.start()
    right.link.start()
    yield left, right
    for end in (left, right):
        end.link.close()
        assert end.link.join(WAIT)


@pytest.fixture
def raw() -> Iterator[tuple[End, socket.socket]]:
    """A link whose peer is a bare socket."""
    ours, theirs = socket.socketpair()
    end = End(ours, "l", max_outbox=1 << 20)
    yield end, theirs
    theirs.close()
    end.link.close(flush_timeout=0)
    assert end.link.join(WAIT)


def test_messages_arrive_in_order_in_both_directions(ends: tuple[End, End]) -> None:
    left, right = ends

    for number in range(3000):
        left.link.send([number, "right"])
        right.link.send({"n": number})

    assert right.take(3000) == [[number, "right"] for number in range(3000)]
    assert left.take(3000) == [{"n": number} for number in range(3000)]


def test_senders_on_many_threads_keep_their_own_order(ends: tuple[End, End]) -> None:
    left, right = ends

    def send(sender: int) -> None:
        for number in range(500):
            left.link.send((sender, number))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)

    arrived = right.take(2000)
    for sender in range(4):
        assert [n for s, n in arrived if s == sender] == list(range(500))


def test_everything_that_waited_is_handed_over_in_one_call(raw: tuple[End, socket.socket]) -> None:
    end, peer = raw
    peer.sendall(encode_batch([codec.encode(1), codec.encode(2)]) + encode_batch([codec.encode(3)]))

    end.link.start()

    assert end.batches.get(timeout=WAIT) == [1, 2, 3]


def test_a_message_that_cannot_be_encoded_fails_at_its_sender_only(ends: tuple[End, End]) -> None:
    left, right = ends

    with pytest.raises(MessageError, match=r"\$\.callback"):
        left.link.send({"callback": print})

    left.link.send("next")
    assert right.take(1) == ["next"]


def test_messages_larger_than_the_socket_buffer_do_not_block_the_sender(
    raw: tuple[End, socket.socket],
) -> None:
    end, peer = raw
    end.link.start()
    large = b"x" * (4 << 20)

    end.link.send(large)  # returns although nobody reads
    end.link.send("after")

    expected = encode_batch([codec.encode(large)]) + encode_batch([codec.encode("after")])
    received = bytearray()
    while len(received) < len(expected):
        received += peer.recv(1 << 20)
    assert received == expected


def test_a_peer_that_does_not_read_closes_the_link_with_a_reason(
    raw: tuple[End, socket.socket],
) -> None:
    end, _peer = raw
    end.link.start()
    chunk = codec.encode(b"x" * 10_000)

    def send_on() -> None:
        for _ in range(1000):
            end.link.send_packed(chunk)

    with pytest.raises(LinkClosed, match="the peer does not read"):
        send_on()
    assert isinstance(end.reason(), LinkStalled)
    with pytest.raises(LinkClosed):
        end.link.send(1)


def test_close_writes_what_is_queued_first(ends: tuple[End, End]) -> None:
    left, right = ends
    for number in range(200):
        left.link.send(number)

    assert left.link.close()

    assert right.take(200) == list(range(200))
    assert right.reason() is None
    assert left.reason() is None


def test_close_gives_up_on_a_peer_that_does_not_read(raw: tuple[End, socket.socket]) -> None:
    end, _peer = raw
    end.link.start()
    end.link.send(b"x" * (2 << 20))

    assert not end.link.close(flush_timeout=0.01)

    assert end.reason() is None


def test_close_is_idempotent_and_wakes_the_reader(ends: tuple[End, End]) -> None:
    left, right = ends

    assert left.link.close()
    assert left.link.close()

    assert left.reason() is None
    assert right.reason() is None
    assert left.link.closed
    with pytest.raises(LinkClosed, match="link l is closed"):
        left.link.send(1)


def test_a_link_that_was_never_started_can_be_closed(raw: tuple[End, socket.socket]) -> None:
    end, peer = raw

    end.link.close()

    assert peer.recv(1) == b""
    end.link.run()
    assert end.reason() is None


def test_the_end_comes_after_all_that_was_sent_before_it(raw: tuple[End, socket.socket]) -> None:
    end, peer = raw
    peer.sendall(b"".join(encode_batch([codec.encode(n)]) for n in range(1000)))
    peer.close()

    end.link.start()

    assert end.reason() is None
    assert end.delivered_before_the_end == 1000


def test_what_the_peer_sent_is_delivered_even_if_a_send_fails_first(
    raw: tuple[End, socket.socket],
) -> None:
    end, peer = raw
    peer.sendall(encode_batch([codec.encode("last words")]))
    peer.close()

    end.link.send("too late")  # meets EPIPE
    end.link.start()

    assert end.reason() is None
    assert end.take(1) == ["last words"]
    with pytest.raises(LinkClosed):
        end.link.send("later still")


def test_a_peer_that_ends_with_our_messages_unread_is_an_ordinary_end(
    raw: tuple[End, socket.socket],
) -> None:
    end, peer = raw
    end.link.start()
    end.link.send("never read")

    peer.close()  # ECONNRESET

    assert end.reason() is None


@pytest.mark.parametrize(
    ("stream", "problem"),
    [(b"\xff\xff\xff\xff", "not a frame"), (b"\0\0\0\x09\x01", "ended inside a frame")],
)
def test_damaged_frames_close_the_link(
    raw: tuple[End, socket.socket], stream: bytes, problem: str
) -> None:
    end, peer = raw
    end.link.start()

    peer.sendall(stream)
    peer.shutdown(socket.SHUT_WR)

    reason = end.reason()
    assert isinstance(reason, ProtocolError)
    assert problem in str(reason)


def test_an_exception_of_on_messages_closes_the_link_with_it() -> None:
    ours, theirs = socket.socketpair()
    reasons: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def fail(messages: list[Any]) -> None:
        raise ZeroDivisionError(messages)

    link = Link(ours, on_messages=fail, on_close=reasons.put, name="failing")
    link.start()
    theirs.sendall(encode_batch([codec.encode(1)]))

    assert isinstance(reasons.get(timeout=WAIT), ZeroDivisionError)
    assert theirs.recv(1) == b""
    with pytest.raises(LinkClosed, match="failing is closed"):
        link.send(1)
    assert link.join(WAIT)
    theirs.close()


def test_a_link_can_be_closed_from_its_own_callback() -> None:
    ours, theirs = socket.socketpair()
    reasons: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    reason = RuntimeError("enough")

    def answer_and_close(messages: list[Any]) -> None:
        link.send("bye")
        link.close(reason=reason)

    link = Link(ours, on_messages=answer_and_close, on_close=reasons.put, name="polite")
    link.start()
    theirs.sendall(encode_batch([codec.encode(1)]))

    assert theirs.recv(100) == encode_batch([codec.encode("bye")])
    assert reasons.get(timeout=WAIT) is reason
    assert link.join(WAIT)
    theirs.close()


def test_a_forked_child_does_not_keep_the_link_open(ends: tuple[End, End]) -> None:
    """The worker would not see the end of its supervisor while such a child lives."""
    left, right = ends
    goes_on, wait_for_it = os.pipe()
    child = os.fork()
    if not child:
        os.close(wait_for_it)
        os.read(goes_on, 1)  # until the parent closes its end
        os._exit(0 if left.link.closed else 1)

    left.link.close()
    assert right.reason() is None

    os.close(goes_on)
    os.close(wait_for_it)
    assert os.waitpid(child, 0)[1] == 0


def test_queued_messages_wait_for_a_flush_and_keep_their_order(
    raw: tuple[End, socket.socket],
) -> None:
    end, peer = raw
    peer.setblocking(False)
    end.link.queue_packed(codec.encode(1))
    end.link.queue_packed(codec.encode(2))
    with pytest.raises(BlockingIOError):
        peer.recv(1)

    end.link.flush()
    assert peer.recv(100) == encode_batch([codec.encode(1), codec.encode(2)])

    end.link.queue_packed(codec.encode(3))
    end.link.send(4)
    assert peer.recv(100) == encode_batch([codec.encode(3), codec.encode(4)])

    end.link.queue_packed(codec.encode(5))
    assert end.link.close()
    assert peer.recv(100) == encode_batch([codec.encode(5)])
    end.link.flush()
    with pytest.raises(LinkClosed):
        end.link.queue_packed(codec.encode(6))
