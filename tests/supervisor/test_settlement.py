"""Continuable children: they settle, tell their parent, and go on in a next life."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.sessions import MemoryStore
from dsh_actors.testing.gates import Gates
from tests.watching import PATIENCE, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 300
"""How often a race is run."""


class Parent:
    """A behaviour that spawns children on request, and keeps what it is told of their ends."""

    def __init__(self, child: Callable[..., Any], **options: Any) -> None:
        self.child, self.options = child, options
        self.notices: SimpleQueue[dsh.Settlement] = SimpleQueue()
        self.agents: list[dsh.Agent] = []

    def call(self, turn: dsh.Turn, message: Any) -> Any:
        if isinstance(message, dsh.Settlement):
            self.notices.put(message)
            return None
        id, first = message
        self.agents.append(turn.spawn(self.child, first, id=id, **self.options))
        return None

    def start(self, system: dsh.ActorSystem) -> dsh.AgentHandle:
        def parent(turn: dsh.Turn, message: Any) -> Any:
            return self.call(turn, message)

        return system.create(dsh.behaviour(settlements=True)(parent), id="parent")

    def spawn(self, handle: dsh.AgentHandle, id: str, first: Any = None) -> dsh.Agent:
        handle.agent.ask([id, first]).result(PATIENCE)
        return self.agents[-1]

    def notice(self) -> dsh.Settlement:
        return self.notices.get(timeout=PATIENCE)


def echo(turn: dsh.Turn, message: Any) -> Any:
    if message == "fail":
        raise ValueError("as asked")
    return message


class Adder(dsh.Behaviour):
    """Keeps a sum over its lives, by events of its own."""

    def __init__(self) -> None:
        self.sum = 0

    def replay(self, event: dsh.Remembered) -> None:
        assert event.type == "added"
        self.sum += event.data

    def on_message(self, turn: dsh.Turn, message: int) -> int:
        turn.remember("added", message)
        self.sum += message
        return self.sum


class Counter(dsh.Behaviour):
    """Keeps its state in memory only, so it cannot be brought back."""

    def on_start(self, turn: dsh.Turn) -> None:
        self.count = 0

    def on_message(self, turn: dsh.Turn, message: Any) -> int:
        self.count += 1
        return self.count


def live(system: dsh.ActorSystem) -> set[str]:
    def ids(nodes: list[dsh.TreeNode]) -> set[str]:
        return {node.id for node in nodes} | {id for node in nodes for id in ids(node.children)}

    return ids(system.tree())


@pytest.mark.behaviour(138, 144)
def test_a_child_settles_by_itself_and_its_parent_gets_one_notice() -> None:
    watch, parent = Watch(), Parent(echo)
    with dsh.ActorSystem(on_event=watch) as system:
        handle = parent.start(system)
        parent.spawn(handle, "child", "hello")
        assert parent.notice() == dsh.Settlement("child", "completed", None, "hello")
        assert watch.see("agent/ended", "child")["outcome"] == "completed"
        assert live(system) == {"parent"}
    assert parent.notices.empty()


@pytest.mark.behaviour(144, 150)
def test_a_later_message_reaches_the_same_session_in_a_next_life() -> None:
    store, watch, parent = MemoryStore(), Watch(), Parent(Adder)
    with dsh.ActorSystem(on_event=watch, store=store) as system:
        handle = parent.start(system)
        child = parent.spawn(handle, "adder", 1)
        session = child.session_id
        assert parent.notice().last == 1
        assert child.ask(2).result(PATIENCE) == 3
        assert parent.notice().last == 3
        assert child.ask(10).result(PATIENCE) == 13
    assert session is not None
    assert [info.agent_id for info in store.list()].count("adder") == 1
    turns = [e.data["turn"] for e in store.load(session)[1] if e.type == "turn/start"]
    assert turns == [1, 2, 3]
    store.close()


@pytest.mark.behaviour(144)
def test_a_child_whose_state_cannot_be_brought_back_stays() -> None:
    parent = Parent(Counter)
    with dsh.ActorSystem() as system:
        handle = parent.start(system)
        child = parent.spawn(handle, "counter")
        child.when_idle().result(PATIENCE)
        assert child.ask(None).result(PATIENCE) == 2
        assert child.status == "idle"
    assert parent.notices.empty()


@pytest.mark.behaviour(144)
def test_a_one_shot_has_one_result_and_is_gone() -> None:
    def parent(turn: dsh.Turn, message: Any) -> Any:
        return turn.run(echo, message, id="shot").result(PATIENCE).value

    with dsh.ActorSystem() as system:
        agent = system.create(parent, id="parent").agent
        assert agent.ask("x").result(PATIENCE) == "x"
        agent.when_idle().result(PATIENCE)
        assert live(system) == {"parent"}


@pytest.mark.behaviour(137, 143)
def test_a_parent_settles_only_when_it_owns_no_live_child_and_then_at_once() -> None:
    reached, opened = threading.Event(), threading.Event()

    def grandchild(turn: dsh.Turn, message: Any) -> None:
        reached.set()
        assert opened.wait(PATIENCE)

    def middle(turn: dsh.Turn, message: Any) -> str:
        turn.spawn(grandchild, None, id="grandchild")
        return "left"

    watch, parent = Watch(), Parent(middle)
    with dsh.ActorSystem(on_event=watch) as system:
        child = parent.spawn(parent.start(system), "middle")
        assert reached.wait(PATIENCE)
        child.when_idle().result(PATIENCE)
        assert child.status == "waiting"
        assert parent.notices.empty()
        opened.set()
        # Nothing else happens: the release of the grandchild is what settles it.
        assert parent.notice().child == "middle"
        ended = [event["agent"] for event in watch.of("agent/ended")]
        assert ended.index("grandchild") < ended.index("middle")


@pytest.mark.behaviour(136)
def test_a_parent_that_settles_itself_has_had_every_notice() -> None:
    """A middle agent settles the moment that it is childless and quiet, 300 times."""
    heard: SimpleQueue[str] = SimpleQueue()

    def middle(turn: dsh.Turn, message: Any) -> Any:
        if isinstance(message, dsh.Settlement):
            heard.put(message.child)
            return message.child
        turn.spawn(echo, None, id=f"child of {turn.agent_id}")
        return None

    watch, parent = Watch(), Parent(dsh.behaviour(settlements=True)(middle))
    with dsh.ActorSystem(on_event=watch) as system:
        handle = parent.start(system)
        for number in range(ROUNDS):
            parent.spawn(handle, f"middle-{number}")
        notices = {parent.notice().child for _ in range(ROUNDS)}
        assert notices == {f"middle-{number}" for number in range(ROUNDS)}
    told = {heard.get(timeout=PATIENCE) for _ in range(ROUNDS)}
    assert told == {f"child of middle-{number}" for number in range(ROUNDS)}


@pytest.mark.behaviour(136)
def test_the_notice_is_in_the_inbox_before_the_parent_can_see_itself_childless() -> None:
    parent = Parent(echo)
    with Gates() as gates, dsh.ActorSystem() as system:
        handle = parent.start(system)
        with gates.hold("notified", agent="child") as held:
            parent.spawn(handle, "child")
            held.wait()
            assert parent.notice().child == "child"  # it is here,
            assert system.tree()[0].children == [] or handle.agent.status == "waiting"
            assert handle.agent.status == "waiting"  # and the child is still owned
        handle.agent.when_idle().result(PATIENCE)


@pytest.mark.behaviour(139)
def test_a_parent_that_fails_on_a_notice_delays_nobody() -> None:
    @dsh.behaviour(settlements=True)
    def parent(turn: dsh.Turn, message: Any) -> None:
        if isinstance(message, dsh.Settlement):
            raise ValueError("not interested")
        turn.spawn(echo, None, id="child")

    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(parent, id="parent").agent
        agent.send(None)  # the notice may come as a step of this very turn
        watch.see("agent/ended", "child")
        watch.see("turn/end", "parent", reason="error")
        assert agent.status in ("idle", "waiting")


@pytest.mark.behaviour(140)
def test_a_closing_parent_has_the_notice_on_the_record_and_is_not_woken() -> None:
    reached, opened = threading.Event(), threading.Event()

    def child(turn: dsh.Turn, message: Any) -> None:
        reached.set()
        assert opened.wait(PATIENCE)

    store, watch, parent = MemoryStore(), Watch(), Parent(child)
    with dsh.ActorSystem(on_event=watch, store=store) as system:
        handle = parent.start(system)
        session = handle.agent.session_id
        parent.spawn(handle, "child")
        assert reached.wait(PATIENCE)
        handle.agent.when_idle().result(PATIENCE)
        turns = len(watch.of("turn/start", "parent"))
        stop = handle.dispose()
        opened.set()
        receipt = stop.result(PATIENCE)
        assert [end.id for end in receipt.agents] == ["parent", "child"]
        assert len(watch.of("turn/start", "parent")) == turns
    assert session is not None
    types = [event.type for event in store.load(session)[1]]
    assert types.index("child/settled") < types.index("notice/discarded")
    assert types[-1] == "agent/ended"
    assert parent.notices.empty()
    store.close()


@pytest.mark.behaviour(141)
@pytest.mark.parametrize(("first", "outcome"), [("x", "completed"), ("fail", "failed")])
def test_there_is_a_notice_for_every_outcome(first: str, outcome: str) -> None:
    parent = Parent(echo)
    with dsh.ActorSystem() as system:
        parent.spawn(parent.start(system), "child", first)
        assert parent.notice().outcome == outcome


@pytest.mark.behaviour(141)
def test_there_is_a_notice_of_an_aborted_child_and_none_of_one_rolled_back() -> None:
    reached = threading.Event()

    def child(turn: dsh.Turn, message: Any) -> None:
        reached.set()
        turn.sleep(PATIENCE)

    parent = Parent(child)
    with dsh.ActorSystem() as system:
        handle = parent.start(system)
        agent = parent.spawn(handle, "child")
        with pytest.raises(dsh.AgentFailed, match="DuplicateId"):
            parent.spawn(handle, "child")
        assert reached.wait(PATIENCE)
        agent.cancel()
        assert parent.notice().outcome == "aborted"
    assert parent.notices.empty()


@pytest.mark.behaviour(142, 150)
def test_a_message_that_meets_the_settlement_is_never_lost() -> None:
    """Each round sends into the window between the end of a turn and the settlement."""
    watch, parent = Watch(), Parent(echo)
    with dsh.ActorSystem(on_event=watch) as system:
        child = parent.spawn(parent.start(system), "child", 0)
        for number in range(ROUNDS):
            replies = [child.ask([number, part]) for part in range(3)]
            assert [reply.result(PATIENCE) for reply in replies] == [
                [number, part] for part in range(3)
            ]
        lives = 0  # never two at once
        for event in watch.events:
            if event.get("agent") == "child" and event["type"] in ("agent/started", "agent/ended"):
                lives += 1 if event["type"] == "agent/started" else -1
                assert lives in (0, 1)


@pytest.mark.behaviour(150)
def test_a_parent_in_a_worker_goes_on_with_its_child_as_well() -> None:
    """Each ask may meet the child before, in or after its settlement."""
    with dsh.ActorSystem(workers=2) as system:
        agent = system.create("tests.worker_behaviours:asks_its_child", isolation="pool").agent
        for count in (20, 21) * 5:
            assert agent.ask(count).result(PATIENCE) == list(range(count))


@pytest.mark.behaviour(150)
def test_a_delivery_that_loses_against_the_disposal_waits_and_then_goes_on() -> None:
    parent = Parent(echo)
    with Gates() as gates, dsh.ActorSystem() as system:
        handle = parent.start(system)
        with gates.hold("handle-disposed", agent="child") as held:
            child = parent.spawn(handle, "child", "first")
            held.wait()
            reply = child.ask("second")
            assert not reply.done()
        assert reply.result(PATIENCE) == "second"


@pytest.mark.behaviour(149)
def test_operations_on_one_child_wait_for_each_other_and_for_no_other_child() -> None:
    parent = Parent(echo)
    with Gates() as gates, dsh.ActorSystem() as system:
        handle = parent.start(system)
        with gates.hold("handle-disposed", agent="a") as held:
            a = parent.spawn(handle, "a", 0)
            held.wait()
            order: SimpleQueue[int] = SimpleQueue()
            replies = [a.ask(number) for number in range(1, 6)]
            for reply in replies:
                reply.add_done_callback(lambda done: order.put(done.result(0)))
            b = parent.spawn(handle, "b", "at once")
            assert b.ask("too").result(PATIENCE) == "too"
            assert order.empty()
        assert [order.get(timeout=PATIENCE) for _ in replies] == [1, 2, 3, 4, 5]


@pytest.mark.behaviour(151)
def test_a_child_is_owned_before_it_can_run() -> None:
    """The middle agent has ended its turn while its child is still held before its first one."""
    heard: SimpleQueue[str] = SimpleQueue()

    def middle(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(echo, None, id="late")

    parent = Parent(middle)
    with Gates() as gates, dsh.ActorSystem() as system:
        handle = parent.start(system)
        with gates.hold("claimed", agent="late") as held:
            child = parent.spawn(handle, "middle")
            held.wait()
            child.when_idle().result(PATIENCE)
            assert child.status == "waiting"
            assert "late" in live(system)
        assert parent.notice().child == "middle"
    assert heard.empty()


@pytest.mark.behaviour(152)
def test_an_interrupt_leaves_the_descendants_running_and_an_absent_target_is_no_error() -> None:
    reached, opened, below = threading.Event(), threading.Event(), threading.Event()

    def grandchild(turn: dsh.Turn, message: Any) -> bool:
        below.set()
        assert opened.wait(PATIENCE)
        return turn.signal.is_set()

    replies: list[Any] = []

    def middle(turn: dsh.Turn, message: Any) -> None:
        child = turn.spawn(grandchild, None, id="grandchild")
        replies.append(child)
        reached.set()
        turn.sleep(PATIENCE)

    watch, parent = Watch(), Parent(middle)
    with dsh.ActorSystem(on_event=watch) as system:
        child = parent.spawn(parent.start(system), "middle")
        assert reached.wait(PATIENCE)
        assert below.wait(PATIENCE)
        child.interrupt()
        watch.see("turn/end", "middle", reason="aborted")
        assert replies[0].status == "running"
        opened.set()
        assert parent.notice().child == "middle"
        child.interrupt()  # it has settled
        child.interrupt()


@pytest.mark.behaviour(153)
@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_only_the_parent_delivers_and_only_an_ancestor_interrupts(isolation: str) -> None:
    hold = threading.Event()
    found: dict[str, dsh.Agent] = {}

    def child(turn: dsh.Turn, message: Any) -> None:
        assert hold.wait(PATIENCE)

    def parent(turn: dsh.Turn, message: Any) -> None:
        found["child"] = turn.spawn(child, None, id="child")

    def stranger(turn: dsh.Turn, message: Any) -> list[str]:
        refused = []
        for act in (found["child"].send, found["child"].ask):
            try:
                act("hello")
            except dsh.NotAuthorized as error:
                refused.append(str(error))
        try:
            found["child"].interrupt()
        except dsh.NotAuthorized as error:
            refused.append(str(error))
        return refused

    with dsh.ActorSystem() as system:
        system.create(parent, id="parent").agent.ask(None).result(PATIENCE)
        refused = system.create(stranger, id="stranger").agent.ask(None).result(PATIENCE)
        assert len(refused) == 3
        assert all("stranger" in each and "child" in each for each in refused)
        found["child"].interrupt()  # the user may
        hold.set()


@pytest.mark.behaviour(153)
def test_a_stop_by_the_user_leaves_a_tombstone_that_the_parent_cannot_undo() -> None:
    parent = Parent(echo)
    with dsh.ActorSystem() as system:
        handle = parent.start(system)
        child = parent.spawn(handle, "child", "x")
        parent.notice()
        assert child.ask("again").result(PATIENCE) == "again"
        with Gates() as gates, gates.hold("handle-disposed", agent="child") as held:
            assert child.ask("once more").result(PATIENCE) == "once more"
            held.wait()
            stop = system.stop("child")
        stop.result(PATIENCE)
        with pytest.raises(dsh.AgentGone, match="was stopped"):
            child.ask("never")


def test_a_notice_is_on_the_record_of_a_parent_that_does_not_take_it() -> None:
    store, watch = MemoryStore(), Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(echo, "hello", id="child")

    with dsh.ActorSystem(on_event=watch, store=store) as system:
        agent = system.create(parent, id="parent").agent
        agent.ask(None).result(PATIENCE)
        watch.see("agent/ended", "child")
        assert len(watch.of("turn/start", "parent")) == 1
        session = agent.session_id
    assert session is not None
    (settled,) = [e for e in store.load(session)[1] if e.type == "child/settled"]
    assert settled.data["child"] == "child"
    assert settled.data["last"] == "hello"
    assert codec.encode(settled.data)
    store.close()
