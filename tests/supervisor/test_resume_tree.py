"""Resume brings back the tree, and not only its root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.config.spec import AgentSpec, TreeSpec
from dsh_actors.sessions import Event, MemoryStore, SessionHeader
from dsh_actors.slots import LaunchIdentity
from dsh_actors.supervisor.plans import Plan
from tests.supervisor import resuming
from tests.supervisor.resuming import HERE, crashed, gates, log, session_of, turns, types
from tests.watching import PATIENCE, Gate, Watch, in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as made:
        yield made
    gates.clear()
    resuming.systems.clear()


def ask(agent: dsh.Agent, *message: Any) -> Any:
    return agent.ask(list(message)).result(PATIENCE)


def resume(system: dsh.ActorSystem, session: str) -> tuple[dsh.Agent, dsh.ResumeReport]:
    handle = system.resume(session)
    assert handle.resumed is not None
    return handle.agent, handle.resumed


def root_of(system: dsh.ActorSystem, **options: Any) -> tuple[dsh.Agent, str]:
    resuming.systems.append(system)
    agent = system.create(f"{HERE}:boss", id="root", **options).agent
    assert agent.session_id is not None
    return agent, agent.session_id


def settled(store: MemoryStore, child: str) -> None:
    """Wait until a child has settled, and its parent was told."""
    watch = Watch()
    remove = store.observe(lambda id, event: watch({"type": event.type, "data": event.data}))
    try:
        for info in store.list():
            for event in store.load(info.id).events:
                watch({"type": event.type, "data": event.data})
        watch.until(
            lambda: [
                event for event in watch.events
                if event["type"] == "custom/settled" and event["data"][0] == child
            ]
        )  # fmt: skip
    finally:
        remove()


def shown(system: dsh.ActorSystem) -> dict[str, tuple[str, list[str]]]:
    """Each agent with its status and its children."""
    found: dict[str, tuple[str, list[str]]] = {}
    nodes = system.tree()
    for node in nodes:
        nodes += node.children
        found[node.id] = (node.status, [child.id for child in node.children])
    return found


# -- children that settle --------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_a_spawned_child_sleeps_and_goes_on_when_it_is_asked(
    isolation: str, store: MemoryStore
) -> None:
    with dsh.ActorSystem(store=store, workers=1) as system:
        root, session = root_of(system, isolation=isolation)
        assert ask(root, "spawn", "Adder", "adder", 5) == "adder"
        settled(store, "adder")
        left = crashed(store)
    child = session_of(left, "adder")
    for number in (1, 2):
        with left, dsh.ActorSystem(store=left, workers=1) as system:
            root, report = resume(system, session)
            assert report.agents == ("root",)
            assert report.sleeping == ("adder",)
            assert shown(system)["adder"] == ("settled", [])
            found = system.agent("adder")
            assert (found.status, found.session_id) == ("settled", child)
            assert ask(root, "child", "adder", 2) == 5 + 3 * number - 1
            settled_once = [
                event.data["last"] for event in log(left, session) if event.type == "child/settled"
            ]
            # Found again after it has settled in this system, by its parent and by the user.
            found.when_idle().result(PATIENCE)
            assert found.ask(1).result(PATIENCE) == 5 + 3 * number
            assert len(settled_once) >= number
            left = crashed(left)
    assert turns(left, child) == [1, 2, 3, 4, 5]
    assert [info.agent_id for info in left.list()].count("adder") == 1
    left.close()


def test_a_child_with_queued_prompts_is_revived_at_once(store: MemoryStore) -> None:
    gate = Gate()
    gates["gate"] = gate
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Adder", "adder", "gate")
        gate.reached()
        ids = [ask(root, "send", "adder", number) for number in (3, 4)]
        left = crashed(store)
        gate.open()
    with left, dsh.ActorSystem(store=left) as system:
        _, report = resume(system, session)
        assert report.agents == ("root", "adder")
        assert list(report.restored) == ids
        assert [reply.result(PATIENCE) for reply in report.restored.values()] == [3, 7]
        settled(left, "adder")


def test_the_life_that_a_crash_has_ended_is_told_once(store: MemoryStore) -> None:
    gate = Gate()
    gates["gate"] = gate
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Adder", "adder", "gate")
        gate.reached()
        left = crashed(store)
        gate.open()
    for _ in range(3):
        with left, dsh.ActorSystem(store=left) as system:
            _, report = resume(system, session)
            assert report.sleeping == ("adder",)
            settled(left, "adder")
            left = crashed(left)
    notices = [event.data for event in log(left, session) if event.type == "custom/settled"]
    assert notices == [["adder", "aborted", None]]
    assert types(left, session_of(left, "adder")) == [
        "prompt/accepted", "turn/start", "turn/end", "prompt/failed", "agent/ended",
    ]  # fmt: skip
    left.close()


def test_what_is_below_a_sleeping_child_comes_back_with_it(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "spawn", "boss", "middle", ["spawn", "Adder", "leaf", 5])
        settled(store, "middle")
        left = crashed(store)
    with left, dsh.ActorSystem(store=left) as system:
        root, report = resume(system, session)
        assert set(report.sleeping) == {"middle", "leaf"}
        assert shown(system) == {
            "root": ("idle", ["middle"]), "middle": ("settled", ["leaf"]), "leaf": ("settled", []),
        }  # fmt: skip
        assert ask(root, "child", "middle", ["child", "leaf", 1]) == 6


def test_a_child_that_the_user_has_stopped_stays_stopped(store: MemoryStore) -> None:
    gate = Gate()
    gates["gate"] = gate
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Adder", "stopped", "gate")
        gate.reached()
        stop = system.stop("stopped")
        gate.open()
        stop.result(PATIENCE)
        ask(root, "create", "Adder", "plain", "permanent")
        system.stop("plain").result(PATIENCE)
        left = crashed(store)
    for _ in range(2):
        with left, dsh.ActorSystem(store=left) as system:
            root, report = resume(system, session)
            assert (report.agents, report.sleeping, report.lost) == (("root",), (), {})
            with pytest.raises(dsh.AgentFailed, match="no live child 'stopped'"):
                ask(root, "child", "stopped", 1)
            left = crashed(left)
    left.close()


def test_a_sleeping_child_that_is_stopped_stays_stopped(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Adder", "adder", 5)
        settled(store, "adder")
        left = crashed(store)
    with left, dsh.ActorSystem(store=left) as system:
        root, report = resume(system, session)
        assert report.sleeping == ("adder",)
        receipt = system.stop("adder").result(PATIENCE)
        assert [end.id for end in receipt.agents] == ["adder"]
        assert shown(system) == {"root": ("idle", [])}
        again = crashed(left)
    with again, dsh.ActorSystem(store=again) as system:
        assert resume(system, session)[1].sleeping == ()


# -- children that live ----------------------------------------------------------------------------


def test_children_of_a_restart_policy_and_made_ones_start_again(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        for id, restart in (("a", "permanent"), ("b", "transient"), ("c", "temporary")):
            ask(root, "create", "Adder", id, restart)
            assert ask(root, "child", id, 5) == 5
        left = crashed(store)
        at_end = store
    for was in (left, at_end):  # after a crash, and after an end in order
        with was, dsh.ActorSystem(store=was) as system:
            root, report = resume(system, session)
            assert report.agents == ("root", "a", "b", "c")
            for id in ("a", "b", "c"):
                assert ask(root, "child", id, 1) == 6
                assert turns(was, session_of(was, id)) == [1, 2]
            assert {info.agent_id for info in was.list()} == {"root", "a", "b", "c"}


def test_no_turn_begins_before_the_whole_tree_stands(store: MemoryStore) -> None:
    gate = Gate()
    gates["gate"] = gate
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "create", "Adder", "adder", "permanent")
        root.send(["hold", "gate"])
        gate.reached()
        id = root.send(["child", "adder", 5])
        left = crashed(store)
        gate.open()
    for _ in range(10):
        again = crashed(left)
        with again, dsh.ActorSystem(store=again) as system:
            _, report = resume(system, session)
            assert report.restored[id].result(PATIENCE) == 5
    left.close()


# -- what is lost ----------------------------------------------------------------------------------


def test_a_one_shot_is_lost_by_name_and_told_once(store: MemoryStore) -> None:
    gate = Gate()
    gates["gate"] = gate
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        root.send(["run", "gate"])
        gate.reached()
        left = crashed(store)
        gate.open()
    for number in range(2):
        with left, dsh.ActorSystem(store=left) as system:
            _, report = resume(system, session)
            assert list(report.lost) == ([] if number else ["shot"])
            settled(left, "shot")
            left = crashed(left)
    shot = session_of(left, "shot")
    ended = log(left, shot)[-1]
    assert (ended.type, ended.data["outcome"]) == ("agent/ended", "lost")
    assert next(info.status for info in left.list() if info.id == shot) == "lost"
    assert types(left, session).count("child/settled") == 1
    notices = [event.data[:2] for event in log(left, session) if event.type == "custom/settled"]
    assert notices == [["shot", "lost"]]
    left.close()


def test_state_that_cannot_be_replayed_is_lost_by_name(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store, workers=1) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Forgetful", "forgetful", 1)
        system.agent("forgetful").when_idle().result(PATIENCE)
        left = crashed(store)
    with left, dsh.ActorSystem(store=left) as system:
        _, report = resume(system, session)
        assert list(report.lost) == ["forgetful"]
        assert "cannot replay" in report.lost["forgetful"]
        assert shown(system) == {"root": ("idle", [])}


def test_what_is_below_a_lost_one_is_lost_with_it(store: MemoryStore) -> None:
    def local(turn: dsh.Turn, message: Any) -> Any:
        resuming.systems[-1].create(f"{HERE}:echo", id="leaf")
        return message

    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)

        def parent(turn: dsh.Turn, message: Any) -> None:
            turn.child("middle").ask(message).result(PATIENCE)

        system.initiators.with_initiator(root, lambda: system.create(local, id="middle"))
        system.agent("middle").ask(1).result(PATIENCE)
        left = crashed(store)
    with left, dsh.ActorSystem(store=left) as system:
        _, report = resume(system, session)
        assert "inside a function" in report.lost["middle"]
        assert "'middle' does not come back" in report.lost["leaf"]
        assert report.agents == ("root",)
        for id in ("middle", "leaf"):
            assert types(left, session_of(left, id))[-1] == "agent/ended"


# -- what they may do ------------------------------------------------------------------------------


@pytest.mark.behaviour(152)
def test_a_resume_never_widens_a_policy_and_depth_never_falls(store: MemoryStore) -> None:
    narrow = dsh.Policy(tools=["read"], network=False)
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system, policy=narrow)
        ask(root, "spawn", "boss", "middle", ["policy"])
        settled(store, "middle")
        middle = session_of(store, "middle")
        left = crashed(store)
    again = crashed(left)
    with left, dsh.ActorSystem(store=left) as system:
        root, _ = resume(system, session)
        assert ask(root, "policy") == narrow.to_plain()
        assert ask(root, "child", "middle", ["policy"]) == narrow.to_plain()
    with again, dsh.ActorSystem(store=again, max_depth=1) as system:
        agent, _ = resume(system, middle)  # on its own, without its parent
        assert ask(agent, "policy") == narrow.to_plain()
        with pytest.raises(dsh.AgentFailed, match="depth 2"):
            ask(agent, "spawn", "echo", "leaf", 1)


def test_what_was_spent_stays_spent(store: MemoryStore) -> None:
    budget = dsh.Budget(tokens=100, turns=10, children=3)
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system, budget=budget)
        assert ask(root, "spend", 30)["tokens"] == 70
        ask(root, "create", "boss", "child", "permanent")
        assert ask(root, "child", "child", ["spend", 20])["tokens"] == 50
        before = ask(root, "budget")
        assert before == {"tokens": 50, "turns": 5, "children": 2}
        left = crashed(store)
    for number in range(1, 4):
        with left, dsh.ActorSystem(store=left) as system:
            root, report = resume(system, session)
            assert report.agents == ("root", "child")
            assert ask(root, "budget") == {"tokens": 50, "turns": 5 - number, "children": 2}
            left = crashed(left)
    left.close()


def test_a_sleeping_child_goes_on_with_what_it_had_left(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        resuming.systems.append(system)

        @dsh.behaviour(settlements=True)
        def parent(turn: dsh.Turn, message: Any) -> Any:
            return resuming.boss(turn, message)

        root, session = root_of(system, budget=dsh.Budget(tokens=100))
        made = system.initiators.with_initiator(
            root,
            lambda: system.create(
                f"{HERE}:boss", id="child", budget=dsh.Budget(tokens=40), restart="permanent"
            ),
        )
        assert ask(made.agent, "spend", 15)["tokens"] == 25
        assert ask(root, "budget") == {"tokens": 60}
        left = crashed(store)
    with left, dsh.ActorSystem(store=left) as system:
        root, _ = resume(system, session)
        assert ask(root, "budget") == {"tokens": 60}
        assert ask(root, "child", "child", ["budget"]) == {"tokens": 25}
        assert ask(root, "child", "child", ["spend", 5])["tokens"] == 20


# -- a tree file without its file ------------------------------------------------------------------


def test_a_declared_tree_comes_back_from_its_logs_alone(store: MemoryStore) -> None:
    tree = TreeSpec(
        name="t",
        agents=(
            AgentSpec(
                "root", f"{HERE}:boss",
                children=(AgentSpec("a", f"{HERE}:Adder"), AgentSpec("b", f"{HERE}:Adder")),
            ),
        ),
    )  # fmt: skip
    with dsh.ActorSystem(store=store) as system:
        root = system.start_tree(tree)[0].agent
        assert ask(root, "child", "a", 5) == 5
        left, session = crashed(store), root.session_id
    assert session is not None
    with left, dsh.ActorSystem(store=left) as system:
        root, report = resume(system, session)
        assert report.agents == ("root", "a", "b")
        assert ask(root, "child", "a", 1) == 6
        assert ask(root, "child", "b", 1) == 1


def test_what_a_crash_has_left_below_an_ended_agent_is_lost(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "create", "boss", "middle", "permanent")
        ask(root, "child", "middle", ["create", "Adder", "leaf", "permanent"])
        left = crashed(store)
    # The parent's last words were stored, and those of what is below it were not.
    middle, leaf = (session_of(left, id) for id in ("middle", "leaf"))
    left.append(middle, "agent/ended", codec.encode({"outcome": "failed", "final": True}))
    left.set_status(middle, "failed")
    with left, dsh.ActorSystem(store=left) as system:
        _, report = resume(system, session)
        assert report.agents == ("root",)
        assert list(report.lost) == ["leaf"]
        assert types(left, leaf)[-1] == "agent/ended"
        assert left.holder_of(leaf) is None


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_a_parent_is_told_wherever_it_lives(isolation: str, store: MemoryStore) -> None:
    gate = gates["gate"] = Gate()
    with dsh.ActorSystem(store=store, workers=1) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Adder", "adder", "gate")
        gate.reached()
        left = crashed(store)
        gate.open()
    identities = {"root": LaunchIdentity(session, resume=True)}
    declared = AgentSpec("root", f"{HERE}:boss", isolation=isolation)  # type: ignore[arg-type]
    with left, dsh.ActorSystem(store=left, workers=1) as system:
        system.start_tree(TreeSpec("t", agents=(declared,)), identities=identities)
        settled(left, "adder")
        notices = [e.data for e in log(left, session) if e.type == "custom/settled"]
        assert notices == [["adder", "aborted", None]]


def test_a_tree_that_is_resumed_for_an_agent_is_below_it(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        _, session = root_of(system)
        left = crashed(store)
    narrow = dsh.Policy(tools=["read"])
    with left, dsh.ActorSystem(store=left) as system:
        above = system.create(f"{HERE}:boss", id="above", policy=narrow).agent
        handle = system.initiators.with_initiator(above, lambda: system.resume(session))
        assert shown(system) == {"above": ("waiting", ["root"]), "root": ("idle", [])}
        assert ask(handle.agent, "policy") == narrow.to_plain()


def test_of_many_that_resume_one_session_one_does(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store) as system:
        root, session = root_of(system)
        ask(root, "spawn", "Adder", "adder", 5)
        settled(store, "adder")
        left = crashed(store)
    with left, dsh.ActorSystem(store=left) as system:
        results = in_threads(8, lambda _: system.resume(session))
        won = [each for each in results if isinstance(each, dsh.AgentHandle)]
        assert len(won) == 1
        assert all(isinstance(each, dsh.StoreError) for each in results if each is not won[0])
        assert ask(won[0].agent, "child", "adder", 1) == 6
    assert types(left, session).count("agent/resumed") == 1


# -- wall time -------------------------------------------------------------------------------------


def test_time_in_which_nobody_could_work_is_not_counted() -> None:
    def event(time: float, type: str, **data: Any) -> Event:
        return Event(0, time, type, data)

    header = SessionHeader(
        "s-1", "a", "system", "s-1", None, 0, f"{HERE}:boss", created=100.0,
        options={"budget": {"wall": 60.0}},
    )  # fmt: skip
    first = [event(110.0, "custom/x"), event(120.0, "custom/x")]
    plan = Plan(header, first)
    assert plan.remaining(None) == dsh.Budget(wall=40.0)
    # Resumed after an hour, and at work for five seconds.
    later = [
        event(3720.0, "prompt/failed", id=1, reason="interrupted"),
        event(3720.0, "agent/resumed", turns=1, system="next", after=120.0),
        event(3725.0, "custom/x"),
    ]
    assert Plan(header, first + later).remaining(None) == dsh.Budget(wall=35.0)
    # A next life in the same system: the clock went on.
    again = [event(3730.0, "agent/resumed", turns=2), event(3735.0, "custom/x")]
    assert Plan(header, first + later + again).remaining(None) == dsh.Budget(wall=25.0)
    late = [event(9000.0, "custom/x")]
    assert Plan(header, first + later + late).remaining(None) == dsh.Budget(wall=0.0)


def test_of_two_that_had_one_id_the_one_that_lived_comes_back() -> None:
    def event(time: float, type: str, **data: Any) -> Event:
        return Event(0, time, type, data)

    def plan(id: str, agent: str, created: float, *events: Event) -> Plan:
        header = SessionHeader(
            id, agent, "system", "s-1", None, 0, f"{HERE}:boss", created=created,
            options={"continuable": agent != "root"},
        )  # fmt: skip
        return Plan(header, list(events))

    def judged(*children: Plan) -> list[str]:
        root = plan("s-1", "root", 1.0)
        root.children = list(children)
        for child in children:
            child.parent = root
        root.judge(top=True)
        return [child.state for child in children]

    settled = event(3.0, "agent/ended", outcome="completed")
    stopped = event(5.0, "agent/ended", outcome="aborted", final=True)
    first = plan("s-2", "a", 2.0, settled)
    assert judged(first, plan("s-3", "a", 4.0)) == ["ended", "asleep"]
    assert judged(plan("s-2", "a", 2.0, settled), plan("s-3", "a", 4.0, stopped)) == [
        "ended", "ended",
    ]  # fmt: skip
    again = plan("s-2", "a", 2.0, settled, event(6.0, "agent/resumed", turns=1))
    below = plan("s-4", "b", 3.0)
    again.children, below.parent = [below], again
    assert judged(again, plan("s-3", "a", 4.0, stopped)) == ["asleep", "ended"]
    # Two of which neither end is on the record: the later one stays, and nothing below the other.
    older = plan("s-2", "a", 2.0)
    below = plan("s-4", "b", 3.0)
    older.children, below.parent = [below], older
    assert judged(older, plan("s-3", "a", 4.0)) == ["lost", "asleep"]
    assert below.state == "lost"
