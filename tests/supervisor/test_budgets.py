"""Policies, budgets and depth in running systems: the same inline and in workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import budget_behaviours as behaviours
import pytest
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore
from dsh_actors.supervisor.bounds import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh_actors.lifecycle.budget import Account

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as made:
        yield made


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def system(store: MemoryStore, watch: Watch) -> Iterator[dsh.ActorSystem]:
    with dsh.ActorSystem(workers=1, store=store, on_event=watch) as made:
        yield made


def log(store: MemoryStore, agent: dsh.Agent) -> list[tuple[str, Any]]:
    assert agent.session_id is not None
    store.flush(PATIENCE)
    return [(event.type, event.data) for event in store.load(agent.session_id)[1]]


def account_of(agent: dsh.Agent) -> Account:
    account: Account = agent._target.bounds.account
    return account


def ask(agent: dsh.Agent, message: Any = None) -> Any:
    return agent.ask(message).result(PATIENCE)


# -- policy --------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.behaviour(146)
def test_a_child_gets_what_its_parent_has_of_what_it_asks_for(
    system: dsh.ActorSystem, isolation: str
) -> None:
    policy = dsh.Policy(tools=["read", "write"], paths=["/srv"], network=False)
    parent = system.create(behaviours.starts, isolation=isolation, policy=policy).agent
    for child in ("inline", "pool"):
        wide = {"tools": ["read", "bash"], "paths": ["/srv/a", "/etc"], "max_depth": 5}
        order = {"behaviour": "policy", "isolation": child, "policy": wide}
        assert ask(parent, order) == {
            "tools": ["read"], "paths": ["/srv/a"], "network": False, "max_depth": 5,
        }  # fmt: skip
        assert ask(parent, {"behaviour": "policy", "isolation": child}) == policy.to_plain()


def test_an_agent_without_a_policy_may_do_everything(system: dsh.ActorSystem) -> None:
    assert ask(system.create(behaviours.policy).agent) == {}


@EVERYWHERE
def test_the_effective_policy_is_in_the_header(
    system: dsh.ActorSystem, store: MemoryStore, isolation: str
) -> None:
    policy = dsh.Policy(tools=["read", "write"])
    root = system.create(behaviours.starts, isolation=isolation, policy=policy)
    ask(root.agent, {"id": "child", "policy": {"tools": ["write", "bash"]}, "budget": {"turns": 2}})
    root.dispose().result(PATIENCE)
    headers = {info.agent_id: store.load(info.id)[0] for info in store.list()}
    assert headers[root.agent.id].policy == {"tools": ["read", "write"]}
    assert headers["child"].policy == {"tools": ["write"]}
    assert headers["child"].options["budget"] == {"turns": 2}


@EVERYWHERE
def test_an_isolation_that_the_policy_has_not_is_refused_before_a_process_starts(
    system: dsh.ActorSystem, isolation: str
) -> None:
    policy = dsh.Policy(isolation=["inline", "pool"])
    parent = system.create(behaviours.starts, isolation=isolation, policy=policy).agent
    got = ask(parent, {"isolation": "own"})
    assert got["type"] == "PolicyError"
    assert "no child with isolation 'own'; it allows inline, pool" in got["text"]
    assert system._supervisor.pool._count == (isolation == "pool"), "a process was started"


@EVERYWHERE
def test_an_isolation_that_does_not_exist_is_a_usage_error(
    system: dsh.ActorSystem, isolation: str
) -> None:
    parent = system.create(behaviours.starts, isolation=isolation).agent
    assert ask(parent, {"isolation": "thread"})["type"] == "UsageError"


def test_what_is_no_policy_and_no_budget_is_refused(system: dsh.ActorSystem) -> None:
    with pytest.raises(dsh.UsageError, match=r"policy must be a dsh_actors\.Policy, not \{\}"):
        system.create(behaviours.echo, policy={})  # type: ignore[arg-type]
    with pytest.raises(dsh.UsageError, match=r"budget must be a dsh_actors\.Budget, not 3"):
        system.create(behaviours.echo, budget=3)  # type: ignore[arg-type]
    assert system.tree() == []


# -- depth ---------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize(
    ("options", "cap"),
    [
        ({}, 4),
        ({"policy": dsh.Policy(max_depth=2)}, 2),
        ({"budget": dsh.Budget(depth=3)}, 3),
        ({"policy": dsh.Policy(max_depth=9), "budget": dsh.Budget(depth=9)}, 4),
    ],
)
@pytest.mark.behaviour(145)
def test_over_the_cap_a_start_is_refused(
    store: MemoryStore, isolation: str, options: dict[str, Any], cap: int
) -> None:
    with dsh.ActorSystem(workers=1, store=store, max_depth=4) as system:
        root = system.create(behaviours.deeper, isolation=isolation, **options).agent
        assert ask(root, isolation) == [cap + 1, "DepthExceeded"]
    assert sorted(store.load(info.id)[0].depth for info in store.list()) == list(range(cap + 1))


@pytest.mark.behaviour(145)
def test_no_resume_makes_an_agent_less_deep(store: MemoryStore) -> None:
    with dsh.ActorSystem(store=store, max_depth=3) as system:
        maker = system._supervisor.factory
        spec = maker.spec(
            behaviours.starts, "inline", "temporary", None, Limits.asked(None, None, depth=3)
        )
        agent = system._supervisor.agent(maker.create(spec))
        got = ask(agent, {})
        assert got["type"] == "DepthExceeded"
        assert "would have depth 4, and this system (max_depth) allows 3 at most" in got["text"]
        assert agent.session_id is not None
        store.flush(PATIENCE)
        assert store.load(agent.session_id)[0].depth == 3


# -- carving -------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_child_has_its_own_part_and_what_is_unused_comes_back(
    system: dsh.ActorSystem, isolation: str
) -> None:
    handle = system.create(
        behaviours.starts, isolation=isolation, budget=dsh.Budget(tokens=100, children=5)
    )
    order = {"behaviour": "spends", "message": 10, "isolation": isolation}
    assert ask(handle.agent, {**order, "budget": {"tokens": 40}}) == {"tokens": 30, "children": 4}
    assert account_of(handle.agent).left(0).tokens == 90
    assert ask(handle.agent, order) == {"tokens": 80, "children": 3}


@EVERYWHERE
@pytest.mark.parametrize(
    ("has", "asked", "text"),
    [
        ({"tokens": 5}, {"budget": {"tokens": 6}}, "has 5 of tokens left; 6 were asked for"),
        ({"children": 0}, {}, "has 0 of children left; 1 were asked for"),
        ({"processes": 0}, {"isolation": "own"}, "has 0 of processes left; 1 were asked for"),
        ({"wall": 60.0}, {"budget": {"wall": 61.0}}, "s of wall time left; 61 were asked for"),
    ],
)
@pytest.mark.behaviour(147)
def test_a_start_over_the_budget_is_refused_and_leaves_nothing(
    system: dsh.ActorSystem, store: MemoryStore, watch: Watch, isolation: str,
    has: dict[str, Any], asked: dict[str, Any], text: str,
) -> None:  # fmt: skip
    parent = system.create(
        behaviours.starts, isolation=isolation, budget=dsh.Budget.from_plain({"cost": 1, **has})
    ).agent
    before = account_of(parent).left(0)
    got = ask(parent, {"id": "child", **asked})
    assert got["type"] == "BudgetExceeded"
    assert text in got["text"]
    assert "the child was not started" in got["text"]
    assert account_of(parent).left(0) == before
    assert [info.agent_id for info in store.list()] == [parent.id]
    assert not watch.of("agent/started", "child")
    assert system._supervisor.pool._count == (isolation == "pool"), "a process was started"
    assert ask(parent, {"message": "goes on"} if has.get("children") != 0 else {}) != before


@EVERYWHERE
def test_a_refusal_is_typed_for_a_spawn_too(system: dsh.ActorSystem, isolation: str) -> None:
    parent = system.create(
        behaviours.spawns, isolation=isolation, budget=dsh.Budget(tokens=5)
    ).agent
    assert ask(parent, {"budget": {"tokens": 6}}) == ["tokens", 5, 6]
    assert ask(parent, {"id": "child", "budget": {"tokens": 5}}) == "child"
    lowest = system.create(behaviours.spawns, isolation=isolation, budget=dsh.Budget(depth=0)).agent
    assert ask(lowest, {}) == [1, 0]


@pytest.mark.parametrize("why", ["taken id", "failing store", "stopping parent"])
@pytest.mark.behaviour(147)
def test_what_was_carved_for_a_child_that_never_came_to_be_is_back(
    system: dsh.ActorSystem, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    gate = Gate()
    system.create(behaviours.echo, id="taken")
    parent = system.create(
        lambda turn, message: gate.hold(), id="parent", budget=dsh.Budget(children=3, tokens=100)
    ).agent
    parent.send(1)
    gate.reached()
    maker, node = system._supervisor.factory, parent._target
    spec = maker.spec(
        behaviours.echo, "inline", "temporary", None, Limits.asked(None, dsh.Budget(tokens=60))
    )
    if why == "failing store":

        def broken(*_: Any, **__: Any) -> None:
            raise dsh.StoreError("the disk is full")

        monkeypatch.setattr(store, "create", broken)
    elif why == "stopping parent":
        system.stop(parent.id)
    expected = {"taken id": dsh.DuplicateId, "failing store": dsh.StoreError}.get(
        why, dsh.AdmissionRefused
    )
    sessions = len(store.list())
    with pytest.raises(expected):
        maker.create(spec, id="taken" if why == "taken id" else "child", parent=node)
    assert account_of(parent).left(0) == dsh.Budget(children=3, tokens=100)
    assert not node.children
    assert "child" not in system._core.tree.nodes
    assert len(store.list()) == sessions
    gate.open()


# -- turns ---------------------------------------------------------------------------------------


@EVERYWHERE
def test_a_turn_that_may_not_start_is_refused_on_the_record(
    system: dsh.ActorSystem, store: MemoryStore, isolation: str
) -> None:
    handle = system.create(behaviours.echo, isolation=isolation, budget=dsh.Budget(turns=2))
    replies = [handle.agent.ask(number) for number in range(4)]
    assert [reply.result(PATIENCE) for reply in replies[:2]] == [0, 1]
    for reply in replies[2:]:
        with pytest.raises(dsh.BudgetExceeded, match="0 of turns left") as raised:
            reply.result(PATIENCE)
        assert (raised.value.resource, raised.value.left) == ("turns", 0)
    handle.agent.when_idle().result(PATIENCE)
    handle.dispose().result(PATIENCE)
    kinds = [(type, data.get("cause")) for type, data in log(store, handle.agent)]
    assert kinds.count(("turn/start", None)) == 2
    assert kinds.count(("prompt/discarded", "budget")) == 2


@EVERYWHERE
def test_children_share_the_turns_of_their_parent(system: dsh.ActorSystem, isolation: str) -> None:
    parent = system.create(
        behaviours.starts_many, isolation=isolation, budget=dsh.Budget(turns=3)
    ).agent
    got = ask(parent, [{"message": number, "isolation": "pool"} for number in range(3)])
    assert got[:2] == [0, 1]
    assert got[2]["type"] == "BudgetExceeded"


def test_a_granted_turn_that_a_cancel_made_useless_is_not_lost(system: dsh.ActorSystem) -> None:
    handle = system.create(behaviours.echo, isolation="pool", budget=dsh.Budget(turns=5))
    for _ in range(30):
        handle.agent.send(1)
        handle.agent.cancel()
    handle.agent.when_idle().result(PATIENCE)
    account = account_of(handle.agent)
    started = account.spent().turns
    handle.dispose().result(PATIENCE)
    ended = account.spent().turns
    assert started is not None
    assert ended is not None
    assert started - ended in (0, 1)


# -- tokens and cost -----------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("behaviour", [behaviours.spends_on, behaviours.insists])
def test_a_budget_that_runs_out_ends_the_turn_with_limit(
    system: dsh.ActorSystem, store: MemoryStore, watch: Watch, isolation: str,
    behaviour: Callable[..., Any],
) -> None:  # fmt: skip
    handle = system.create(behaviour, isolation=isolation, budget=dsh.Budget(tokens=100))
    reply = handle.agent.ask(101)
    reply.exception(PATIENCE)
    end = watch.see("turn/end", handle.agent.id)
    assert end["reason"] == "limit"
    if behaviour is behaviours.insists:  # what it returned is kept
        assert reply.result(0) == "finished all the same"
    else:
        with pytest.raises(dsh.BudgetExceeded, match="of tokens left: it is overdrawn by"):
            reply.result(0)
    later = handle.agent.ask(1)
    with pytest.raises(dsh.BudgetExceeded, match="of tokens left: it is overdrawn by"):
        later.result(PATIENCE)
    handle.dispose().result(PATIENCE)
    (ended,) = [data for type, data in log(store, handle.agent) if type == "turn/end"]
    assert (ended["reason"], ended["cause"]) == ("limit", "budget")
    assert ended["error"]["type"] == "BudgetExceeded"


@EVERYWHERE
def test_the_results_so_far_are_kept(system: dsh.ActorSystem, isolation: str) -> None:
    parent = system.create(behaviours.starts, isolation=isolation).agent
    order = {"behaviour": "keeps_what_it_has", "message": 30, "budget": {"tokens": 100}}
    got = ask(parent, {**order, "isolation": isolation})
    assert got["type"] == "BudgetExceeded"
    assert got["value"][:4] == [30, 30, 30, 30]


@EVERYWHERE
def test_an_async_turn_that_has_spent_too_much_goes_no_further(
    system: dsh.ActorSystem, watch: Watch, isolation: str
) -> None:
    agent = system.create(
        behaviours.spends_async, isolation=isolation, budget=dsh.Budget(tokens=3)
    ).agent
    assert ask(agent, 3) == "went on"
    agent.ask(1).exception(PATIENCE)
    assert watch.see("turn/end", agent.id, count=2)["reason"] == "limit"


@EVERYWHERE
def test_what_a_child_has_overdrawn_is_charged_to_its_parent(
    system: dsh.ActorSystem, isolation: str
) -> None:
    parent = system.create(
        behaviours.starts, isolation=isolation, budget=dsh.Budget(tokens=100)
    ).agent
    order = {"behaviour": "spends", "message": 30, "budget": {"tokens": 20}}
    got = ask(parent, {**order, "isolation": isolation})
    assert got["type"] == "BudgetExceeded"
    assert account_of(parent).left(0).tokens == 70
    assert ask(parent, {"message": "goes on"}) == "goes on"


def test_spending_nothing_anybody_counts_is_free(system: dsh.ActorSystem) -> None:
    assert ask(system.create(behaviours.spends).agent, 10**12) == {}


@pytest.mark.parametrize("amount", [-1, 1.5, "3", True])
def test_what_is_no_amount_is_refused(system: dsh.ActorSystem, amount: Any) -> None:
    with pytest.raises(dsh.AgentFailed, match="UsageError: tokens is a whole number from 0"):
        ask(system.create(behaviours.spends).agent, amount)


def test_a_late_report_never_touches_the_next_turn(system: dsh.ActorSystem) -> None:
    gate, turns = Gate(), []

    def spends_late(turn: dsh.Turn, message: Any) -> str:
        turns.append(turn)
        if len(turns) == 2:
            gate.hold()
            turn.check()
        return "done"

    agent = system.create(spends_late, budget=dsh.Budget(tokens=1)).agent
    ask(agent)
    second = agent.ask(None)
    gate.reached()
    turns[0].spend(tokens=5)
    gate.open()
    assert second.result(PATIENCE) == "done"
    with pytest.raises(dsh.BudgetExceeded):
        ask(agent)


# -- wall time -----------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("behaviour", [behaviours.waits, behaviours.waits_async])
def test_time_that_is_over_ends_the_running_turn_and_refuses_the_next(
    system: dsh.ActorSystem, watch: Watch, isolation: str, behaviour: Callable[..., Any]
) -> None:
    agent = system.create(behaviour, isolation=isolation, budget=dsh.Budget(wall=3600)).agent
    first, second = agent.ask(1), agent.ask(2)
    watch.see("progress", agent.id)
    run_out(system, agent)
    for reply in (first, second, agent.ask(3)):
        with pytest.raises(dsh.BudgetExceeded, match="wall time left: its time is over") as raised:
            reply.result(PATIENCE)
        assert raised.value.resource == "wall"
    assert watch.see("turn/end", agent.id)["reason"] == "limit"
    assert len(watch.of("turn/start", agent.id)) == 1


def test_time_that_is_over_is_over_for_everything_below(
    system: dsh.ActorSystem, watch: Watch
) -> None:
    agent = system.create(behaviours.starts, budget=dsh.Budget(wall=3600)).agent
    reply = agent.ask({"behaviour": "waits", "isolation": "pool", "id": "child"})
    watch.see("progress", "child")
    run_out(system, agent)
    assert watch.see("turn/end", "child")["reason"] == "limit"
    assert isinstance(reply.exception(PATIENCE), dsh.BudgetExceeded)


def test_a_deadline_comes_by_itself(system: dsh.ActorSystem) -> None:
    agent = system.create(behaviours.waits, budget=dsh.Budget(wall=0.01)).agent
    assert isinstance(agent.ask(1).exception(PATIENCE), dsh.BudgetExceeded)


def run_out(system: dsh.ActorSystem, agent: dsh.Agent) -> None:
    """Have the time of an agent be over, without waiting for it."""
    node = agent._target
    node.bounds.account.deadline = 0.0
    for child in (node.children or {}).values():
        child.bounds.account.deadline = 0.0
    system._supervisor.post(system._supervisor.boundaries._time_is_over, node)


# -- lives ---------------------------------------------------------------------------------------


def test_what_is_left_is_known_inside(system: dsh.ActorSystem) -> None:
    budget = dsh.Budget(turns=5, tokens=10, cost=1.5, depth=2, wall=3600)
    for isolation in ("inline", "pool"):
        got = ask(system.create(behaviours.left, isolation=isolation, budget=budget).agent)
        assert 3500 < got.pop("wall") <= 3600
        assert got == {"turns": 4, "tokens": 10, "cost": 1.5, "depth": 2}
        assert ask(system.create(behaviours.left, isolation=isolation).agent) == {}


def test_a_restarted_agent_goes_on_with_what_it_had(system: dsh.ActorSystem, watch: Watch) -> None:
    import os
    import signal

    handle = system.create(
        behaviours.spends, isolation="own", restart="permanent",
        budget=dsh.Budget(tokens=100, turns=3), policy=dsh.Policy(network=False),
    )  # fmt: skip
    assert ask(handle.agent, 60) == {"tokens": 40, "turns": 2}
    os.kill(watch.of("worker/started")[0]["pid"], signal.SIGKILL)
    watch.see("agent/restarted", handle.agent.id)
    assert ask(handle.agent, 10) == {"tokens": 30, "turns": 1}
    account = handle.agent._target.latest.bounds.account
    assert not account.closed
    assert handle.agent._target.latest.bounds.policy == dsh.Policy(network=False)
    handle.dispose().result(PATIENCE)
    assert account.closed


@EVERYWHERE
@pytest.mark.behaviour(146)
def test_a_next_life_has_what_the_earlier_ones_have_left(
    system: dsh.ActorSystem, watch: Watch, isolation: str
) -> None:
    children: list[dsh.Agent] = []

    def parent(turn: dsh.Turn, message: Any) -> None:
        children.append(
            turn.spawn(
                behaviours.spends, 15, isolation=isolation, policy=dsh.Policy(network=False),
                budget=dsh.Budget(tokens=40, turns=3),
            )
        )  # fmt: skip

    top = system.create(parent, budget=dsh.Budget(tokens=100, turns=10)).agent
    ask(top)
    (child,) = children
    watch.see("agent/ended", child.id)
    assert account_of(top).left(0).tokens == 85
    assert ask(child, 5) == {"tokens": 20, "turns": 1}
    watch.see("agent/ended", child.id, count=2)
    assert account_of(top).left(0).tokens == 80
    assert child._target.latest.bounds.policy == dsh.Policy(network=False)
    account_of(top).spend(tokens=70)
    assert ask(child, 5) == {"tokens": 5, "turns": 0}
    watch.see("agent/ended", child.id, count=3)
    with pytest.raises(dsh.BudgetExceeded, match="0 of turns left"):
        ask(child, 1)
    watch.see("agent/ended", child.id, count=4)
    assert account_of(top).left(0) == dsh.Budget(tokens=5, turns=6)
