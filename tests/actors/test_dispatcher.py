"""The dispatcher: fairness, blocks that are compensated, its caps, its end, forks."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from test_future import in_child

from dsh_actors.actors import Dispatcher, PooledActor, default_dispatcher, live_actors
from dsh_actors.errors import ForkedSystemError, SystemClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Caller(PooledActor):
    """Calls what it gets."""

    registered_with_pykka = False

    def on_receive(self, message: Any) -> Any:
        return message()


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    dispatcher = Dispatcher("test", threads=1, max_threads=300)
    yield dispatcher
    assert dispatcher.shutdown(timeout=5)


def test_it_starts_threads_only_when_there_is_something_to_run(dispatcher: Dispatcher) -> None:
    assert not dispatcher._threads
    Caller.start(dispatcher=dispatcher)
    assert not dispatcher._threads
    assert Caller.start(dispatcher=dispatcher).ask(threading.current_thread).daemon
    assert len(dispatcher._threads) == 1


def test_bounds_are_checked() -> None:
    with pytest.raises(UsageError, match="between 1 and max_threads"):
        Dispatcher(threads=0)
    with pytest.raises(UsageError, match=r"max_threads \(2\), not 3"):
        Dispatcher(threads=3, max_threads=2)


def test_a_busy_actor_leaves_room_for_others(dispatcher: Dispatcher) -> None:
    order: list[str] = []
    gate = threading.Event()
    busy = Caller.start(dispatcher=dispatcher)
    other = Caller.start(dispatcher=dispatcher)
    busy.tell(gate.wait)
    for _ in range(200):
        busy.tell(lambda: order.append("busy"))
    answer = other.ask(lambda: order.append("other"), block=False)
    gate.set()
    answer.get(timeout=5)
    busy.stop()
    assert order.index("other") <= 32


def test_a_declared_block_lets_others_run(dispatcher: Dispatcher) -> None:
    gate = threading.Event()
    started = threading.Event()

    def block() -> str:
        with dispatcher.blocking():
            started.set()
            gate.wait()
        return "done"

    blocked = [Caller.start(dispatcher=dispatcher).ask(block, block=False) for _ in range(5)]
    assert started.wait(5)
    assert Caller.start(dispatcher=dispatcher).ask(lambda: "free", timeout=5) == "free"
    gate.set()
    assert [future.get(timeout=5) for future in blocked] == ["done"] * 5


def test_an_undeclared_block_is_noticed(dispatcher: Dispatcher) -> None:
    gate = threading.Event()
    blocked = [Caller.start(dispatcher=dispatcher).ask(gate.wait, block=False) for _ in range(3)]
    assert Caller.start(dispatcher=dispatcher).ask(lambda: "free", timeout=5) == "free"
    gate.set()
    assert all(future.get(timeout=5) for future in blocked)


def test_short_blocks_add_no_thread(dispatcher: Dispatcher) -> None:
    def block() -> None:
        dispatcher.enter_blocking()
        dispatcher.exit_blocking()

    actors = [Caller.start(dispatcher=dispatcher) for _ in range(10)]
    for _ in range(100):
        for actor in actors:
            actor.tell(block)
    for actor in actors:
        actor.ask(int)
    assert len(dispatcher._threads) <= 2  # a loaded machine may stop a thread inside a block


def test_blocks_outside_of_a_dispatcher_thread_are_nothing(dispatcher: Dispatcher) -> None:
    with dispatcher.blocking():
        assert Caller.start(dispatcher=dispatcher).ask(lambda: 1) == 1


def nested(dispatcher: Dispatcher, depth: int) -> int:
    if depth == 0:
        return 0
    ref = Caller.start(dispatcher=dispatcher)
    answer: int = 1 + ref.ask(lambda: nested(dispatcher, depth - 1))
    ref.stop()
    return answer


def test_asks_nest_far_deeper_than_there_are_threads(dispatcher: Dispatcher) -> None:
    assert nested(dispatcher, 200) == 200
    assert 200 <= len(dispatcher._threads) <= 202


def test_several_deep_chains_at_once(dispatcher: Dispatcher) -> None:
    refs = [Caller.start(dispatcher=dispatcher) for _ in range(4)]
    answers = [ref.ask(lambda: nested(dispatcher, 30), block=False) for ref in refs]
    assert [answer.get(timeout=20) for answer in answers] == [30] * 4


def test_too_deep_a_nest_fails_instead_of_hanging() -> None:
    dispatcher = Dispatcher("small", threads=1, max_threads=4)
    with pytest.raises(UsageError, match="all 4 threads of the dispatcher 'small' would wait"):
        nested(dispatcher, 10)
    assert nested(dispatcher, 3) == 3
    assert dispatcher.shutdown(timeout=5)


def test_blocks_at_the_cap_are_logged_and_end_by_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dispatcher = Dispatcher("small", threads=1, max_threads=2)
    gate = threading.Event()

    def block() -> None:
        with dispatcher.blocking():
            gate.wait()

    with caplog.at_level(logging.ERROR, "dsh_actors"):
        answers = [Caller.start(dispatcher=dispatcher).ask(block, block=False) for _ in range(4)]
        deadline = time.monotonic() + 5
        while "all of its 2 threads are blocked" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    gate.set()
    for answer in answers:
        answer.get(timeout=5)
    assert len(caplog.records) == 1
    assert dispatcher.shutdown(timeout=5)


def test_superfluous_threads_end(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsh_actors.actors.dispatcher._KEEP_ALIVE", 0.01)
    nested(dispatcher, 20)
    deadline = time.monotonic() + 5
    while len(dispatcher._threads) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert nested(dispatcher, 5) == 5


def test_superfluous_threads_end_under_a_light_load_too(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_actors.actors.dispatcher._KEEP_ALIVE", 0.05)
    nested(dispatcher, 20)
    ref = Caller.start(dispatcher=dispatcher)
    deadline = time.monotonic() + 5
    while len(dispatcher._threads) > 2:
        assert time.monotonic() < deadline
        ref.ask(int)


def test_a_message_that_races_the_end_of_the_only_free_thread_is_served(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender saw the thread idle, so it woke nobody else, and then the thread timed out."""
    monkeypatch.setattr("dsh_actors.actors.dispatcher._KEEP_ALIVE", 0.001)
    gate = threading.Event()

    def block() -> None:
        with dispatcher.blocking():
            gate.wait()

    blocked = Caller.start(dispatcher=dispatcher).ask(block, block=False)
    ref = Caller.start(dispatcher=dispatcher)
    pause = threading.Event()
    for turn in range(150):
        pause.wait(0.0008 + turn % 10 * 0.00005)  # about as long as a thread stays idle
        assert ref.ask(lambda: 1, timeout=5) == 1
    gate.set()
    blocked.get(timeout=5)


def test_an_idle_thread_keeps_no_actor_alive(dispatcher: Dispatcher) -> None:
    import weakref

    ref = Caller.start(dispatcher=dispatcher)
    gone = weakref.ref(ref._actor_weakref())
    ref.ask(int)
    ref.stop()
    Caller.start(dispatcher=dispatcher).ask(int)  # its thread has left the first one
    assert gone() is None


def test_shutdown_stops_what_runs_and_refuses_the_rest() -> None:
    dispatcher = Dispatcher("test")
    gate = threading.Event()
    stuck = Caller.start(dispatcher=dispatcher)
    running = stuck.ask(gate.wait, block=False)
    waiting = stuck.ask(int, block=False)
    idle = Caller.start(dispatcher=dispatcher)
    assert not dispatcher.shutdown(timeout=0.01)
    assert not stuck.is_alive()
    assert not idle.is_alive()
    with pytest.raises(Exception, match="stopped before"):
        waiting.get(timeout=5)
    gate.set()
    assert running.get(timeout=5)
    assert dispatcher.shutdown(timeout=5)
    assert not [actor for actor in live_actors() if actor.dispatcher is dispatcher]
    with pytest.raises(SystemClosed, match="'test' is shut down"):
        Caller.start(dispatcher=dispatcher)


def test_an_actor_cannot_shut_its_own_dispatcher_down(dispatcher: Dispatcher) -> None:
    with pytest.raises(UsageError, match="by one of its own actors"):
        Caller.start(dispatcher=dispatcher).ask(dispatcher.shutdown)


def test_starts_that_race_a_shutdown_are_refused_or_stopped() -> None:
    for _ in range(30):
        dispatcher = Dispatcher("race")
        refs: list[Any] = []
        begun = threading.Event()

        def spawn(
            dispatcher: Dispatcher = dispatcher,
            refs: list[Any] = refs,
            begun: threading.Event = begun,
        ) -> None:
            while True:
                try:
                    refs.append(Caller.start(dispatcher=dispatcher))
                except SystemClosed:
                    return
                begun.set()

        spawner = threading.Thread(target=spawn)
        spawner.start()
        begun.wait()
        assert dispatcher.shutdown(timeout=5)
        spawner.join(5)
        assert not spawner.is_alive()
        assert not any(ref.is_alive() for ref in refs)


def test_the_default_dispatcher_is_made_anew_after_a_shutdown() -> None:
    first = default_dispatcher()
    assert default_dispatcher() is first
    first.shutdown(timeout=5)
    assert default_dispatcher() is not first
    assert Caller.start().ask(lambda: 1) == 1
    for actor in live_actors():
        actor.end_now().result(5)


def test_an_error_thrown_into_a_dispatcher_thread_fails_only_the_actor_at_hand(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Caller):
        def serve(self) -> bool:
            raise KeyboardInterrupt("thrown in")

    broken = Broken.start(dispatcher=dispatcher)
    answer = broken.ask(int, block=False)
    with pytest.raises(Exception, match="stopped before handling"):
        answer.get(timeout=5)
    assert not broken.is_alive()
    assert Caller.start(dispatcher=dispatcher).ask(lambda: 1) == 1
    assert "goes on" in caplog.text


def test_a_forked_child_is_refused_what_belongs_to_its_parent(dispatcher: Dispatcher) -> None:
    ref = Caller.start(dispatcher=dispatcher)
    shared = Caller.start()
    assert ref.ask(int) == shared.ask(int) == 0

    def use() -> None:
        for send in (ref.tell, ref.ask, ref.tell_now, shared.ask):
            with pytest.raises(ForkedSystemError):
                send(int)
        for end in (ref.stop, ref.stop_now, ref.actor_inbox.ring, dispatcher.shutdown):
            with pytest.raises(ForkedSystemError):
                end()
        with pytest.raises(ForkedSystemError):
            Caller.start(dispatcher=dispatcher)
        assert not live_actors()
        fresh = Caller.start()
        assert fresh.ask(lambda: 5, timeout=5) == 5
        assert fresh.stop(timeout=5)

    assert in_child(use) == 0
    assert ref.ask(int) == 0
    shared.stop()


def test_a_child_forked_by_an_actor_can_use_new_actors(dispatcher: Dispatcher) -> None:
    ref = Caller.start(dispatcher=dispatcher)
    assert ref.ask(lambda: in_child(lambda: Caller.start().ask(int, timeout=5))) == 0


EXIT = """
import sys, threading
from dsh_actors.actors import PooledActor

class Caller(PooledActor):
    def on_receive(self, message):
        return message()

idle = Caller.start()
idle.ask(int)
busy = Caller.start()
def again():
    busy.tell(again)
busy.tell(again)
stuck = Caller.start()
stuck.tell(threading.Event().wait)
print("end", flush=True)
"""


def test_running_actors_do_not_hold_up_the_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=10, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
