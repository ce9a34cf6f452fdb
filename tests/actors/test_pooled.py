"""The pooled actor: Pykka's contract, its own lanes, and every end."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from pykka import ActorDeadError, ActorRegistry
from test_future import wait_until

from dsh_actors.actors import (
    DeadLetter,
    PooledActor,
    dead_letter_count,
    live_actors,
    live_count,
    set_dead_letter_listener,
    set_failure_listener,
)
from dsh_actors.errors import AskCycle, InboxFull

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorder(PooledActor):
    """Notes what happens to it; calls callables, raises exceptions, echoes the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def on_start(self) -> None:
        self.events.append("start")

    def on_stop(self) -> None:
        self.events.append("stop")

    def on_failure(self, *exc_info: Any) -> None:
        self.events.append(exc_info[1])

    def on_doorbell(self) -> None:
        self.events.append("bell")

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        if callable(message):
            return message()
        self.events.append(message)
        return message


@pytest.fixture
def actor() -> Iterator[Recorder]:
    actor = Recorder()
    actor.launch()
    yield actor
    actor.end_now().result(5)
    assert not live_count()


@pytest.fixture
def failures() -> Iterator[list[tuple[PooledActor, BaseException]]]:
    failures: list[tuple[PooledActor, BaseException]] = []
    previous = set_failure_listener(lambda actor, error: failures.append((actor, error)))
    yield failures
    set_failure_listener(previous)


@pytest.fixture
def dead_letters() -> Iterator[list[DeadLetter]]:
    letters: list[DeadLetter] = []
    previous = set_dead_letter_listener(letters.append)
    yield letters
    set_dead_letter_listener(previous)


def hold(actor: PooledActor) -> threading.Event:
    """Keep the actor busy until the event is set."""
    gate, started = threading.Event(), threading.Event()
    actor.actor_ref.tell(lambda: (started.set(), gate.wait()))
    assert started.wait(5)
    return gate


def test_a_life(actor: Recorder) -> None:
    ref = actor.actor_ref
    ref.tell(1)
    assert ref.ask(2) == 2
    assert ref.stop()
    assert not ref.stop()
    assert not ref.is_alive()
    assert actor.events == ["start", 1, 2, "stop"]
    with pytest.raises(ActorDeadError, match="not found"):
        ref.tell(3)


def test_names_are_uuids_and_unique() -> None:
    actors = [Recorder() for _ in range(100)]
    assert len({uuid.UUID(actor.actor_urn) for actor in actors}) == 100
    assert uuid.UUID(actors[0].actor_urn).version == 4
    assert str(actors[0]) == str(actors[0].actor_ref) == f"Recorder ({actors[0].actor_urn})"


def test_a_reference_keeps_no_actor_alive_and_the_registry_does() -> None:
    ref = Recorder.start()
    assert ref._actor_weakref() is not None
    ref.stop()
    wait_until(lambda: ref._actor_weakref() is None)  # its thread may just be leaving it


@pytest.mark.behaviour(25)
def test_order_of_one_sender_is_kept(actor: Recorder) -> None:
    for number in range(500):
        actor.actor_ref.tell(number)
    actor.actor_ref.ask(-1)
    assert actor.events == ["start", *range(500), -1]


def test_it_is_never_run_by_two_threads_at_once() -> None:
    class Exclusive(PooledActor):
        def __init__(self) -> None:
            super().__init__()
            self.lock, self.seen, self.threads = threading.Lock(), 0, set()

        def on_receive(self, message: Any) -> None:
            assert self.lock.acquire(False)
            self.seen += 1
            self.threads.add(threading.get_ident())
            self.lock.release()

        on_doorbell = lambda self: self.on_receive(None)  # noqa: E731

    actor = Exclusive()
    actor.launch()

    def send() -> None:
        for _ in range(500):
            actor.actor_ref.tell(1)
            actor.actor_inbox.ring()

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert actor.actor_ref.stop(timeout=10)
    assert actor.seen >= 2000


def test_control_messages_and_the_doorbell_come_first(actor: Recorder) -> None:
    gate = hold(actor)
    ref = actor.actor_ref
    ref.tell(1)
    ref.tell_now("now")
    actor.actor_inbox.ring()
    actor.actor_inbox.ring()
    gate.set()
    ref.ask(2)
    assert actor.events == ["start", "bell", "now", 1, 2]


def test_stop_now_does_not_wait_for_the_backlog(
    actor: Recorder, dead_letters: list[DeadLetter]
) -> None:
    gate = hold(actor)
    ref = actor.actor_ref
    before = dead_letter_count()
    for number in range(100):
        ref.tell(number)
    answer = ref.ask("asked", block=False)
    end = ref.stop_now(block=False)
    late = ref.stop(block=False)
    gate.set()
    assert end.get(timeout=5)
    assert late.get(timeout=5)
    with pytest.raises(ActorDeadError, match="stopped before handling"):
        answer.get(timeout=5)
    assert actor.events == ["start", "stop"]
    assert dead_letter_count() - before == 101
    assert [letter.message for letter in dead_letters] == [*range(100), "asked"]
    assert dead_letters[-1] == DeadLetter(actor.actor_urn, "asked", asked=True)


def test_a_full_inbox_is_the_senders_error() -> None:
    class Small(Recorder):
        inbox_limit = 2

    actor = Small()
    actor.launch()
    gate = hold(actor)
    ref = actor.actor_ref
    ref.tell(1)
    ref.tell(2)
    with pytest.raises(InboxFull):
        ref.tell(3)
    refused = ref.ask(4, block=False)
    with pytest.raises(InboxFull):
        refused.get(timeout=0)
    gate.set()
    assert ref.stop()
    assert actor.events == ["start", 1, 2, "stop"]


def test_an_error_of_an_asked_handler_is_the_askers(actor: Recorder, failures: list[Any]) -> None:
    with pytest.raises(ValueError, match="asked"):
        actor.actor_ref.ask(ValueError("asked"))
    assert actor.actor_ref.ask(1) == 1
    assert not failures


@pytest.mark.parametrize("error", [ValueError("told"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_of_a_told_handler_stops_the_actor_and_is_reported(
    actor: Recorder, failures: list[Any], error: BaseException
) -> None:
    actor.actor_ref.tell(error)
    actor.when_ended().result(5)
    assert actor.events == ["start", error]
    assert failures == [(actor, error)]


def test_a_base_exception_answers_the_asker_and_stops_this_actor_alone(
    actor: Recorder, failures: list[Any]
) -> None:
    other = Recorder.start()
    error = SystemExit(3)
    answer = actor.actor_ref.ask(error, block=False)
    assert answer.exception(5) is error
    actor.when_ended().result(5)
    assert failures == [(actor, error)]
    assert other.ask(1) == 1
    other.stop()


@pytest.mark.parametrize("hook", ["on_start", "on_stop", "on_doorbell"])
def test_a_failing_hook_ends_the_actor_and_is_reported(
    hook: str, failures: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    error = RuntimeError(hook)

    def fail(self: PooledActor) -> None:
        raise error

    actor = type("Failing", (Recorder,), {hook: fail})()
    actor.launch()
    actor.actor_inbox.ring()
    actor.end_now().result(5)
    assert actor.actor_stopped.wait(0)
    assert failures == [(actor, error)]
    assert "Unhandled exception in Failing" in caplog.text


def test_an_actor_with_its_own_failure_listener_tells_only_that(failures: list[Any]) -> None:
    told = threading.Event()

    class Watched(Recorder):
        failure_listener = staticmethod(lambda actor, error: told.set())

    Watched.start().tell(ValueError())
    assert told.wait(5)
    assert not failures


def test_a_failing_listener_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(actor: PooledActor, error: BaseException) -> None:
        raise RuntimeError("in the listener")

    previous = set_failure_listener(broken)
    ref = Recorder.start()
    actor = ref._actor_weakref()
    assert actor is not None
    ref.tell(ValueError())
    actor.when_ended().result(5)
    set_failure_listener(previous)
    assert "in the listener" in caplog.text


def test_a_wake_between_stop_and_ring_is_not_an_error(actor: Recorder) -> None:
    actor.actor_ref.stop()
    assert not actor.actor_inbox.ring()
    assert "bell" not in actor.events


def test_a_stop_during_the_last_hook_waits_for_its_end() -> None:
    gate, entered = threading.Event(), threading.Event()

    class Slow(Recorder):
        def on_stop(self) -> None:
            entered.set()
            gate.wait()
            assert self.actor_ref.stop() is False  # from inside it does not wait for itself
            super().on_stop()

    actor = Slow()
    actor.launch()
    first = actor.actor_ref.stop(block=False)
    assert entered.wait(5)
    assert not actor.actor_ref.is_alive()
    later = [actor.actor_ref.stop(block=False), actor.actor_ref.stop_now(block=False)]
    with pytest.raises(pykka.Timeout):
        later[0].get(timeout=0.001)
    assert actor.when_ended() is actor.end_now()
    gate.set()
    assert first.get(timeout=5) is True
    assert [stop.get(timeout=5) for stop in later] == [False, False]
    assert actor.events == ["start", "stop"]


def test_an_actor_that_asks_itself_is_told_so(actor: Recorder) -> None:
    with pytest.raises(AskCycle, match="asks itself"):
        actor.actor_ref.ask(lambda: actor.actor_ref.ask(1))
    with pytest.raises(AskCycle):
        actor.actor_ref.ask(actor.actor_ref.stop)


def test_an_answer_that_came_too_late_is_nobodys_failure(
    actor: Recorder, failures: list[Any]
) -> None:
    gate = hold(actor)
    answer = actor.actor_ref.ask(1, block=False)
    answer.set_result("given up")
    gate.set()
    assert actor.actor_ref.ask(2) == 2
    assert not failures


@pytest.mark.behaviour(31)
def test_every_ask_resolves_when_it_races_the_stop() -> None:
    outcomes = {"answered": 0, "dead": 0}
    for turn in range(1000):
        ref = Recorder.start()
        barrier = threading.Barrier(2) if turn % 10 == 0 else None
        answers: list[Any] = []

        def send(ref: Any = ref, answers: list[Any] = answers, barrier: Any = barrier) -> None:
            if barrier is not None:
                barrier.wait()
            answers.extend(ref.ask(number, block=False) for number in range(5))

        if barrier is None:
            stop = ref.stop(block=False) if turn % 3 else ref.stop_now(block=False)
            send()
        else:
            sender = threading.Thread(target=send)
            sender.start()
            barrier.wait()
            stop = ref.stop(block=False)
            sender.join()
        assert stop.get(timeout=5) is True
        for answer in answers:
            error = answer.exception(timeout=5)
            assert error is None or isinstance(error, ActorDeadError)
            outcomes["dead" if error else "answered"] += 1
    assert sum(outcomes.values()) == 5000
    assert not live_count()


def test_an_idle_actor_retires_at_once(actor: Recorder) -> None:
    actor.actor_ref.ask(1)
    wait_until(lambda: not actor.actor_inbox._scheduled.locked())
    actor.retire()
    assert actor.when_ended().done()
    assert not live_count()
    assert not actor.actor_ref.stop()
    actor.retire()
    assert actor.events == ["start", 1]


def test_a_busy_actor_retires_when_its_handler_returns(actor: Recorder) -> None:
    gate = hold(actor)
    answer = actor.actor_ref.ask(1, block=False)
    actor.retire()
    assert not actor.when_ended().done()
    gate.set()
    actor.when_ended().result(5)
    with pytest.raises(ActorDeadError):
        answer.get(timeout=0)


def test_every_ask_and_ring_that_races_a_retirement_ends() -> None:
    for _ in range(300):
        actor = Recorder()
        actor.launch()
        answers: list[Any] = []

        def send(actor: Recorder = actor, answers: list[Any] = answers) -> None:
            for number in range(10):
                answers.append(actor.actor_ref.ask(number, block=False))
                actor.actor_inbox.ring()

        sender = threading.Thread(target=send)
        sender.start()
        actor.retire()
        sender.join()
        actor.when_ended().result(5)
        for answer in answers:
            assert isinstance(answer.exception(5), ActorDeadError | None)


@pytest.mark.behaviour(31)
def test_every_tell_is_handled_refused_or_a_dead_letter(dead_letters: list[DeadLetter]) -> None:
    for _ in range(100):
        dead_letters.clear()
        actor = Recorder()
        actor.launch()
        ref = actor.actor_ref
        refused: list[int] = []
        barrier = threading.Barrier(3)

        def send(
            base: int,
            ref: Any = ref,
            refused: list[int] = refused,
            barrier: threading.Barrier = barrier,
        ) -> None:
            barrier.wait()
            for number in range(base, base + 20):
                try:
                    ref.tell(number)
                except ActorDeadError:
                    refused.append(number)

        senders = [threading.Thread(target=send, args=(base,)) for base in (0, 100)]
        for sender in senders:
            sender.start()
        barrier.wait()
        assert ref.stop(timeout=5)
        for sender in senders:
            sender.join()
        handled = [event for event in actor.events if isinstance(event, int)]
        accounted = handled + refused + [letter.message for letter in dead_letters]
        assert sorted(accounted) == [*range(20), *range(100, 120)]


def test_pykka_sees_an_actor_unless_it_is_hidden() -> None:
    class Hidden(Recorder):
        registered_with_pykka = False

    seen, hidden = Recorder.start(), Hidden.start()
    assert seen in ActorRegistry.get_all()
    assert hidden not in ActorRegistry.get_all()
    assert {type(actor) for actor in live_actors()} == {Recorder, Hidden}
    ActorRegistry.stop_all()
    assert not seen.is_alive()
    assert hidden.ask(1) == 1
    assert hidden.stop()


def test_pykkas_registry_keeps_what_it_had_and_its_order() -> None:
    old = list(ActorRegistry._actor_refs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActorRegistry, "_actor_refs", [*old])
        threaded = pykka.ThreadingActor.start()
        refs = [Recorder.start() for _ in range(3)]
        assert type(ActorRegistry._actor_refs) is not list
        assert ActorRegistry.get_all() == [*old, threaded, *refs]
        assert ActorRegistry.get_by_urn(refs[1].actor_urn) is refs[1]
        assert ActorRegistry.get_by_class(PooledActor) == refs
        ActorRegistry.stop_all()
        ActorRegistry.unregister(threaded)
        assert ActorRegistry.get_all() == old


def test_it_works_through_a_proxy(actor: Recorder) -> None:
    proxy = actor.actor_ref.proxy()
    proxy.label = "x"
    assert proxy.label.get() == "x"
    assert proxy.on_receive(5).get() == 5
    assert proxy.actor_urn.get() == actor.actor_urn


def test_it_talks_with_threading_actors_both_ways(actor: Recorder) -> None:
    class Threaded(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return message()

    threaded = Threaded.start()
    assert threaded.ask(lambda: actor.actor_ref.ask(1)) == 1
    assert actor.actor_ref.ask(lambda: threaded.ask(lambda: 2)) == 2
    threaded.stop()


def test_a_constructor_that_forgets_super_is_told_so() -> None:
    class Forgetful(PooledActor):
        def __init__(self) -> None:
            pass

    with pytest.raises(AssertionError, match="does not call super"):
        Forgetful.start()


def test_rounds_of_start_and_stop_leave_nothing() -> None:
    for _ in range(20):
        ends = [Recorder.start().stop(block=False) for _ in range(100)]
        assert all(end.get(timeout=5) for end in ends)
    assert not live_count()
    assert not ActorRegistry.get_all()


def test_a_pending_log_level_costs_no_failure(
    actor: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "pykka"):
        ref = Recorder.start()
        ref.stop()
    assert f"Starting {ref}" in caplog.text
    assert f"Stopped {ref}" in caplog.text
