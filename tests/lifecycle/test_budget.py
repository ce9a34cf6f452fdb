"""Budgets: carved before the work starts, rolled up once, nothing made and nothing lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors import codec
from dsh_actors.errors import BudgetExceeded, UsageError
from dsh_actors.lifecycle.budget import COUNTED, UNLIMITED, Account, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

amounts = st.none() | st.integers(0, 20)
costs = st.none() | st.integers(0, 2000).map(lambda cents: cents / 100)
budgets = st.builds(
    Budget,
    wall=st.none() | st.integers(0, 50).map(float), turns=amounts, children=amounts,
    depth=st.none() | st.integers(0, 4), processes=amounts, tokens=amounts, cost=costs,
)  # fmt: skip


def holds(accounts: list[Account]) -> None:
    """For each resource of each account: limit = left + spent + set aside for live children."""
    for account in accounts:
        if account.closed:
            continue
        for resource, limit in account._limits.items():
            set_aside = sum(
                child._limits[resource]
                for child in accounts
                if not child.closed
                and resource in child._limits
                and child._above is not None
                and child._above._source(resource) is account
            )
            assert set_aside == account._set_aside.get(resource, 0)
            spent = account._spent.get(resource, 0)
            assert limit == account._left(resource) + spent + set_aside


# -- random trees --------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "turn", "spend", "close", "undo"]),
        st.integers(0, 10**6), st.none() | budgets, st.integers(0, 15), st.integers(0, 500),
    ),
    max_size=60,
)  # fmt: skip


@given(budgets, steps)
def test_nothing_is_made_and_nothing_is_lost(top: Budget, plan: list[Any]) -> None:
    root = Account(top, owner="root")
    accounts, depths = [root], {root: 0}
    used: dict[str, int] = dict.fromkeys(COUNTED, 0)
    now = 0.0
    for act, which, request, tokens, cents in plan:
        now += 0.5
        account = accounts[which % len(accounts)]
        if act == "start":
            depth = depths[account] + 1
            before = account.left(now, depth)
            try:
                child = account.start_child(
                    request, owner="child", now=now, depth=depth, process=which % 3 == 0
                )
            except BudgetExceeded:
                assert account.left(now, depth) == before, "a refusal has carved something"
                continue
            used["children"] += 1
            used["processes"] += which % 3 == 0
            if child is not account:
                accounts.append(child)
                depths[child] = depth
        elif act == "undo":
            try:
                child = account.start_child(request, owner="child", now=now, depth=3)
            except BudgetExceeded:
                continue
            if child is not account:
                child.close()
            account.return_child()
        elif act == "turn":
            try:
                account.check_turn(now)
            except BudgetExceeded:
                continue
            account.start_turn()
            used["turns"] += 1
        elif act == "spend":
            account.spend(tokens, cents / 100)
            used["tokens"] += tokens
            used["cost"] += cents * 10_000_000
        elif account is not root:
            assert account.close()
            accounts.remove(account)
            assert not account.close()
        holds(accounts)
    # In any order, and whoever still lives meanwhile, all of it arrives at the top.
    for account in sorted(accounts[1:], key=lambda each: id(each) % 97):
        assert account.close()
        accounts.remove(account)
        holds(accounts)
    for resource, limit in root._limits.items():
        assert root._set_aside.get(resource, 0) == 0
        assert root._spent.get(resource, 0) == used[resource]
        assert root._left(resource) == limit - used[resource]


@given(budgets, st.lists(budgets, max_size=5))
def test_a_child_never_has_more_than_its_parent(top: Budget, requests: list[Budget]) -> None:
    account = Account(top, owner="root")
    for depth, request in enumerate(requests, start=1):
        before = account.left(1.0, depth)
        try:
            child = account.start_child(request, owner="child", now=1.0, depth=depth)
        except BudgetExceeded:
            continue
        has = child.left(1.0, depth)
        for name, limit in before.to_plain().items():
            assert getattr(has, name) is not None, f"{name} became unlimited"
            assert getattr(has, name) <= limit
        account = child


# -- the rules, one by one -----------------------------------------------------------------------


def account(**limits: Any) -> Account:
    return Account(Budget(**limits), owner="top")


def child_of(parent: Account, *, now: float = 0.0, at: int = 1, **limits: Any) -> Account:
    return parent.start_child(Budget(**limits), owner="child", now=now, depth=at)


def test_what_is_carved_is_gone_until_the_child_ends() -> None:
    top = account(tokens=100, turns=10)
    child = child_of(top, tokens=60)
    assert top.left(0).tokens == 40
    child.spend(tokens=25)
    assert (top.left(0).tokens, child.left(0).tokens) == (40, 35)
    assert child.spent() == Budget(tokens=25)
    child.close()
    assert top.left(0) == Budget(tokens=75, turns=10)
    assert top.spent() == Budget(tokens=25, turns=0)


def test_it_is_rolled_up_once() -> None:
    top = account(tokens=100)
    child = child_of(top, tokens=60)
    child.spend(tokens=10)
    assert [child.close() for _ in range(3)] == [True, False, False]
    assert top.left(0).tokens == 90


def test_what_a_child_has_no_budget_for_it_takes_from_above() -> None:
    top = account(tokens=100, turns=2)
    middle = child_of(top, tokens=50)
    bottom = child_of(middle, cost=1.0)
    bottom.start_turn()
    bottom.spend(tokens=20)
    assert bottom.left(0) == Budget(tokens=30, turns=1, cost=1.0)
    assert top.left(0) == Budget(tokens=50, turns=1)


def test_a_child_without_a_budget_shares_the_account() -> None:
    top = account(children=2)
    assert top.start_child(None, owner="child", now=0, depth=1) is top
    assert top.left(0).children == 1


@pytest.mark.parametrize(
    ("has", "asked", "resource", "left", "wanted"),
    [
        ({"tokens": 10}, {"tokens": 11}, "tokens", 10, 11),
        ({"turns": 1}, {"turns": 2}, "turns", 1, 2),
        ({"cost": 0.5}, {"cost": 0.75}, "cost", 0.5, 0.75),
        ({"children": 2}, {"children": 2}, "children", 2, 3),
        ({"processes": 0}, {"processes": 1}, "processes", 0, 1),
        ({"depth": 2}, {"depth": 2}, "depth", 1, 2),
        ({"wall": 5.0}, {"wall": 6.0}, "wall", 4.0, 6.0),
        ({"children": 0}, {}, "children", 0, 1),
    ],
)
def test_a_refusal_says_of_what_there_is_how_much_and_carves_nothing(
    has: dict[str, Any], asked: dict[str, Any], resource: str, left: float, wanted: float
) -> None:
    top = account(**{"tokens": 1000, **has})
    before = top.left(1.0, 1)
    with pytest.raises(BudgetExceeded) as raised:
        child_of(top, now=1.0, **{"tokens": 5, **asked})
    error = raised.value
    assert (error.resource, error.left, error.asked) == (resource, left, wanted)
    assert "agent 'top'" in str(error)
    assert "the child was not started" in str(error)
    assert top.left(1.0, 1) == before


def test_a_child_in_its_own_process_takes_one() -> None:
    top = account(processes=1)
    top.start_child(None, owner="child", now=0, depth=1, process=True)
    with pytest.raises(BudgetExceeded, match="0 of processes left; 1 were asked for"):
        top.start_child(None, owner="child", now=0, depth=1, process=True)
    top.start_child(None, owner="child", now=0, depth=1)


def test_what_was_used_counts_even_if_there_was_not_enough() -> None:
    top = account(tokens=100)
    child = child_of(top, tokens=10)
    assert child.spend(tokens=10) is None
    error = child.spend(tokens=5)
    assert error is not None
    assert (error.resource, error.left, error.asked) == ("tokens", 0, 5)
    assert "overdrawn by 5" in str(error)
    child.close()
    assert top.left(0).tokens == 85


def test_no_turn_starts_once_a_budget_is_used_up() -> None:
    top = account(turns=1, tokens=10)
    top.check_turn(0)
    top.start_turn()
    with pytest.raises(BudgetExceeded, match="0 of turns left; 1 were asked for"):
        top.check_turn(0)
    top.return_turn()
    top.check_turn(0)
    top.spend(tokens=11)
    with pytest.raises(BudgetExceeded, match="overdrawn by 1"):
        top.check_turn(0)


@pytest.mark.parametrize("act", ["turn", "child"])
def test_nothing_starts_once_the_time_is_over(act: str) -> None:
    top = Account(Budget(wall=10), owner="top", now=100)
    child = child_of(top, now=105)
    assert child.left(107).wall == 3
    use: Callable[[float], object] = (
        child.check_turn
        if act == "turn"
        else lambda now: child.start_child(None, owner="x", now=now, depth=2)
    )
    use(109.9)
    with pytest.raises(BudgetExceeded) as raised:
        use(110)
    assert raised.value.resource == "wall"


def test_a_child_has_its_own_time_within_that_of_its_parent() -> None:
    top = Account(Budget(wall=10), owner="top", now=0)
    assert child_of(top, now=4, wall=2).deadline == 6
    assert child_of(top, now=4).deadline == 10


def test_what_a_budget_has_is_set_aside_above_when_its_holder_ends_first() -> None:
    top = account(tokens=100)
    middle = child_of(top, tokens=50)
    bottom = child_of(middle, tokens=20)
    bottom.spend(tokens=5)
    middle.close()
    assert top.left(0).tokens == 80
    bottom.spend(tokens=5)
    bottom.close()
    assert top.left(0).tokens == 90


def test_costs_add_up_exactly() -> None:
    top = account(cost=1.0)
    for _ in range(10):
        assert top.spend(cost=0.1) is None
    assert top.left(0).cost == 0
    assert top.spend(cost=0.1) is not None


@given(budgets)
def test_it_survives_the_session_header(budget: Budget) -> None:
    assert Budget.from_plain(codec.decode(codec.encode(budget.to_plain()))) == budget
    assert UNLIMITED.to_plain() == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens": -1}, r"budget\.tokens is a whole number from 0, not -1"),
        ({"turns": 1.5}, r"budget\.turns is a whole number"),
        ({"children": True}, r"budget\.children is a whole number"),
        ({"cost": float("nan")}, r"budget\.cost is a number from 0, not nan"),
        ({"wall": float("inf")}, r"budget\.wall is a number from 0, not inf"),
        ({"wall": "5"}, r"budget\.wall is a number from 0, not '5'"),
        ({"money": 1}, "a budget has no 'money'; it has wall, turns"),
        (3, "a budget is a mapping of wall"),
    ],
)
def test_what_is_wrong_is_named(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Budget.from_plain(wrong)


def test_a_next_life_has_what_the_earlier_one_left_as_far_as_it_is_there() -> None:
    top = Account(Budget(tokens=100, wall=50), owner="top", now=0)
    first = top.start_child(Budget(tokens=40, cost=1.0, wall=10), owner="child", now=0, depth=1)
    first.spend(tokens=10, cost=0.25)
    first.close()
    second = first.resume()
    assert (second.left(4).tokens, second.left(4).cost, second.left(4).wall) == (30, 0.75, 6)
    holds([top, second])
    second.spend(tokens=50)
    second.close()
    assert second.resume().left(0).tokens == 0
    top.spend(tokens=30)
    third = first.resume()
    assert (third.left(0).tokens, top.left(0).tokens) == (10, 0)
    holds([top, third])
