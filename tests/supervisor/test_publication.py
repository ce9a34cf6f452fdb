"""Prepare, enter, announce: what is visible when, and what is left when it goes wrong."""

from __future__ import annotations

import os
import random
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.sessions import SqliteStore
from dsh_actors.supervisor.listeners import CREATED
from tests.supervisor.lives import BEGINS, ENDS, Heard, echo, nothing_left
from tests.watching import PATIENCE, Gate, in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Veto(Exception):
    """What a hook or a listener raises."""


@pytest.fixture
def system() -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1) as made:
        yield made


def agent_of(event: dsh.LifeEvent) -> Any:
    return event.agent._target


# -- the order -------------------------------------------------------------------------------------


@pytest.mark.behaviour(85)
def test_publication_has_one_order_and_both_entries_are_there_in_the_first_event(
    system: dsh.ActorSystem,
) -> None:
    heard = Heard(system)
    sessions: list[bool] = []
    system.on(
        "session/created",
        lambda event: sessions.append(
            system.agent(event.agent.id).session_id == event.agent.session_id
        ),
    )
    handle = system.create(echo, id="a")
    assert heard.of("a") == BEGINS
    assert heard.found == [(name, True) for name in BEGINS]
    assert sessions == [True]
    handle.dispose().result(PATIENCE)
    assert heard.of("a") == BEGINS + ENDS
    assert heard.found[3:] == [(name, False) for name in ENDS]


@pytest.mark.behaviour(89, 90)
def test_nothing_runs_before_the_announcement_is_over(system: dsh.ActorSystem) -> None:
    ran: list[Any] = []
    order: list[str] = []

    def notes(turn: dsh.Turn, message: Any) -> None:
        ran.append(message)
        order.append("turn")

    def listener(event: dsh.LifeEvent) -> None:
        event.agent.send(event.name)
        assert event.agent.status == "preparing"
        order.append(event.name)

    for event in CREATED:
        system.on(event, listener)
    agent = system.create(notes).agent
    agent.when_idle().result(PATIENCE)
    assert order == [*BEGINS, "turn", "turn", "turn"]
    assert ran == BEGINS


def test_what_is_sent_during_the_announcement_is_cancelled_with_the_rest(
    system: dsh.ActorSystem,
) -> None:
    replies: list[Any] = []

    def listener(event: dsh.LifeEvent) -> None:
        replies.append(event.agent.ask(1))
        event.agent.cancel()
        replies.append(event.agent.ask(2))

    system.on("agent/created", listener)
    system.create(echo)
    with pytest.raises(dsh.TurnAborted):
        replies[0].result(PATIENCE)
    assert replies[1].result(PATIENCE) == 2


# -- a listener that disposes ----------------------------------------------------------------------


@pytest.mark.behaviour(86, 87, 88, 89, 90)
@pytest.mark.parametrize("at", CREATED)
def test_a_listener_that_disposes(system: dsh.ActorSystem, at: str) -> None:
    """The rest is not announced, what was is paired, and there is one teardown."""
    heard = Heard(system)
    stops: list[Any] = []
    ran: list[Any] = []
    entries: list[bool] = []
    system.on(at, lambda event: stops.append(system.stop(event.agent.id)))
    system.on(
        at,
        lambda event: entries.append(
            system._core.tree.nodes.get(event.agent.id) is agent_of(event)
        ),
    )
    bodies = _count_bodies(system)
    with pytest.raises(dsh.AdmissionRefused, match="disposed during its creation"):
        system.create(lambda turn, message: ran.append(message), id="a")
    begun = BEGINS[: BEGINS.index(at) + 1]
    expected = begun + ENDS if at != "session/created" else [*begun, "session/disposed"]
    assert heard.of("a") == expected  # told before create raises
    assert entries == [True]  # deferred: the next listener still found it
    assert not ran
    assert bodies == ["a"]
    assert stops[0].result(0).complete
    nothing_left(system)


def _count_bodies(system: dsh.ActorSystem) -> list[str]:
    bodies: list[str] = []
    teardown = system._supervisor.teardown
    settle = teardown.settle

    def counted(node: Any, failures: list[Exception]) -> None:
        bodies.append(node.id)
        settle(node, failures)

    teardown.settle = counted  # type: ignore[method-assign]
    return bodies


@pytest.mark.behaviour(89)
def test_a_refused_agent_leaves_no_session_in_the_store(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store, dsh.ActorSystem(store=store) as system:
        detach = system.on("session-start", lambda event: _raise(Veto("no")))
        with pytest.raises(Veto):
            system.create(echo, id="a")
        detach()
        system.create(echo, id="b").dispose().result(PATIENCE)
        assert store.flush(PATIENCE)
        assert [info.agent_id for info in store.list()] == ["b"]


def test_an_announced_session_is_stored_with_its_publication(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store, dsh.ActorSystem(store=store) as system:
        system.on("agent/created", lambda event: event.agent.send("early"))
        agent = system.create(echo, id="a").agent
        agent.when_idle().result(PATIENCE)
        assert agent.session_id is not None
        assert store.flush(PATIENCE)
        types = [event.type for event in store.load(agent.session_id)[1]]
        assert types == ["prompt/accepted", "turn/start", "turn/end"]


def _raise(error: BaseException) -> None:
    raise error


# -- a detach during an announcement ---------------------------------------------------------------


@pytest.mark.behaviour(92)
@pytest.mark.parametrize("isolation", ["inline", "own"])
def test_a_detach_from_another_thread_waits_for_the_announcement(
    system: dsh.ActorSystem, isolation: str
) -> None:
    stops: list[Any] = []
    there: list[bool] = []

    def disposes(event: dsh.LifeEvent) -> None:
        thread = threading.Thread(target=lambda: stops.append(system.stop(event.agent.id)))
        thread.start()
        thread.join(PATIENCE)
        # All that a teardown does by itself has been done: the supervisor has seen the stop,
        # and what was posted after it.
        seen = threading.Event()
        system._supervisor.post(seen.set)
        assert seen.wait(PATIENCE)

    def looks(event: dsh.LifeEvent) -> None:
        there.append(system._core.tree.nodes.get("a") is agent_of(event))
        assert not stops[0].done()
        with pytest.raises(dsh.DuplicateId):
            system._core.tree.enter(type(agent_of(event))("a", None))

    system.on("agent/created", disposes)
    system.on("agent/created", looks)
    with pytest.raises(dsh.AdmissionRefused):
        system.create("tests.worker_behaviours:echo", id="a", isolation=isolation)
    assert there == [True]
    assert stops[0].result(PATIENCE).complete
    nothing_left(system)


@pytest.mark.behaviour(92)
def test_the_death_of_a_worker_waits_for_the_announcement(system: dsh.ActorSystem) -> None:
    there: list[bool] = []

    def dies(event: dsh.LifeEvent) -> None:
        system.stop(event.agent.id)  # so that its disposal waits for it to be quiet
        os.kill(agent_of(event).agent.pid, signal.SIGKILL)
        gone = threading.Event()

        def look() -> None:
            if agent_of(event).agent.swept:  # all that its end takes is done
                gone.set()
            else:
                system._supervisor.timers.after(0.005, system._supervisor.post, look)

        system._supervisor.post(look)
        assert gone.wait(PATIENCE)

    system.on("agent/created", dies)
    system.on(
        "agent/created",
        lambda event: there.append(system._core.tree.nodes.get("a") is agent_of(event)),
    )
    with pytest.raises(dsh.AdmissionRefused, match="the worker"):
        system.create("tests.worker_behaviours:echo", id="a", isolation="own")
    assert there == [True]
    nothing_left(system)


# -- what raises -----------------------------------------------------------------------------------


@pytest.mark.behaviour(91)
@pytest.mark.parametrize("error", [Veto("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_listener_that_raises_half_way(system: dsh.ActorSystem, error: BaseException) -> None:
    """All of them hear of the beginning and of the end, exactly once, whatever was raised."""
    heard: list[list[str]] = [[], []]
    for name in ("session/created", "agent/created", *ENDS):
        system.on(name, lambda event: heard[0].append(event.name))
        if name == "agent/created":
            system.on(name, lambda event: _raise(error))
        system.on(name, lambda event: heard[1].append(event.name))
    with pytest.raises(type(error)) as raised:
        system.create(echo, id="a")
    assert raised.value is error
    assert heard == [["session/created", "agent/created", *ENDS]] * 2
    nothing_left(system)


@pytest.mark.behaviour(84, 95)
def test_a_raising_set_up_publishes_nothing(system: dsh.ActorSystem) -> None:
    heard = Heard(system)
    with pytest.raises(Veto):
        system.create(echo, id="a", setup=lambda preparation: _raise(Veto("no")))
    assert not heard.events
    nothing_left(system)
    assert system.create(echo, id="a").agent.ask(1).result(PATIENCE) == 1


@pytest.mark.behaviour(95)
@pytest.mark.parametrize("at", CREATED)
@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_a_raising_announcement_frees_the_id_at_once(
    system: dsh.ActorSystem, at: str, isolation: str
) -> None:
    detach = system.on(at, lambda event: _raise(Veto(event.name)))
    for _ in range(3):
        with pytest.raises(Veto, match=at):
            system.create("tests.worker_behaviours:echo", id="a", isolation=isolation)
        nothing_left(system)
    detach()
    agent = system.create("tests.worker_behaviours:echo", id="a", isolation=isolation).agent
    assert agent.ask(1).result(PATIENCE) == 1


@pytest.mark.behaviour(95)
@pytest.mark.parametrize("listens", [False, True])
def test_a_raising_commit_frees_the_id(
    tmp_path: Path, listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(tmp_path / "s.db") as store, dsh.ActorSystem(store=store) as system:
        heard = Heard(system) if listens else None
        with monkeypatch.context() as patch:
            patch.setattr(store, "create", lambda header: _raise(dsh.StoreError("no disk")))
            with pytest.raises(dsh.StoreError, match="no disk"):
                system.create(echo, id="a")
        nothing_left(system)
        if heard is not None:
            assert heard.of("a") == BEGINS + ENDS
        assert system.create(echo, id="a").agent.ask(1).result(PATIENCE) == 1


def test_set_up_is_undone_if_nothing_comes_of_it(system: dsh.ActorSystem) -> None:
    undone: list[str] = []
    system.create(echo, id="a")
    with pytest.raises(dsh.DuplicateId):
        system.create(echo, id="a", setup=lambda _: lambda: undone.append("duplicate"))
    detach = system.on("agent/created", lambda event: _raise(Veto("no")))
    with pytest.raises(Veto):
        system.create(echo, id="b", setup=lambda _: lambda: undone.append("vetoed"))
    detach()
    system.create(echo, id="c", setup=lambda _: lambda: undone.append("never"))
    assert undone == ["duplicate", "vetoed"]


@pytest.mark.behaviour(86)
@pytest.mark.parametrize("at", ["set-up", *CREATED])
def test_a_creation_that_is_aborted_ends_at_the_next_boundary(
    system: dsh.ActorSystem, at: str
) -> None:
    heard = Heard(system)
    wanted = dsh.AbortSignal()
    reason = Veto("not wanted any more")
    if at != "set-up":
        system.on(at, lambda event: wanted.abort(reason))
    with pytest.raises(Veto) as raised:
        system.create(
            echo,
            id="a",
            signal=wanted,
            setup=lambda _: wanted.abort(reason) if at == "set-up" else None,
        )
    assert raised.value is reason
    begun = [] if at == "set-up" else BEGINS[: BEGINS.index(at) + 1]
    ends = [f"{name.partition('/')[0]}/disposed" for name in reversed(begun) if "/" in name]
    assert heard.of("a") == begun + ends
    nothing_left(system)


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.behaviour(93)
@pytest.mark.parametrize("isolation", ["inline", "own"])
def test_of_two_that_prepare_one_id_one_is_published(
    system: dsh.ActorSystem, isolation: str
) -> None:
    for round in range(20 if isolation == "inline" else 2):
        both = threading.Barrier(2)
        undone: list[int] = []

        def create(number: int) -> dsh.AgentHandle:
            def setup(preparation: Any) -> Callable[[], None]:
                both.wait(PATIENCE)  # noqa: B023
                return lambda: undone.append(number)  # noqa: B023

            return system.create(
                "tests.worker_behaviours:echo", id="same", isolation=isolation, setup=setup
            )

        made = in_threads(2, create)
        lost = [n for n in range(2) if isinstance(made[n], dsh.DuplicateId)]
        assert len(lost) == 1, (round, made)
        assert undone == lost
        assert list(system._core.tree.nodes) == ["same"]
        assert not system._core.preparing
        winner = made[1 - lost[0]]
        assert winner.agent.ask(1).result(PATIENCE) == 1
        winner.dispose().result(PATIENCE)
    nothing_left(system)


@pytest.mark.behaviour(94)
def test_no_two_live_agents_share_an_id(system: dsh.ActorSystem) -> None:
    ids = ["x", "y", "z"]
    live: dict[str, int] = dict.fromkeys(ids, 0)
    lock = threading.Lock()
    wrong: list[Any] = []

    def churn(number: int) -> None:
        choose = random.Random(number)
        for _ in range(60):
            id = choose.choice(ids)
            try:
                handle = system.create(echo, id=id)
            except dsh.DuplicateId:
                pass
            else:
                with lock:
                    live[id] += 1
                    if live[id] != 1:
                        wrong.append((id, live[id]))
                shown = [node.id for node in system.tree()]
                if len(shown) != len(set(shown)):
                    wrong.append(shown)
                with lock:
                    live[id] -= 1  # from here on it may be detached
                handle.dispose().result(PATIENCE)

    assert in_threads(8, churn) == [None] * 8
    assert not wrong
    nothing_left(system)


@pytest.mark.behaviour(42)
def test_an_id_is_free_again_at_once(system: dsh.ActorSystem) -> None:
    for round in range(200):
        handle = system.create(echo, id="a")
        assert handle.agent.ask(round).result(PATIENCE) == round
        handle.dispose().result(PATIENCE)


@pytest.mark.behaviour(42, 36)
def test_an_id_is_taken_until_its_detach(system: dsh.ActorSystem) -> None:
    gate = Gate()
    handle = system.create(lambda turn, message: gate.hold(), id="a")
    handle.agent.send(1)
    gate.reached()
    end = handle.dispose()
    with pytest.raises(dsh.DuplicateId):
        system.create(echo, id="a")
    assert not end.done()
    gate.open()
    end.result(PATIENCE)
    assert system.create(echo, id="a").agent.ask(1).result(PATIENCE) == 1


@pytest.mark.behaviour(43)
def test_a_late_or_repeated_detach_spares_the_successor(system: dsh.ActorSystem) -> None:
    old = system.create(echo, id="a")
    node: Any = old.agent._target
    old.dispose().result(PATIENCE)
    new = system.create(echo, id="a")
    teardown = system._supervisor.teardown
    done = threading.Event()

    def detach_again() -> None:
        teardown.remove(node)
        teardown.release(node)
        done.set()

    system._supervisor.post(detach_again)
    assert done.wait(PATIENCE)
    assert old.dispose().result(PATIENCE).complete
    assert old.agent.status == "settled"
    assert system.agent("a").ask(1).result(PATIENCE) == 1
    assert system._core.tree.roots["a"] is new.agent._target
    with pytest.raises(dsh.AgentGone):
        old.agent.send(1)


# -- where nobody may wait -------------------------------------------------------------------------


def test_a_creation_on_the_supervisors_thread_does_not_wait_for_its_roll_back(
    system: dsh.ActorSystem,
) -> None:
    """The teardown needs that thread; so the refusal comes first, and the end by itself."""
    refused: list[BaseException] = []
    first = system.create(echo)
    system.on("agent/created", lambda event: _raise(Veto("no")))

    def creates(_: Any) -> None:
        try:
            system.create(echo, id="a")
        except Veto as error:
            refused.append(error)

    first.dispose().add_done_callback(creates)
    system.shutdown().result(PATIENCE)
    assert len(refused) <= 1
    nothing_left(system)


def test_a_restart_is_announced_off_the_supervisors_thread(system: dsh.ActorSystem) -> None:
    handle = system.create(
        "tests.worker_behaviours:echo", id="a", isolation="own", restart="permanent"
    )
    assert handle.agent.ask(1).result(PATIENCE) == 1
    heard = Heard(system)
    gate = Gate()
    where: list[bool] = []

    def slow(event: dsh.LifeEvent) -> None:
        where.append(system._supervisor.may_wait())
        gate.hold()

    system.on("session/created", slow)
    node: Any = handle.agent._target
    os.kill(node.agent.pid, signal.SIGKILL)
    gate.reached()
    # The supervisor goes on meanwhile.
    seen = threading.Event()
    system._supervisor.post(seen.set)
    assert seen.wait(PATIENCE)
    gate.open()
    heard.until("a", 5)
    assert heard.of("a")[:2] == ENDS  # of the first life; nobody listened to its beginning
    assert heard.of("a")[2:5] == BEGINS
    assert where[0] is True
    assert handle.agent.ask(2).result(PATIENCE) == 2
