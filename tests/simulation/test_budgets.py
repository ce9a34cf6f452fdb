"""Budgets in random trees, under cancels, deaths and deadlines: nothing made, nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.lifecycle.budget import Account, Budget
from dsh_actors.observe.logging import set_level
from dsh_actors.supervisor.bounds import Boundaries, Bounds
from dsh_actors.testing.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from dsh_actors.testing.simulation import Simulation

HERE = "tests.simulation.test_budgets"
SEEDS = max(100, int(os.environ.get("DSH_ACTORS_SEEDS", "2000")) // 4)


async def spender(turn: dsh.Turn, plan: list[Any]) -> int:
    """Play a plan: spend, start children with and without budgets, sleep."""
    jobs = []
    for operation, *rest in plan:
        if operation == "spend":
            turn.spend(tokens=rest[0], cost=rest[0] / 10)
        elif operation == "run":
            isolation, budget, below = rest
            asked = None if budget is None else dsh.Budget.from_plain(budget)
            with contextlib.suppress(dsh.DshActorsError):
                jobs.append(turn.run(f"{HERE}:spender", below, isolation=isolation, budget=asked))
        elif operation == "gather":
            async for _ in dsh.as_settled(jobs):
                pass
            jobs = []
        elif operation == "sleep":
            await turn.sleep(rest[0])
        elif operation == "swallow":
            with contextlib.suppress(asyncio.CancelledError):
                await turn.sleep(rest[0])
    return len(plan)


def a_budget(random: Random, most: int) -> dict[str, Any]:
    chosen = {
        "tokens": random.randint(0, most), "turns": random.randint(0, 4), "cost": most / 10,
        "children": random.randint(0, 4), "processes": random.randint(0, 1),
        "wall": random.choice([0.5, 5, 50]), "depth": random.randint(0, 2),
    }  # fmt: skip
    return {name: value for name, value in chosen.items() if random.random() < 0.4}


def a_plan(random: Random, depth: int) -> list[Any]:
    plan: list[Any] = []
    for _ in range(random.randint(1, 5)):
        kind = random.choice(["spend", "spend", "run", "run", "gather", "sleep", "swallow"])
        if kind == "spend":
            plan.append([kind, random.randint(0, 9)])
        elif kind == "run" and depth:
            budget = a_budget(random, 10) if random.random() < 0.6 else None
            isolation = random.choice(["inline", "pool", "pool", "own"])
            plan.append([kind, isolation, budget, a_plan(random, depth - 1)])
        elif kind == "gather":
            plan.append([kind])
        elif kind in ("sleep", "swallow"):
            plan.append([kind, random.choice([0, 0.1, 1, 30])])
    return plan


class Books:
    """Every account of a run, and what was counted on them from outside."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.accounts: list[Account] = []
        self.used: dict[str, dict[str, int]] = {}
        make, spend, start_child = Account.__init__, Account._spend, Account.start_child
        books = self

        def made(account: Account, *args: Any, **options: Any) -> None:
            make(account, *args, **options)
            books.accounts.append(account)

        def spent(account: Account, resource: str, units: int) -> Any:
            source = spend(account, resource, units)
            if source is not None:
                used = books.used.setdefault(books.top(account).owner, {})
                used[resource] = used.get(resource, 0) + units
            return source

        def started(account: Account, request: Any, **options: Any) -> Account:
            assert not account.closed, "a child was started below an agent that has ended"
            return start_child(account, request, **options)

        patch.setattr(Account, "__init__", made)
        patch.setattr(Account, "_spend", spent)
        patch.setattr(Account, "start_child", started)

    def top(self, account: Account) -> Account:
        while account._above is not None:
            account = account._above
        return account

    def check(self) -> None:
        for account in self.accounts:
            assert account.closed, f"{account} was never rolled up"
            for resource, limit in account._limits.items():
                assert account._set_aside.get(resource, 0) == 0
                assert account._left(resource) == limit - account._spent.get(resource, 0)
                if resource in ("turns", "children", "processes"):
                    assert account._left(resource) >= 0, f"{account} has overdrawn {resource}"
            if account._above is None:
                used = self.used.get(account.owner, {})
                for resource in account._limits:
                    assert account._spent.get(resource, 0) == used.get(resource, 0)


async def tree(sim: Simulation) -> None:
    random = sim.random
    handles = []
    for number in range(random.randint(1, 2)):
        budget = {"turns": random.randint(0, 8), "tokens": 60, "children": 6}
        budget.update(a_budget(random, 60))
        handles.append(
            sim.system.create(
                f"{HERE}:spender", id=f"root-{number}", isolation=random.choice(["inline", "pool"]),
                restart=random.choice(["temporary", "transient"]),
                budget=dsh.Budget.from_plain(budget),
            )
        )  # fmt: skip
    for _ in range(random.randint(1, 8)):
        for _ in range(random.randint(0, 15)):
            await sim.pause()
        agent = random.choice(handles).agent
        act = random.randrange(8)
        if act < 4:
            sim.ask(agent, a_plan(random, 2))
        elif act == 4:
            agent.cancel(tree=random.random() < 0.5)
        elif act == 5:
            agent.interrupt()
        elif act == 6:
            sim.kill_a_worker()
        else:
            sim.watch.replies.append(("when_idle", agent.when_idle()))
    for _ in range(random.randint(0, 80)):
        await sim.pause()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    set_level("off")
    yield
    set_level("warning")


def check(seed: int) -> None:
    """Run one seed and look at the books."""
    with pytest.MonkeyPatch.context() as patch:
        books = Books(patch)
        simulation = simulate(tree, seed, store=seed % 2 == 0)
        if simulation.system.tree():
            return  # somebody survived the grace period, and is named in the receipt
        books.check()
        if simulation.store is not None:
            check_turns(simulation, books)


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_made_and_nothing_is_lost(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        check(seed)


def _close_again(account: Account) -> bool:
    account.closed = False
    return _close(account)


_close = Account.close

MUTATIONS = {
    "an account that is never rolled up": (Boundaries, "close_locked", lambda *_: None),
    "one that is rolled up twice": (Account, "close", _close_again),
    "a turn that was granted and not used": (Account, "return_turn", lambda _: None),
    "a turn that is not counted": (Bounds, "begin", lambda _: None),
    "a child that is carved from nothing": (
        Account, "start_child",
        lambda _, request, *, owner, now, depth, process=False: Account(
            request or Budget(), owner=owner, now=now, depth=depth
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_seed_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[name])
    for seed in range(400):
        try:
            check(seed)
        except AssertionError:
            return
    pytest.fail(f"400 seeds did not notice: {name}")


def check_turns(simulation: Simulation, books: Books) -> None:
    """As many turns are on the record as were counted; fewer if a worker died with one."""
    store = simulation.store
    assert store is not None
    lost = any(
        node.outcome == "lost" or node.agent.lost for node in simulation.watch._seen.values()
    )
    begun: dict[str, int] = {}
    for session, log in store.logs.items():
        root = store.sessions[store.sessions[session].root].agent_id
        for type, data in log:
            if type == "turn/start":
                assert codec.decode(data)["turn"] > 0
                begun[root] = begun.get(root, 0) + 1
    for account in books.accounts:
        if account._above is None and "turns" in account._limits:
            count, counted = begun.get(account.owner, 0), account._spent.get("turns", 0)
            assert count <= counted if lost else count == counted
