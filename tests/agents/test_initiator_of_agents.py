"""Who acts on whose behalf in a live system, and to whom belongs what is created meanwhile."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import pytest
import scoped_behaviours as behaviours
import worker_behaviours
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.supervisor import closing

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool", "own"])


def parents(system: dsh.ActorSystem) -> dict[str, str | None]:
    """Each live agent with the one that it belongs to."""
    found: dict[str, str | None] = {}

    def walk(nodes: list[dsh.TreeNode], parent: str | None) -> None:
        for node in nodes:
            found[node.id] = parent
            walk(node.children, node.id)

    walk(system.tree(), None)
    return found


@pytest.mark.behaviour(107, 117)
@EVERYWHERE
@pytest.mark.parametrize("behaviour", [behaviours.who, behaviours.who_async, behaviours.Who])
def test_a_turn_runs_on_behalf_of_its_agent(behaviour: Any, isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviour, id="a", isolation=isolation).agent
        assert agent.ask(None).result(PATIENCE) == ["a", "a", None, "a"]


@pytest.mark.behaviour(107)
def test_after_a_turn_its_thread_acts_for_nobody() -> None:
    with dsh.ActorSystem() as system:
        system.create(behaviours.who).agent.ask(None).result(PATIENCE)
        seen: dsh.Future[Any] = dsh.Future()
        for _ in range(4):  # on the threads of the turns
            system._dispatcher.submit(_Look(seen))
        assert seen.result(PATIENCE) is None


class _Look:
    """Run by a dispatcher: looks who acts there."""

    def __init__(self, seen: dsh.Future[Any]) -> None:
        self.seen = seen

    def serve(self) -> bool:
        self.seen.try_set_result(dsh.current_agent())
        return False

    def abandon(self, error: BaseException) -> None:
        self.seen.try_set_error(error)

    def end_now(self) -> dsh.Future[None]:
        raise AssertionError("it is no actor")

    def discard_waiting(self) -> None: ...


@pytest.mark.behaviour(115)
def test_what_a_turn_creates_ends_with_its_agent() -> None:
    watch, gate = Watch(), Gate()
    causes: list[str] = []

    def child(turn: dsh.Turn, message: Any) -> None:
        gate.hold()
        try:
            turn.check()
        except dsh.Cancelled as error:
            causes.append(error.cause)
            raise

    def creates(turn: dsh.Turn, message: Any) -> None:
        system.create(child, id="b").agent.send(None)

    with dsh.ActorSystem(on_event=watch) as system:
        a = system.create(creates, id="a")
        a.agent.ask(None).result(PATIENCE)
        gate.reached()
        assert parents(system) == {"a": None, "b": "a"}
        ended = a.dispose()
        assert not ended.done()
        assert watch.of("agent/ended") == []  # A is not released while B runs
        gate.open()
        receipt = ended.result(PATIENCE)
        assert causes == ["disposed"]  # B heard of it before A was gone
        assert [event["agent"] for event in watch.of("agent/ended")] == ["b", "a"]
        assert [end.id for end in receipt.agents] == ["a", "b"]
        assert system.tree() == []


@pytest.mark.behaviour(114)
def test_what_is_created_without_an_initiator_is_not_torn_down() -> None:
    def creates(turn: dsh.Turn, message: Any) -> None:
        dsh.without_initiator(lambda: system.create(worker_behaviours.echo, id="b"))
        system.initiators.without_initiator(
            lambda: system.create(worker_behaviours.echo, id="c", isolation="pool")
        )
        system.create(worker_behaviours.echo, id="d", isolation="pool")

    with dsh.ActorSystem(workers=1) as system:
        a = system.create(creates, id="a")
        a.agent.ask(None).result(PATIENCE)
        assert parents(system) == {"a": None, "b": None, "c": None, "d": "a"}
        a.dispose().result(PATIENCE)
        assert parents(system) == {"b": None, "c": None}
        for id in ("b", "c"):
            assert system.agent(id).ask("alive").result(PATIENCE) == "alive"


@pytest.mark.behaviour(115)
def test_code_outside_of_turns_can_create_for_an_agent() -> None:
    def create(id: str) -> dsh.AgentHandle:
        return system.create(worker_behaviours.echo, id=id)

    with dsh.ActorSystem() as system, dsh.ActorSystem(name="other") as other:
        a = create("a")
        system.initiators.with_initiator(a.agent, lambda: create("b"))
        create("c")
        stranger = other.create(worker_behaviours.echo, id="a").agent
        with pytest.raises(dsh.UsageError, match="agent 'a' is not of system dsh-"):
            system.initiators.with_initiator(stranger, lambda: create("d"))
        assert parents(system) == {"a": None, "b": "a", "c": None}
        a.dispose().result(PATIENCE)
        assert parents(system) == {"c": None}
        with pytest.raises(dsh.AdmissionRefused):
            system.initiators.with_initiator(a.agent, lambda: create("e"))


@pytest.mark.behaviour(21)
@pytest.mark.parametrize("cleared", [False, True])
def test_a_cancelled_turn_creates_nothing(cleared: bool) -> None:
    gate = Gate()
    raised: list[BaseException] = []

    def creates(turn: dsh.Turn, message: Any) -> None:
        def create() -> Any:
            return system.create(worker_behaviours.echo, id="late")

        gate.hold()
        try:
            dsh.without_initiator(create) if cleared else create()
        except BaseException as error:
            raised.append(error)

    with dsh.ActorSystem() as system:
        a = system.create(creates, id="a").agent
        a.send(None)
        gate.reached()
        a.cancel(tree=True)
        gate.open()
        a.when_idle().result(PATIENCE)
        assert [type(error) for error in raised] == [dsh.Cancelled]
        assert parents(system) == {"a": None}


@pytest.mark.behaviour(108, 109)
def test_a_closed_registry_disposes_no_agent() -> None:
    gate = Gate()

    def held() -> Any:
        gate.hold()
        return system.initiators.current()

    with dsh.ActorSystem() as system, concurrent.futures.ThreadPoolExecutor(1) as pool:
        a = system.create(worker_behaviours.echo, id="a").agent
        run = pool.submit(system.initiators.with_initiator, a, held)
        gate.reached()
        system.initiators.close()
        for boundary in (
            lambda: system.initiators.with_initiator(a, list),
            lambda: system.initiators.without_initiator(list),
        ):
            with pytest.raises(dsh.InitiatorClosed, match="agent initiator scope is disposed"):
                boundary()
        assert [(node.id, node.status) for node in system.tree()] == [("a", "idle")]
        assert a.ask(1).result(PATIENCE) == 1
        gate.open()
        assert run.result(PATIENCE) is a


@pytest.mark.behaviour(108, 110, 112)
def test_the_end_of_a_system_closes_and_waits_for_the_runs() -> None:
    gate = Gate()
    with dsh.ActorSystem() as system, concurrent.futures.ThreadPoolExecutor(1) as pool:
        a = system.create(worker_behaviours.echo).agent
        run = pool.submit(system.initiators.with_initiator, a, gate.hold)
        gate.reached()
        ended = system.shutdown()
        with pytest.raises(dsh.InitiatorClosed):
            system.initiators.with_initiator(a, list)
        assert not ended.done()
        gate.open()
        assert ended.result(PATIENCE).complete
        assert run.done()
        assert (system.initiators.state, system.initiators.active) == ("disposed", 0)
        with pytest.raises(dsh.InitiatorClosed):
            system.initiators.optional()


@pytest.mark.behaviour(111)
def test_a_run_can_wait_for_the_end_of_the_system_that_it_ends() -> None:
    with dsh.ActorSystem() as system:
        a = system.create(worker_behaviours.echo).agent
        initiators = system.initiators

        def teardown() -> dsh.Receipt:
            return system.shutdown().result(PATIENCE)

        receipt = initiators.with_initiator(a, lambda: initiators.without_initiator(teardown))
        assert [end.outcome for end in receipt.agents] == ["completed"]
        assert initiators.active == 0


def test_a_run_that_never_ends_does_not_hold_a_system_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "CLOSE_MARGIN", 0.05)
    never: dsh.Future[None] = dsh.Future()
    with dsh.ActorSystem() as system:
        a = system.create(worker_behaviours.echo).agent
        system.initiators.with_initiator(a, lambda: never)
    assert system.initiators.state == "closing"
    never.set_result(None)
    assert system.initiators.state == "disposed"


@pytest.mark.behaviour(116)
def test_interleaved_agents_never_see_each_other() -> None:
    """A thousand turns each on the same two threads, plain and async, two of them at a time."""
    seen: dict[str, set[str | None]] = {"a": set(), "b": set(), "c": set()}

    def looks(turn: dsh.Turn, message: Any) -> None:
        agent = dsh.current_agent()
        seen[turn.agent_id].add(None if agent is None else agent.id)

    async def looks_async(turn: dsh.Turn, message: Any) -> None:
        looks(turn, message)
        await turn.sleep(0)
        looks(turn, message)

    with dsh.ActorSystem(max_turns=2) as system:
        agents = [
            system.create(each, id=id).agent
            for id, each in (("a", looks), ("b", looks), ("c", looks_async))
        ]
        for _ in range(1000):
            for agent in agents:
                agent.send(None)
        for agent in agents:
            agent.when_idle().result(PATIENCE)
    assert seen == {"a": {"a"}, "b": {"b"}, "c": {"c"}}
