"""Behaviours for the tests of policies and budgets. Workers import this module by its name."""

from __future__ import annotations

import contextlib
from typing import Any

import dsh_actors as dsh

HERE = "budget_behaviours"


def echo(turn: dsh.Turn, message: Any) -> Any:
    return message


def policy(turn: dsh.Turn, message: Any) -> Any:
    return turn.policy.to_plain()


def left(turn: dsh.Turn, message: Any) -> Any:
    return turn.budget.to_plain()


def spends(turn: dsh.Turn, tokens: int) -> dict[str, Any]:
    turn.spend(tokens=tokens)
    return turn.budget.to_plain()


async def spends_async(turn: dsh.Turn, tokens: int) -> str:
    turn.spend(tokens=tokens)
    await turn.sleep(0)
    return "went on"


def spends_on(turn: dsh.Turn, tokens: int) -> None:
    """Spend until it is over."""
    while True:
        turn.spend(tokens=tokens)


def keeps_what_it_has(turn: dsh.Turn, tokens: int) -> list[int]:
    """Spend until it is over; return how far it came."""
    done: list[int] = []
    with contextlib.suppress(dsh.Cancelled):
        while True:
            done.append(tokens)
            turn.spend(tokens=tokens)
            turn.sleep(0.001)
    return done


async def insists(turn: dsh.Turn, tokens: int) -> str:
    """Go on as if nothing had happened."""
    with contextlib.suppress(BaseException):
        turn.spend(tokens=tokens)
        await turn.sleep(3600)
    return "finished all the same"


def waits(turn: dsh.Turn, message: Any) -> None:
    turn.progress(note="waits")
    turn.sleep(3600)


async def waits_async(turn: dsh.Turn, message: Any) -> None:
    turn.progress(note="waits")
    await turn.sleep(3600)


def starts(turn: dsh.Turn, options: dict[str, Any]) -> Any:
    """Run one child with a policy and a budget; its value, or what came instead."""
    options = dict(options)
    behaviour, message = options.pop("behaviour", "echo"), options.pop("message", None)
    if "policy" in options:
        options["policy"] = dsh.Policy.from_plain(options["policy"])
    if "budget" in options:
        options["budget"] = dsh.Budget.from_plain(options["budget"])
    try:
        outcome = turn.run(f"{HERE}:{behaviour}", message, **options).result()
    except dsh.DshActorsError as error:
        return {"type": type(error).__name__, "text": str(error)}
    if not outcome.ok:
        return {"type": outcome.error_type, "text": outcome.error, "value": outcome.value}
    return outcome.value


def starts_many(turn: dsh.Turn, orders: list[dict[str, Any]]) -> list[Any]:
    return [starts(turn, order) for order in orders]


def spawns(turn: dsh.Turn, options: dict[str, Any]) -> Any:
    """The same with a continuable child: its id, or what came instead."""
    options = dict(options)
    behaviour, message = options.pop("behaviour", "echo"), options.pop("message", None)
    if "budget" in options:
        options["budget"] = dsh.Budget.from_plain(options["budget"])
    try:
        return turn.spawn(f"{HERE}:{behaviour}", message, **options).id
    except dsh.BudgetExceeded as error:
        return [error.resource, error.left, error.asked]
    except dsh.DepthExceeded as error:
        return [error.depth, error.cap]


def deeper(turn: dsh.Turn, isolation: str) -> Any:
    """Go down as far as it is allowed; the depth of the deepest, and what stopped it."""
    got = starts(turn, {"behaviour": "deeper", "message": isolation, "isolation": isolation})
    return [1, got["type"]] if isinstance(got, dict) else [got[0] + 1, got[1]]
