"""The mailbox: lanes, limit, doorbell, and the races of scheduling and closing."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pykka import ActorDeadError
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from dsh_actors.actors import Mailbox, StopFlag
from dsh_actors.errors import InboxFull

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorder:
    """A dispatcher that only counts, and the actor that it is given."""

    forked = False

    def __init__(self) -> None:
        self.submitted: list[Any] = []

    def submit(self, actor: Any) -> None:
        self.submitted.append(actor)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def mailbox(recorder: Recorder) -> Mailbox:
    return opened(recorder)


def opened(recorder: Recorder, limit: int | None = None) -> Mailbox:
    mailbox = Mailbox(limit)
    mailbox.attach("actor", recorder, visit=False)  # type: ignore[arg-type]
    return mailbox


def contents(mailbox: Mailbox) -> Iterator[Any]:
    while not mailbox.empty():
        yield mailbox.get().message


def test_control_messages_come_before_user_messages(mailbox: Mailbox) -> None:
    for message in (1, 2):
        mailbox.put(Envelope(message))
    mailbox.put_control(Envelope("a"))
    mailbox.put_control(Envelope("b"))
    assert len(mailbox) == 4
    assert list(contents(mailbox)) == ["a", "b", 1, 2]
    with pytest.raises(queue.Empty):
        mailbox.get()


def test_it_is_submitted_once_until_the_visit_ends(mailbox: Mailbox, recorder: Recorder) -> None:
    mailbox.put(Envelope(1))
    mailbox.put(Envelope(2))
    mailbox.ring()
    assert recorder.submitted == ["actor"]
    mailbox.rung = False
    list(contents(mailbox))
    assert not mailbox.leave()
    mailbox.put_control(Envelope(3))
    assert recorder.submitted == ["actor", "actor"]
    assert mailbox.leave()  # something is left: the visitor keeps it


def test_what_is_put_before_the_start_makes_it_due_at_the_start(recorder: Recorder) -> None:
    mailbox = Mailbox()
    mailbox.put(Envelope(1))
    assert recorder.submitted == []
    mailbox.attach("actor", recorder, visit=False)  # type: ignore[arg-type]
    assert recorder.submitted == ["actor"]


def test_a_full_lane_refuses_user_messages_only(recorder: Recorder) -> None:
    mailbox = opened(recorder, limit=2)
    mailbox.put(Envelope(1))
    mailbox.put(Envelope(2))
    with pytest.raises(InboxFull, match="2 messages waiting"):
        mailbox.put(Envelope(3))
    mailbox.put(Envelope(_ActorStop()))
    mailbox.put_control(Envelope("c"))
    assert mailbox.ring()
    assert list(contents(mailbox)) == ["c", 1, 2, _ActorStop()]


@pytest.mark.behaviour(31)
def test_a_closed_mailbox_refuses(mailbox: Mailbox, recorder: Recorder) -> None:
    mailbox.put(Envelope(1))
    mailbox.close()
    for put in (mailbox.put, mailbox.put_control):
        with pytest.raises(ActorDeadError, match="not found"):
            put(Envelope(2))
    assert not mailbox.ring()
    assert mailbox.is_set()
    assert [envelope.message for envelope in mailbox.drain()] == [1]
    assert recorder.submitted == ["actor"]


def test_a_close_from_outside_makes_it_due_so_that_somebody_clears_up(
    mailbox: Mailbox, recorder: Recorder
) -> None:
    mailbox.close()
    assert recorder.submitted == ["actor"]


def test_an_unused_mailbox_has_no_queues(mailbox: Mailbox) -> None:
    mailbox.ring()
    assert mailbox.user is None
    assert mailbox.control is None


@pytest.mark.behaviour(31)
def test_each_envelope_is_taken_or_refused_when_puts_race_the_close() -> None:
    for _ in range(150):
        mailbox = opened(Recorder())
        barrier = threading.Barrier(4)
        refused: list[int] = []
        drained: list[int] = []

        def send(
            base: int,
            mailbox: Mailbox = mailbox,
            barrier: threading.Barrier = barrier,
            refused: list[int] = refused,
        ) -> None:
            barrier.wait()
            for number in range(base, base + 20):
                try:
                    (mailbox.put if number % 2 else mailbox.put_control)(Envelope(number))
                except ActorDeadError:
                    refused.append(number)

        senders = [threading.Thread(target=send, args=(base,)) for base in (0, 100, 200)]
        for sender in senders:
            sender.start()
        barrier.wait()
        mailbox.close()
        drained += [envelope.message for envelope in mailbox.drain()]
        for sender in senders:
            sender.join()
        assert mailbox.empty()
        sent = [base + number for base in (0, 100, 200) for number in range(20)]
        assert sorted(refused + drained) == sent


def test_no_wake_up_is_lost_when_puts_race_the_end_of_a_visit() -> None:
    due: queue.SimpleQueue[Any] = queue.SimpleQueue()

    class Queueing(Recorder):
        def submit(self, actor: Any) -> None:
            due.put(actor)

    mailbox = opened(Queueing())
    total = 6000
    seen: list[int] = []
    overlaps: list[int] = []
    visiting = threading.Lock()

    def visit() -> None:
        while due.get() is not None:
            if not visiting.acquire(False):
                overlaps.append(1)
            seen.extend(contents(mailbox))
            visiting.release()
            if mailbox.leave():
                due.put("actor")

    visitors = [threading.Thread(target=visit) for _ in range(2)]
    senders = [
        threading.Thread(target=lambda: [mailbox.put(Envelope(n)) for n in range(total // 2)])
        for _ in range(2)
    ]
    for thread in visitors + senders:
        thread.start()
    for thread in senders:
        thread.join()
    deadline = threading.Event()
    for _ in range(5000):
        if len(seen) == total:
            break
        deadline.wait(0.001)
    for _ in visitors:
        due.put(None)
    for thread in visitors:
        thread.join()
    assert len(seen) == total
    assert not overlaps


def test_both_threads_that_make_a_lane_at_once_get_the_same() -> None:
    for _ in range(200):
        mailbox = opened(Recorder())
        barrier = threading.Barrier(2)

        def send(mailbox: Mailbox = mailbox, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            mailbox.put(Envelope(1))

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(mailbox) == 2


def test_a_stop_flag_wakes_all_that_wait() -> None:
    flag = StopFlag()
    assert not flag.wait(timeout=0.001)
    waiters = [threading.Thread(target=flag.wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    flag.set()
    for waiter in waiters:
        waiter.join(5)
        assert not waiter.is_alive()
    assert flag.wait(timeout=0)
    assert flag.is_set()


def test_a_stop_flag_misses_no_waiter_that_races_the_set() -> None:
    for _ in range(300):
        flag = StopFlag()
        waiter = threading.Thread(target=flag.wait)
        waiter.start()
        flag.set()
        waiter.join(5)
        assert not waiter.is_alive()
