"""Factories and owners: what they own ends with them, by one teardown, and nothing is left."""

from __future__ import annotations

import gc
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.config import load_tree
from dsh_actors.sessions import SqliteStore
from dsh_actors.supervisor.listeners import CREATED
from tests.supervisor.lives import BEGINS, ENDS, Heard, echo, nothing_left
from tests.watching import PATIENCE, Gate, in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dsh_actors.supervisor.preparation import Preparation


@pytest.fixture
def system() -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1) as made:
        yield made


def holds(gate: Gate) -> Any:
    """A behaviour that ignores its cancel until the gate is opened."""
    return lambda turn, message: gate.hold()


# -- three ways to the same end --------------------------------------------------------------------


@pytest.mark.behaviour(32)
def test_create_returns_a_handle_whose_dispose_can_be_awaited(system: dsh.ActorSystem) -> None:
    import asyncio

    handle = system.create(echo)
    assert isinstance(handle, dsh.AgentHandle)
    assert isinstance(handle.agent, dsh.Agent)

    async def ends() -> dsh.Receipt:
        receipt: dsh.Receipt = await handle.dispose()
        return receipt

    assert asyncio.run(ends()).complete


@pytest.mark.behaviour(33)
def test_nobody_but_the_handle_can_tear_an_agent_down(system: dsh.ActorSystem) -> None:
    import pykka

    handle = system.create(echo, id="a")
    listed = system.agent("a")
    public = {name for name in dir(listed) if not name.startswith("_")}
    assert not public & {"dispose", "stop", "kill", "terminate", "close", "actor_ref", "proxy"}
    assert {name for name in dir(listed) if "dispos" in name} == set()
    pykka.ActorRegistry.stop_all(timeout=1)
    assert listed.ask(1).result(PATIENCE) == 1
    assert handle.dispose().result(PATIENCE).complete


@pytest.mark.behaviour(34)
@pytest.mark.parametrize("which", ["owner", "factory"])
@pytest.mark.parametrize("isolation", ["inline", "own"])
def test_either_co_owner_takes_its_agents_along(
    system: dsh.ActorSystem, which: str, isolation: str
) -> None:
    owner, factory = system.owner("o"), system.factory("f")
    for number in range(2):
        system.create(
            "tests.worker_behaviours:echo", id=f"a{number}", owner=owner, factory=factory,
            isolation=isolation,
        ).agent.send(1)  # fmt: skip
    other = system.create(echo, id="other")
    end = owner.unload() if which == "owner" else factory.dispose()
    receipt = end.result(PATIENCE)
    assert [agent.id for agent in receipt.agents] == ["a0", "a1"]
    assert receipt.complete
    if isolation == "own":
        assert len({process.pid for process in receipt.processes}) == 2
    assert not owner.agents
    assert not factory.agents
    assert other.agent.ask(1).result(PATIENCE) == 1
    other.dispose().result(PATIENCE)
    nothing_left(system)


@pytest.mark.behaviour(35, 64, 65)
def test_three_ways_at_once_share_one_teardown(system: dsh.ActorSystem) -> None:
    heard = Heard(system)
    bodies: list[str] = []
    teardown = system._supervisor.teardown
    settle = teardown.settle
    teardown.settle = lambda node, failures: (  # type: ignore[method-assign]
        bodies.append(node.id),
        settle(node, failures),
    )[1]
    for round in range(100):
        owner, factory = system.owner("o"), system.factory("f")
        id = f"a{round}"
        handle = system.create(echo, id=id, owner=owner, factory=factory)
        ways = [handle.dispose, owner.unload, factory.dispose]
        ends = in_threads(3, lambda number: ways[number]())  # noqa: B023
        assert ends[0].result(PATIENCE).agents[0].id == id
        for end in ends[1:]:  # one that came late has found nothing to end
            assert [agent.id for agent in end.result(PATIENCE).agents] in ([], [id])
        assert handle.dispose() is handle.dispose()
        assert bodies == [id]
        bodies.clear()
        assert heard.of(id) == BEGINS + ENDS
    nothing_left(system)


@pytest.mark.behaviour(35)
def test_all_who_wait_are_released_together(system: dsh.ActorSystem) -> None:
    gate = Gate()
    owner, factory = system.owner("o"), system.factory("f")
    handle = system.create(holds(gate), owner=owner, factory=factory)
    handle.agent.send(1)
    gate.reached()
    ends = [handle.dispose(), owner.unload(), factory.dispose()]
    assert not any(end.done() for end in ends)
    assert handle.agent.status == "stopping"
    gate.open()
    for end in ends:
        assert end.result(PATIENCE).complete


# -- the order -------------------------------------------------------------------------------------


class Recorder:
    """Notes each effect of a teardown with its agent, in order."""

    def __init__(self, system: dsh.ActorSystem) -> None:
        self.steps: list[tuple[str, str]] = []
        teardown = system._supervisor.teardown
        for name in ("is_idle", "flush", "capture", "dispose_handle", "remove", "release"):
            self._wrap(teardown, name, name)
        cut = teardown.cut_locked

        def cut_locked(order: Any, cause: Any, keep_inbox: bool) -> Any:
            self.steps.extend((f"cancel {cause}", node.id) for node in order)
            return cut(order, cause, keep_inbox)

        teardown.cut_locked = cut_locked  # type: ignore[method-assign]

    def _wrap(self, owner: Any, name: str, shown: str) -> None:
        effect = getattr(owner, name)

        def wrapped(node: Any, *rest: Any) -> Any:
            if name != "is_idle":
                self.steps.append((shown, node.id))
            result = effect(node, *rest)
            if name == "is_idle" and result:
                self.steps.append((shown, node.id))
            return result

        setattr(owner, name, wrapped)

    def owns(self, *ownerships: Any) -> None:
        """Note when they let an agent go."""
        for each in ownerships:
            untrack = each.untrack_locked

            def untracked(node: Any, each: Any = each, untrack: Any = untrack) -> None:
                untrack(node)
                self.steps.append((f"untrack {each.name}", node.id))

            each.untrack_locked = untracked

    def of(self, id: str) -> list[str]:
        """The steps of one agent, each once."""
        return list(dict.fromkeys(step for step, about in self.steps if about == id))


@pytest.mark.behaviour(37)
def test_the_order_of_one_teardown(system: dsh.ActorSystem) -> None:
    """Cancel, idle, scope and agent, detach, untrack from the factory, release the owner."""
    recorder = Recorder(system)
    owner, factory = system.owner("owner"), system.factory("factory")
    recorder.owns(owner, factory)

    prepared: list[Preparation] = []
    handle = system.create(
        echo, id="a", owner=owner, factory=factory, setup=lambda made: prepared.append(made)
    )
    system.on("agent/disposed", lambda event: recorder.steps.append(("told agent", "a")))
    system.on("session/disposed", lambda event: recorder.steps.append(("told session", "a")))
    assert not prepared[0].signal.is_set()
    recorder.steps.clear()
    handle.dispose().result(PATIENCE)
    order = recorder.of("a")
    told = [step for step in order if step.startswith("told")]
    assert told == ["told agent", "told session"]
    assert order.index("told agent") > order.index("remove")
    assert [step for step in order if step not in told] == [
        "cancel disposed", "is_idle", "flush", "capture", "dispose_handle", "remove", "release",
        "untrack factory", "untrack owner",
    ]  # fmt: skip


@pytest.mark.behaviour(83)
def test_the_order_of_a_whole_factory(system: dsh.ActorSystem) -> None:
    """Admission off, signals, all agents in parallel, each in its order; then start-up tasks."""
    recorder = Recorder(system)
    factory = system.factory("factory")
    recorder.owns(factory)
    steps = recorder.steps
    gates = [Gate(), Gate()]

    def held(turn: dsh.Turn, message: Any) -> None:
        gates[message].hold()
        steps.append(("turn over", turn.agent_id))

    for number, gate in enumerate(gates):
        factory.create(held, id=f"a{number}").agent.send(number)
        gate.reached()
    in_setup = Gate()

    def setup(preparation: Preparation) -> None:
        preparation.signal.add_callback(
            lambda: steps.append((f"abort, active: {factory.active}", "b"))
        )
        in_setup.hold()

    def create() -> None:
        with pytest.raises(dsh.AdmissionRefused):
            factory.create(echo, id="b", setup=setup)

    creator = threading.Thread(target=create)
    creator.start()
    in_setup.reached()
    waiting: dsh.Future[None] = dsh.Future()
    factory.while_active(waiting).add_done_callback(lambda _: steps.append(("released", "-")))
    start_up: dsh.Future[None] = dsh.Future()
    factory.start_up(start_up)
    steps.clear()
    end = factory.dispose()
    # All before anything was waited for: nobody can have ended yet.
    assert steps[:4] == [
        ("abort, active: False", "b"),
        ("released", "-"),
        ("cancel disposed", "a0"),
        ("cancel disposed", "a1"),
    ]
    gates[1].open()  # out of order: they do not wait for each other
    creator.join(PATIENCE)
    _until(lambda: ("untrack factory", "a1") in steps)
    in_setup.open()  # whether the abandoned hook returns is all the same
    assert ("flush", "a0") not in steps
    gates[0].open()
    _until(lambda: ("untrack factory", "a0") in steps)
    assert not end.done()
    start_up.set_result(None)
    end.result(PATIENCE)
    for id in ("a0", "a1"):
        assert [step for step in recorder.of(id) if step != "is_idle"] == [
            "cancel disposed", "turn over", "flush", "capture", "dispose_handle", "remove",
            "release", "untrack factory",
        ]  # fmt: skip
    waiting.set_result(None)
    nothing_left(system)


def _until(condition: Any) -> None:
    """Wait for something that no event tells of."""
    changed = threading.Event()
    for _ in range(2000):
        if condition():
            return
        changed.wait(0.01)
    pytest.fail("it never came true")


# -- durable, on both paths ------------------------------------------------------------------------


@pytest.mark.behaviour(39, 51)
@pytest.mark.parametrize("path", ["handle", "owner", "factory"])
def test_the_closing_turn_end_is_durable_on_each_path(path: str, tmp_path: Path) -> None:
    gate = Gate()
    with SqliteStore(tmp_path / "s.db") as store:
        with dsh.ActorSystem(store=store) as system:
            owner, factory = system.owner("o"), system.factory("f")
            handle = system.create(holds(gate), owner=owner, factory=factory)
            handle.agent.send(1)
            gate.reached()
            end = {"handle": handle.dispose, "owner": owner.unload, "factory": factory.dispose}
            ended = end[path]()
            assert not ended.done()
            gate.open()
            ended.result(PATIENCE)
            session = handle.agent.session_id
            assert session is not None
            # Durable by then, not only once the store is closed.
            with SqliteStore(tmp_path / "s.db") as again:
                types = [event.type for event in again.load(session)[1]]
        assert types[:2] == ["prompt/accepted", "turn/start"]
        assert types[-2:] == ["turn/end", "agent/ended"]


@pytest.mark.behaviour(36)
def test_idle_is_not_the_end_before_the_closing_flush(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store, dsh.ActorSystem(store=store) as system:
        handle = system.create(echo, id="a")
        gate = Gate()
        append = store.append

        def held(session: str, type: str, data: bytes, *, on_commit: Any = None) -> int:
            if type != "agent/ended":
                return append(session, type, data, on_commit=on_commit)

            def committed(error: BaseException | None) -> None:
                gate.hold()
                on_commit(error)

            return append(session, type, data, on_commit=committed)

        store.append = held  # type: ignore[method-assign]
        node: Any = handle.agent._target
        end = handle.dispose()
        gate.reached()
        assert node.agent.is_quiet()
        assert handle.agent.status == "stopping"
        assert not end.done()
        assert system._core.tree.nodes["a"] is node
        gate.open()
        end.result(PATIENCE)


@pytest.mark.behaviour(40)
def test_the_session_is_detached_when_its_loop_has_ended(tmp_path: Path) -> None:
    """Not beside it: whoever unloads, however it is timed."""
    wrong: list[str] = []
    jitter = random.Random(40)
    with SqliteStore(tmp_path / "s.db") as store, dsh.ActorSystem(store=store) as system:
        core = system._core
        forget = core.forget_locked
        quiet: dict[str, bool] = {}

        def probe(node: Any) -> None:
            if node.agent.running is not None or not node.agent.is_quiet():
                wrong.append(f"{node} is alive")
            if core.tree.nodes.get(node.id) is node:
                wrong.append(f"{node} is in the map")
            quiet[node.id] = True
            forget(node)

        core.forget_locked = probe  # type: ignore[method-assign]
        for round in range(200):
            owner = system.owner("o")
            agent = owner.create(_spins, id=f"a{round}").agent
            agent.send(jitter.randrange(2000))
            for _ in range(jitter.randrange(3)):
                agent.ask(0)
            owner.unload().result(PATIENCE)
            assert quiet.pop(f"a{round}")
            assert agent.session_id is not None
            events = store.load(agent.session_id)[1] if round % 50 == 0 else ()
            starts = sum(event.type == "turn/start" for event in events)
            assert starts == sum(event.type == "turn/end" for event in events)
    assert not wrong


def _spins(turn: dsh.Turn, count: int) -> None:
    for _ in range(count):
        turn.check()


# -- set-up ----------------------------------------------------------------------------------------


@pytest.mark.behaviour(74, 77)
def test_a_factory_aborts_a_set_up_that_never_returns(system: dsh.ActorSystem) -> None:
    factory = system.factory("loop")
    gate = Gate()
    undone = threading.Event()
    seen: list[Any] = []

    def setup(preparation: Preparation) -> Any:
        seen.append((factory.preparing, factory.agents))
        gate.hold()
        seen.append(preparation.signal.reason)
        return undone.set

    made: list[Any] = []

    def create() -> None:
        try:
            made.append(factory.create(echo, id="a", setup=setup))
        except dsh.AdmissionRefused as error:
            made.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    gate.reached()
    assert factory.dispose().result(PATIENCE).agents == ()
    thread.join(PATIENCE)
    assert str(made[0]) == "factory 'loop' is not active"
    assert seen == [(1, [])]
    nothing_left(system)
    assert not undone.is_set()
    gate.open()  # what the late hook has set up is released when it arrives
    assert undone.wait(PATIENCE)
    assert seen[1] is made[0]


@pytest.mark.behaviour(78, 80)
@pytest.mark.parametrize("sources", [["caller"], ["owner"], ["factory"], None])
def test_any_of_three_sources_aborts_a_creation(
    system: dsh.ActorSystem, sources: list[str] | None
) -> None:
    for round in range(1 if sources else 50):
        order = sources or random.Random(round).sample(["caller", "owner", "factory"], 3)
        owner, factory, caller = system.owner("o"), system.factory("f"), dsh.AbortSignal()
        acts = {
            "caller": lambda caller=caller: caller.abort(ValueError("the caller")),
            "owner": owner.unload,
            "factory": factory.dispose,
        }
        expected = {
            "caller": "the caller",
            "owner": "owner 'o' was unloaded",
            "factory": "factory 'f' is not active",
        }
        undone: list[int] = []

        def setup(
            preparation: Preparation, acts: Any = acts, order: Any = order, undone: Any = undone
        ) -> Any:
            if sources:
                acts[order[0]]()
            else:
                in_threads(3, lambda number: acts[order[number]]())
            return lambda: undone.append(1)

        with pytest.raises((ValueError, dsh.AdmissionRefused)) as raised:
            system.create(echo, id="a", owner=owner, factory=factory, signal=caller, setup=setup)
        if sources:
            assert str(raised.value) == expected[order[0]]
        else:
            assert str(raised.value) in expected.values()
        _until(lambda undone=undone: undone == [1])
        owner.unload().result(PATIENCE)
        factory.dispose().result(PATIENCE)
        nothing_left(system)


@pytest.mark.behaviour(78)
@pytest.mark.parametrize("at", CREATED)
@pytest.mark.parametrize("source", ["owner", "factory"])
def test_an_owner_that_ends_in_an_announcement_is_the_reason(
    system: dsh.ActorSystem, at: str, source: str
) -> None:
    owner, factory = system.owner("o"), system.factory("f")
    ends: list[Any] = []
    system.on(
        at, lambda event: ends.append(owner.unload() if source == "owner" else factory.dispose())
    )
    with pytest.raises(dsh.AdmissionRefused, match=r"unloaded|not active"):
        system.create(echo, id="a", owner=owner, factory=factory)
    assert ends[0].result(PATIENCE).complete
    nothing_left(system)


@pytest.mark.behaviour(79)
def test_the_callers_signal_counts_for_the_creation_alone(system: dsh.ActorSystem) -> None:
    signal = dsh.AbortSignal()
    handle = system.create(echo, signal=signal)
    signal.abort()
    assert handle.agent.ask(1).result(PATIENCE) == 1
    with pytest.raises(dsh.TurnAborted):
        system.create(echo, signal=signal)


@pytest.mark.behaviour(38)
@pytest.mark.parametrize("fails", [False, True])
def test_a_dispose_waits_for_the_construction(system: dsh.ActorSystem, fails: bool) -> None:
    gate = Gate()
    stopped: list[int] = []

    class Slow(dsh.Behaviour):
        def __init__(self) -> None:
            gate.hold()
            if fails:
                raise ValueError("cannot be made")

        def on_message(self, turn: dsh.Turn, message: Any) -> None: ...

        def on_stop(self, turn: dsh.Turn) -> None:
            stopped.append(1)

    owner = system.owner("o")
    handle = owner.create(Slow, id="a")
    gate.reached()
    ends = in_threads(2, lambda number: [handle.dispose, owner.unload][number]())
    assert not any(end.done() for end in ends)
    gate.open()
    for end in ends:
        assert end.result(PATIENCE).complete
    assert stopped == ([] if fails else [1])
    nothing_left(system)


@pytest.mark.behaviour(38)
def test_an_owner_waits_for_a_worker_that_is_still_to_start(system: dsh.ActorSystem) -> None:
    """A creation that is past its set-up and not visible yet is awaited, and leaves nothing."""
    gate = Gate()
    place = system._supervisor.pool.place

    def placed(own: bool) -> Any:
        worker = place(own)
        gate.hold()
        return worker

    system._supervisor.pool.place = placed  # type: ignore[method-assign]
    owner = system.owner("o")
    refused: list[BaseException] = []

    def create() -> None:
        try:
            owner.create("tests.worker_behaviours:echo", id="a", isolation="own")
        except dsh.AdmissionRefused as error:
            refused.append(error)

    creator = threading.Thread(target=create)
    creator.start()
    gate.reached()
    end = owner.unload()
    assert not end.done()
    gate.open()
    end.result(PATIENCE)
    creator.join(PATIENCE)
    assert str(refused[0]) == "owner 'o' was unloaded"
    nothing_left(system)


# -- factories -------------------------------------------------------------------------------------


@pytest.mark.behaviour(73, 80)
def test_no_creation_slips_past_the_end_of_its_factory(system: dsh.ActorSystem) -> None:
    for round in range(20):
        factory = system.factory("f")
        made: list[dsh.AgentHandle] = []
        enough = threading.Event()
        refused = threading.Barrier(5)

        def create(
            number: int, factory: Any = factory, made: Any = made, enough: Any = enough
        ) -> int:
            if number == 4:
                enough.wait(PATIENCE)
                factory.dispose().result(PATIENCE)
                assert not factory.agents
                return -1
            count = 0
            while True:
                try:
                    made.append(factory.create(echo))
                except dsh.AdmissionRefused:
                    break
                count += 1
                if count == 5:
                    enough.set()
            with pytest.raises(dsh.AdmissionRefused):
                factory.create(echo)
            return count

        counts = in_threads(5, create)
        refused.abort()
        assert counts[4] == -1, (round, counts)
        assert factory.dispose().result(PATIENCE).complete
        # Whoever got a handle holds one of an agent that has ended.
        for handle in made:
            assert handle.dispose().result(PATIENCE).complete
            assert handle.agent.status == "settled"
        nothing_left(system)


@pytest.mark.behaviour(75)
def test_whoever_waits_while_a_factory_is_active_is_released(system: dsh.ActorSystem) -> None:
    """A start-up that waits for a draining id returns when the factory ends."""
    gate = Gate()
    old = system.create(holds(gate), id="a")
    old.agent.send(1)
    gate.reached()
    factory = system.factory("f")
    assert factory.when_free("a").result(0) is False  # it is not ending at all
    assert factory.when_free("b").result(0) is True
    ended = old.dispose()
    first, second = factory.when_free("a"), system.factory("g").when_free("a")
    assert not first.done()
    factory.dispose().result(PATIENCE)
    assert first.result(0) is False
    assert not second.done()
    assert not ended.done()
    gate.open()
    assert second.result(PATIENCE) is True
    system.create(echo, id="a")
    assert factory.when_free("c").result(0) is True
    late: dsh.Future[None] = dsh.Future()
    assert factory.while_active(late).result(0) is False


@pytest.mark.behaviour(76)
def test_a_factory_waits_for_agents_and_start_ups_together(system: dsh.ActorSystem) -> None:
    factory = system.factory("f")
    together = threading.Barrier(11)
    begun = Gate()
    begun.open()

    def meets(turn: dsh.Turn, message: Any) -> None:
        told = threading.Event()
        turn.signal.add_callback(told.set)
        begun.hold()
        told.wait(PATIENCE)
        together.wait(PATIENCE)  # not one of them ends before all have been told

    for _ in range(10):
        factory.create(meets).agent.send(1)
    for _ in range(10):
        begun.reached()
    tasks: list[dsh.Future[None]] = [dsh.Future() for _ in range(3)]
    for task in tasks:
        factory.start_up(task)
    end = factory.dispose()
    together.wait(PATIENCE)
    _until(lambda: not factory.agents)
    for task in tasks:
        assert not end.done()
        task.set_result(None)
    assert len(end.result(PATIENCE).agents) == 10
    with pytest.raises(dsh.AdmissionRefused):
        factory.start_up(tasks[0])


def test_what_failed_on_the_way_is_reported_together(system: dsh.ActorSystem) -> None:
    factory = system.factory("f")
    factory.create(echo)
    task: dsh.Future[None] = dsh.Future()
    factory.start_up(task)
    end = factory.dispose()
    task.set_error(ValueError("the start-up"))
    with pytest.raises(ExceptionGroup, match="not everything ended well") as raised:
        end.result(PATIENCE)
    assert [str(error) for error in raised.value.exceptions] == ["the start-up"]
    assert factory.dispose() is end
    nothing_left(system)


def test_a_refused_creation_is_tracked_nowhere(system: dsh.ActorSystem) -> None:
    owner, factory = system.owner("o"), system.factory("f")
    factory.dispose().result(PATIENCE)
    with pytest.raises(dsh.AdmissionRefused, match="factory 'f' is not active"):
        system.create(echo, owner=owner, factory=factory)
    assert owner.unload().result(PATIENCE).agents == ()


def test_an_owner_of_another_system_is_refused(system: dsh.ActorSystem) -> None:
    with dsh.ActorSystem() as other, pytest.raises(dsh.AdmissionRefused, match="another system"):
        system.create(echo, owner=other.owner("o"))


@pytest.mark.behaviour(77)
def test_a_thousand_rounds_leave_nothing(system: dsh.ActorSystem) -> None:
    owner, factory = system.owner("o"), system.factory("f")
    sizes = []
    for round in range(1000):
        system.create(echo, id="a", owner=owner, factory=factory).dispose().result(PATIENCE)
        if round in (199, 999):
            gc.collect()
            assert not owner.agents
            assert not factory.agents
            nothing_left(system)
            sizes.append(len(gc.get_objects()))
    # What a system remembers of each ended agent for its receipt is one tuple.
    assert sizes[1] - sizes[0] < 3 * 800


@pytest.mark.behaviour(81)
def test_a_reloaded_factory_accepts_an_id_when_the_old_agent_is_gone(
    system: dsh.ActorSystem,
) -> None:
    for round in range(50):
        gate = Gate()
        old = system.factory("loop")
        node: Any = old.create(holds(gate), id="a").agent._target
        system.agent("a").send(1)
        gate.reached()
        old.dispose()
        new = system.factory("loop")
        with pytest.raises(dsh.DuplicateId):
            new.create(echo, id="a")
        free = new.when_free("a")
        gate.open()
        assert free.result(PATIENCE) is True
        assert not old.agents
        assert node.agent.running is None
        agent = new.create(echo, id="a").agent
        assert agent.ask(round).result(PATIENCE) == round
        new.dispose().result(PATIENCE)
    nothing_left(system)


def test_a_restarted_agent_stays_owned(system: dsh.ActorSystem) -> None:
    import os
    import signal

    owner = system.owner("o")
    handle = owner.create(
        "tests.worker_behaviours:echo", id="a", isolation="own", restart="permanent"
    )
    assert handle.agent.ask(1).result(PATIENCE) == 1
    node: Any = handle.agent._target
    os.kill(node.agent.pid, signal.SIGKILL)
    _until(lambda: node.successor is not None)
    assert handle.agent.ask(2).result(PATIENCE) == 2
    assert owner.agents == ["a"]
    assert owner.unload().result(PATIENCE).complete
    nothing_left(system)


# -- configuration ---------------------------------------------------------------------------------


@pytest.fixture
def tree_file(tmp_path: Path) -> Path:
    file = tmp_path / "tree.yaml"
    file.write_text(
        "version: 1\nname: t\nagents:\n"
        "  - id: a\n    behaviour: tests.worker_behaviours:echo\n"
        "    children:\n      - id: a1\n        behaviour: tests.worker_behaviours:echo\n"
        "  - id: b\n    behaviour: tests.worker_behaviours:echo\n"
    )
    return file


@pytest.mark.behaviour(44)
def test_declared_agents_belong_to_the_configuration(
    system: dsh.ActorSystem, tree_file: Path
) -> None:
    spec = load_tree(tree_file, prompt=None)
    system.start_tree(spec)  # and no handle in sight
    other = system.create(echo, id="other")
    gc.collect()
    assert [node.id for node in system.tree()] == ["a", "b", "other"]
    assert system.configuration.agents == ["a", "b"]
    receipt = system.configuration.dispose().result(PATIENCE)
    assert sorted(agent.id for agent in receipt.agents) == ["a", "a1", "b"]
    assert [node.id for node in system.tree()] == ["other"]
    with pytest.raises(dsh.AdmissionRefused, match="configuration"):
        system.start_tree(spec)
    other.dispose().result(PATIENCE)
    nothing_left(system)


@pytest.mark.behaviour(81, 44)
def test_a_tree_can_be_loaded_again(system: dsh.ActorSystem, tree_file: Path) -> None:
    spec = load_tree(tree_file, prompt=None)
    for _ in range(5):
        loader = system.factory("loader")
        system.start_tree(spec, factory=loader)
        assert system.agent("a1").ask(1).result(PATIENCE) == 1
        loader.dispose().result(PATIENCE)
    nothing_left(system)


# -- the end of the system -------------------------------------------------------------------------


def test_a_shutdown_aborts_a_set_up_that_never_returns() -> None:
    system = dsh.ActorSystem()
    gate = Gate()
    refused: list[BaseException] = []

    def create() -> None:
        try:
            system.create(echo, setup=lambda _: gate.hold())
        except dsh.SystemClosed as error:
            refused.append(error)

    creator = threading.Thread(target=create)
    creator.start()
    gate.reached()
    system.shutdown().result(PATIENCE)
    creator.join(PATIENCE)
    assert len(refused) == 1
    gate.open()
    with pytest.raises(dsh.SystemClosed):
        system.create(echo, setup=lambda _: None)
