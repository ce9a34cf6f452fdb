"""Listeners that fail, hang, re-enter or come late; and the announcement of a cancel."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.supervisor import notifier
from tests.supervisor.lives import ENDS, Heard, echo, nothing_left
from tests.watching import PATIENCE, Gate, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def system() -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1) as made:
        yield made


def fails(event: dsh.LifeEvent) -> None:
    raise ValueError(event.name)


def test_an_unknown_event_is_named(system: dsh.ActorSystem) -> None:
    with pytest.raises(dsh.UsageError, match="session/created"):
        system.on("agent/creatd", echo)  # type: ignore[arg-type]


def test_a_listener_is_taken_out_once(system: dsh.ActorSystem) -> None:
    heard: list[str] = []

    def listener(event: dsh.LifeEvent) -> None:
        heard.append(event.name)

    first = system.on("agent/created", listener)
    system.on("agent/created", listener)
    first()
    first()
    system.create(echo)
    assert heard == ["agent/created"]


def test_whoever_comes_late_hears_of_the_end(system: dsh.ActorSystem) -> None:
    handle = system.create(echo, id="a")
    heard = Heard(system)
    handle.dispose().result(PATIENCE)
    assert heard.of("a") == ENDS


# -- disposed --------------------------------------------------------------------------------------


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_a_failing_listener_of_an_end_changes_nothing(
    system: dsh.ActorSystem, error: BaseException
) -> None:
    def raises(event: dsh.LifeEvent) -> None:
        raise error

    for event in ENDS:
        system.on(event, raises)
    heard = Heard(system)
    for _ in range(3):
        assert system.create(echo, id="a").dispose().result(PATIENCE).complete
    assert heard.of("a")[-2:] == ENDS
    assert len(heard.of("a")) == 3 * 5
    nothing_left(system)


@pytest.mark.behaviour(41)
def test_a_hanging_listener_of_an_end_is_left_behind(
    system: dsh.ActorSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delays one teardown by its deadline, and the next ones by nothing."""
    monkeypatch.setattr(notifier, "LISTENER_DEADLINE", 0.05)
    gate = Gate()
    hung: list[str] = []

    def hangs(event: dsh.LifeEvent) -> None:
        hung.append(event.agent.id)
        gate.hold()
        raise ValueError("after all that")

    system.on("agent/disposed", hangs)
    heard = Heard(system)
    for id in ("a", "b", "c"):
        assert system.create(echo, id=id).dispose().result(PATIENCE).complete
        assert heard.of(id)[-2:] == ENDS
    nothing_left(system)
    assert hung == ["a"]  # nobody waits for it twice
    caught_up = threading.Event()
    system.on("session/disposed", lambda event: caught_up.set())
    gate.open()
    system.create(echo, id="d").dispose().result(PATIENCE)
    assert caught_up.wait(PATIENCE)
    _until(lambda: hung == ["a", "b", "c", "d"])  # it has missed nothing, in order


def _until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.005)
    pytest.fail("it never came true")


def test_the_end_of_a_system_waits_for_its_listeners() -> None:
    system = dsh.ActorSystem()
    gate = Gate()
    heard: list[str] = []

    def slow(event: dsh.LifeEvent) -> None:
        gate.hold()
        heard.append(event.agent.id)

    system.on("session/disposed", slow)
    for number in range(5):
        system.create(echo, id=f"a{number}")
    end = system.shutdown()
    gate.reached()
    assert not end.done()
    gate.open()
    end.result(PATIENCE)
    assert sorted(heard) == [f"a{number}" for number in range(5)]


def test_the_observer_of_a_system_may_raise_anything() -> None:
    def observer(event: Any) -> None:
        raise SystemExit(event["type"])

    with dsh.ActorSystem(on_event=observer) as system:
        handle = system.create(echo)
        assert handle.agent.ask(1).result(PATIENCE) == 1
        assert handle.dispose().result(PATIENCE).complete


def test_an_abort_calls_everybody_back() -> None:
    signal = dsh.AbortSignal()
    called: list[int] = []

    def raises() -> None:
        called.append(1)
        raise SystemExit(1)

    signal.add_callback(raises)
    signal.add_callback(lambda: called.append(2))
    reason = ValueError("why")
    assert signal.abort(reason)
    assert not signal.abort()
    assert called == [1, 2]
    assert signal.reason is reason
    signal.add_callback(lambda: called.append(3))
    assert called == [1, 2, 3]


# -- cancel_requested ------------------------------------------------------------------------------


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("cause", ["user", "parent"])
def test_a_cancel_is_told_before_anything_is_cleared(system: dsh.ActorSystem, cause: str) -> None:
    gate = Gate()
    tokens: list[Any] = []

    def holds(turn: dsh.Turn, message: Any) -> None:
        tokens.append(turn.signal)
        gate.hold()

    agent = system.create(holds).agent
    node: Any = agent._target
    agent.send(1)
    gate.reached()
    waiting = [agent.ask(number) for number in range(3)]
    seen: list[Any] = []
    system.on("cancel_requested", fails)
    system.on(
        "cancel_requested",
        lambda event: seen.append((event.cause, node.agent.inbox.count, tokens[0].is_set())),
    )
    system._supervisor.cancel_as(node, cause, tree=False, keep_inbox=False)  # type: ignore[arg-type]
    assert seen == [(cause, 3, False)]
    assert tokens[0].cause == cause  # although a listener raised
    for reply in waiting:
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)
    agent.cancel()  # the turn is cancelled already, and nothing waits
    assert len(seen) == 1
    gate.open()
    agent.when_idle().result(PATIENCE)


@pytest.mark.behaviour(9, 8)
def test_a_cancel_without_effect_is_not_told(system: dsh.ActorSystem) -> None:
    heard = Heard(system)
    watch = Watch()
    system._core.observer = watch
    agent = system.create(echo, id="a").agent
    agent.cancel()
    agent.cancel(tree=True)
    agent.interrupt()
    agent.inject("quiet")
    agent.interrupt()  # nothing runs, and what waits is kept
    assert "cancel_requested" not in heard.of("a")
    agent.cancel()  # this drops the quiet one
    assert heard.of("a").count("cancel_requested") == 1
    assert len(watch.of("cancel_requested", "a")) == 1
    system.create(echo, id="b").dispose().result(PATIENCE)  # disposed is no cause that is told
    assert "cancel_requested" not in heard.of("b")
    assert agent.ask(1).result(PATIENCE) == 1


@pytest.mark.behaviour(9)
def test_a_cancel_in_the_announcement_of_a_cancel_takes_effect(system: dsh.ActorSystem) -> None:
    gate = Gate()
    agent = system.create(lambda turn, message: gate.hold()).agent
    told: list[Any] = []

    def cancels(event: dsh.LifeEvent) -> None:
        told.append(event.cause)
        event.agent.cancel()

    system.on("cancel_requested", cancels)
    agent.send(1)
    gate.reached()
    reply = agent.ask(2)
    agent.cancel()
    assert told == ["user"]
    with pytest.raises(dsh.TurnAborted):
        reply.result(PATIENCE)
    gate.open()
    agent.when_idle().result(PATIENCE)


@pytest.mark.behaviour(9)
def test_ctrl_c_in_a_listener_does_not_prevent_the_cancel(system: dsh.ActorSystem) -> None:
    def interrupted(event: dsh.LifeEvent) -> None:
        raise KeyboardInterrupt

    gate = Gate()
    agent = system.create(lambda turn, message: gate.hold()).agent
    agent.send(1)
    gate.reached()
    reply = agent.ask(2)
    detach = system.on("cancel_requested", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.cancel()
    with pytest.raises(dsh.TurnAborted):
        reply.result(PATIENCE)
    detach()
    gate.open()
    agent.when_idle().result(PATIENCE)
