"""Trees whose agents are bound to sessions: what a launcher knows decides, not the tree file."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.config.spec import AgentSpec, TreeSpec
from dsh_actors.sessions import MemoryStore, SqliteStore
from dsh_actors.slots import LaunchIdentity, Slots
from dsh_actors.testing.gates import Gates
from tests.supervisor import resuming
from tests.supervisor.resuming import HERE, crashed, gates, log, session_of, turns, types
from tests.watching import PATIENCE, Gate, Watch, in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as made:
        yield made
    gates.clear()
    resuming.systems.clear()


def tree(*agents: AgentSpec) -> TreeSpec:
    return TreeSpec(name="t", agents=agents)


def adder(id: str, **options: Any) -> AgentSpec:
    return AgentSpec(id, f"{HERE}:Adder", **options)


def ask(agent: dsh.Agent, message: Any) -> Any:
    return agent.ask(message).result(PATIENCE)


def fresh(id: str) -> LaunchIdentity:
    return LaunchIdentity(id)


def resumed(id: str) -> LaunchIdentity:
    return LaunchIdentity(id, resume=True)


@pytest.mark.behaviour(165, 166)
def test_identities_are_keyed_by_the_configured_id_and_replace_both_keys(
    store: MemoryStore,
) -> None:
    declared = tree(adder("a"), adder("b"), adder("c"))
    with dsh.ActorSystem(store=store) as system:
        old = system.create(f"{HERE}:Adder", id="a").agent
        assert ask(old, 5) == 5
        session = old.session_id
        assert session is not None
    slots = Slots(identities={"a": resumed(session), "b": fresh("exactly-this")})
    with dsh.ActorSystem(store=store, slots=slots) as system:
        a, b, c = (handle.agent for handle in system.start_tree(declared))
        assert (a.session_id, b.session_id) == (session, "exactly-this")
        assert c.session_id not in (session, "exactly-this", None)
        assert [ask(each, 1) for each in (a, b, c)] == [6, 1, 1]
    assert turns(store, session) == [1, 2]
    assert turns(store, "exactly-this") == [1]
    assert len(store.list()) == 3


@pytest.mark.behaviour(166)
def test_a_log_is_never_overwritten(store: MemoryStore, tmp_path: Path) -> None:
    declared = tree(adder("a"))
    with dsh.ActorSystem(store=store) as system:
        agent = system.start_tree(declared, identities={"a": fresh("s-1")})[0].agent
        assert ask(agent, 5) == 5
        with pytest.raises(dsh.StoreError, match="live in this system"):
            system.start_tree(tree(adder("b")), identities={"b": fresh("s-1")})
    before = log(store, "s-1")
    watch = Watch()
    with dsh.ActorSystem(store=store, on_event=watch) as system:
        with pytest.raises(dsh.StoreError, match=r"'s-1' exists already.*resume it"):
            system.start_tree(declared, identities={"a": fresh("s-1")})
        assert system.tree() == []
        assert watch.see("agent/start-failed", "a")["session"] == "s-1"
    assert log(store, "s-1") == before
    path = tmp_path / "sessions.db"
    with SqliteStore(path, holder="first") as one, dsh.ActorSystem(store=one) as system:
        system.start_tree(declared, identities={"a": fresh("s-2")})
        assert one.flush(PATIENCE)
        with (
            SqliteStore(path) as two,
            dsh.ActorSystem(store=two) as other,
            pytest.raises(dsh.SessionHeld, match="first"),
        ):
            other.start_tree(declared, identities={"a": fresh("s-2")})


@pytest.mark.behaviour(103, 166, 167)
def test_a_failed_resume_is_reported_and_never_becomes_a_fresh_session(store: MemoryStore) -> None:
    watch = Watch()
    declared = tree(adder("first"), adder("a", children=(adder("below"),)))
    with dsh.ActorSystem(store=store, on_event=watch) as system:
        with pytest.raises(dsh.SessionNotFound, match="nope"):
            system.start_tree(declared, identities={"a": resumed("nope")})
        failed = watch.see("agent/start-failed", "a")
        assert (failed["session"], "nope" in failed["error"]) == ("nope", True)
        assert system.tree() == []  # not the others either
    assert store.list() == []
    with dsh.ActorSystem(on_event=watch) as system:
        with pytest.raises(dsh.UsageError, match="no store"):
            system.start_tree(declared, identities={"a": resumed("s-1")})
        watch.see("agent/start-failed", "a", session="s-1")
        assert system.tree() == []


@pytest.mark.behaviour(168)
@pytest.mark.parametrize("stored", [False, True])
def test_without_the_slot_ids_are_minted_as_ever(stored: bool, store: MemoryStore) -> None:
    declared = tree(adder("a", children=(adder("b"),)))
    sessions = []
    for _ in range(2):
        with dsh.ActorSystem(store=store if stored else None) as system:
            agent = system.start_tree(declared)[0].agent
            assert ask(agent, 1) == 1
            sessions.append(agent.session_id)
    assert sessions == [None, None] if not stored else len({*sessions, None}) == 3


def test_declared_children_go_on_with_their_own_logs(store: MemoryStore) -> None:
    root = AgentSpec("root", f"{HERE}:boss", children=(adder("kept"), adder("gone")))
    watch = Watch()
    with dsh.ActorSystem(store=store, on_event=watch) as system:
        agent = system.start_tree(tree(root), identities={"root": fresh("s-1")})[0].agent
        assert ask(agent, ["child", "kept", 5]) == 5
        ask(agent, ["spawn", "Adder", "spawned", 7])
        watch.see("agent/ended", "spawned")
    kept = session_of(store, "kept")
    changed = AgentSpec(
        "root", f"{HERE}:boss", children=(adder("kept", isolation="pool"), adder("new"))
    )
    with dsh.ActorSystem(store=store, workers=1) as system:
        handle = system.start_tree(tree(changed), identities={"root": resumed("s-1")})[0]
        assert handle.resumed is not None
        assert handle.resumed.sleeping == ("spawned",)
        assert set(handle.resumed.agents) == {"root", "kept", "gone"}
        assert ask(handle.agent, ["child", "kept", 1]) == 6
        assert ask(handle.agent, ["child", "new", 1]) == 1
        assert ask(handle.agent, ["child", "spawned", 1]) == 8
        # The file says where it lives.
        shown = {node.id: node.isolation for node in system.tree()[0].children}
        assert (shown["kept"], shown["gone"]) == ("pool", "inline")
    assert turns(store, kept) == [1, 2]


def test_what_an_agent_may_do_is_what_both_allow(store: MemoryStore) -> None:
    def declared(tools: list[str], tokens: int) -> TreeSpec:
        return tree(
            AgentSpec("a", f"{HERE}:boss", policy={"tools": tools}, budget={"tokens": tokens})
        )

    with dsh.ActorSystem(store=store) as system:
        first = declared(["read", "write"], 100)
        agent = system.start_tree(first, identities={"a": fresh("s-1")})[0].agent
        assert ask(agent, ["spend", 30])["tokens"] == 70
    for tools, tokens, allowed, left in (
        (["write", "bash"], 100, ["write"], 70), (["read", "write"], 50, ["read", "write"], 20),
    ):  # fmt: skip
        with dsh.ActorSystem(store=store) as system:
            second = declared(tools, tokens)
            agent = system.start_tree(second, identities={"a": resumed("s-1")})[0].agent
            assert ask(agent, ["policy"])["tools"] == allowed
            assert ask(agent, ["budget"])["tokens"] == left


def test_queued_prompts_are_there_when_the_tree_is_bound_again(store: MemoryStore) -> None:
    gate = gates["gate"] = Gate()
    declared = tree(adder("a"))
    with dsh.ActorSystem(store=store) as system:
        agent = system.start_tree(declared, identities={"a": fresh("s-1")})[0].agent
        agent.send("gate")
        gate.reached()
        id = agent.send(3)
        left = crashed(store)
        gate.open()
    with left, dsh.ActorSystem(store=left) as system:
        handle = system.start_tree(declared, identities={"a": resumed("s-1")})[0]
        assert handle.resumed is not None
        assert handle.resumed.restored[id].result(PATIENCE) == 3
        with pytest.raises(dsh.StoreError, match="live in this system"):
            system.start_tree(tree(adder("b")), identities={"b": resumed("s-1")})


def test_the_bound_children_of_a_parent_that_is_started_again_keep_their_sessions(
    store: MemoryStore,
) -> None:
    root = adder("root", isolation="pool", restart="permanent", children=(adder("child"),))
    identities = {"root": fresh("s-1"), "child": fresh("s-2")}
    watch = Watch()
    with dsh.ActorSystem(store=store, workers=1, on_event=watch) as system:
        agent = system.start_tree(tree(root), identities=identities)[0].agent
        assert ask(system.agent("child"), 5) == 5
        assert isinstance(agent.ask("die").exception(PATIENCE), dsh.AgentLost)
        watch.see("agent/started", "child", count=2)
        child = system.agent("child")
        assert child.session_id == "s-2"
        assert ask(child, 1) == 6
    assert turns(store, "s-2") == [1, 2]
    assert {info.id for info in store.list()} == {"s-1", "s-2"}


# -- one session, one live agent -------------------------------------------------------------------


@pytest.mark.behaviour(99)
def test_of_two_that_are_prepared_for_one_session_the_second_is_refused_at_enter(
    store: MemoryStore,
) -> None:
    with Gates() as held, dsh.ActorSystem(store=store) as system:
        with held.hold("prepared") as both:

            def start(number: int) -> Any:
                id = "ab"[number]
                return system.start_tree(tree(adder(id)), identities={id: fresh("s-1")})

            results: list[Any] = []
            thread = threading.Thread(target=lambda: results.extend(in_threads(2, start)))
            thread.start()
            both.wait(count=2)
            assert store.list() == []
            assert system.tree() == []
        thread.join(PATIENCE)
        refused = [each for each in results if isinstance(each, dsh.StoreError)]
        (entered,) = [each[0] for each in results if isinstance(each, list)]
        assert [str(error) for error in refused] == ["session 's-1' is live in this system already"]
        # The first is untouched.
        assert [node.id for node in system.tree()] == [entered.agent.id]
        assert ask(entered.agent, 5) == 5
    assert types(store, "s-1") == [
        "prompt/accepted", "turn/start", "custom/added", "turn/end", "agent/ended",
    ]  # fmt: skip


@pytest.mark.behaviour(101)
def test_preparing_shows_nothing_and_leaving_reverses_the_entry(store: MemoryStore) -> None:
    watch = Watch()
    events = ("session/created", "agent/created", "session-start", "agent/disposed",
              "session/disposed")  # fmt: skip
    heard: list[str] = []

    def state(system: dsh.ActorSystem) -> tuple[list[str], list[str]]:
        assert store.flush(PATIENCE)
        return [node.id for node in system.tree()], [info.agent_id for info in store.list()]

    with Gates() as held, dsh.ActorSystem(store=store, on_event=watch) as system:
        for name in events:
            system.on(name, lambda event: heard.append(event.name))
        results: list[Any] = []
        with held.hold("prepared") as prepared, held.hold("entered") as entered:
            thread = threading.Thread(
                target=lambda: results.append(system.create(f"{HERE}:echo", id="a"))
            )
            thread.start()
            prepared.wait()
            assert state(system) == ([], [])
            assert (heard, watch.events) == ([], [])
            prepared.release()
            entered.wait()
            # In the tree and nowhere else: its session is stored when it is published.
            assert state(system) == (["a"], [])
            assert system.agent("a").session_id in system._core.sessions.values()
            assert (heard, watch.events) == ([], [])
        thread.join(PATIENCE)
        assert heard == list(events[:3])
        assert state(system) == (["a"], ["a"])
        assert [event["type"] for event in watch.events] == ["agent/started"]
        handle = results[0]
        handle.dispose().result(PATIENCE)
        assert heard == list(events)
        assert state(system) == ([], ["a"])  # its log stays
        assert system._core.sessions == {}
        assert watch.see("agent/ended", "a")["outcome"] == "completed"
        # One that is refused on its way leaves nothing, and its id is free.
        system.on("agent/created", lambda event: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            system.create(f"{HERE}:echo", id="a")
        assert state(system) == ([], ["a"])
