"""What the tests of resumes share: crashes, and behaviours that workers import by their names."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.sessions import MemoryStore
from tests.watching import PATIENCE, Gate

if TYPE_CHECKING:
    from dsh_actors.sessions import Event

HERE = "tests.supervisor.resuming"


def crashed(store: Any) -> MemoryStore:
    """What a crash at this moment leaves: another store with what this one has committed."""
    assert store.flush(PATIENCE)
    left = MemoryStore()
    for info in reversed(store.list()):
        log = store.load(info.id)
        left.create(log.header)
        for event in log.events:
            left.append(info.id, event.type, codec.encode(event.data))
        if info.status != "active":
            left.set_status(info.id, info.status)
        left.release(info.id)
    assert left.flush(PATIENCE)
    return left


def log(store: Any, session: str | None) -> list[Event]:
    assert session is not None
    assert store.flush(PATIENCE)
    events: list[Event] = store.load(session).events
    return events


def types(store: Any, session: str | None) -> list[str]:
    return [event.type for event in log(store, session)]


def turns(store: Any, session: str | None) -> list[int]:
    return [event.data["turn"] for event in log(store, session) if event.type == "turn/start"]


def session_of(store: Any, agent: str) -> str:
    """The newest session of an agent."""
    assert store.flush(PATIENCE)
    return str(next(info.id for info in store.list() if info.agent_id == agent))


gates: dict[str, Gate] = {}
"""Where inline turns wait, by name."""


class Adder(dsh.Behaviour):
    """Keeps a sum over its lives, by events of its own."""

    def __init__(self) -> None:
        self.sum = 0

    def replay(self, event: dsh.Remembered) -> None:
        assert event.type == "added"
        self.sum += event.data

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        if message == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(message, str):
            gates[message].hold()
            return message
        turn.remember("added", message)
        self.sum += message
        return self.sum


class Forgetful(dsh.Behaviour):
    """Keeps its state in memory only."""

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message


@dsh.behaviour(settlements=True)
def boss(turn: dsh.Turn, message: Any) -> Any:
    """Does as it is told; keeps nothing in memory, but remembers what it is told of children."""
    if isinstance(message, dsh.Settlement):
        turn.remember("settled", [message.child, message.outcome, message.last])
        return None
    operation, *rest = message
    if operation == "spawn":
        name, id, first = rest
        return turn.spawn(f"{HERE}:{name}", first, id=id).id
    if operation == "create":
        name, id, restart = rest
        system = systems[-1]
        return system.create(f"{HERE}:{name}", id=id, restart=restart).agent.id
    if operation == "child":
        id, what = rest
        return turn.child(id).ask(what).result(PATIENCE)
    if operation == "send":
        id, what = rest
        return turn.child(id).send(what)
    if operation == "run":
        return turn.run(f"{HERE}:hold", rest[0], id="shot").result(PATIENCE).value
    if operation == "hold":
        gates[rest[0]].hold()
        return rest[0]
    if operation == "spend":
        turn.spend(tokens=rest[0])
        return turn.budget.to_plain()
    if operation == "policy":
        return turn.policy.to_plain()
    if operation == "budget":
        return turn.budget.to_plain()
    raise ValueError(operation)


systems: list[dsh.ActorSystem] = []
"""For behaviours in this process: the system that they are in."""


def hold(turn: dsh.Turn, gate: str) -> str:
    gates[gate].hold()
    return gate


def echo(turn: dsh.Turn, message: Any) -> Any:
    return message


@dsh.behaviour(interrupted="retry")
def tries(turn: dsh.Turn, message: Any) -> Any:
    """Held at the gate of the message, if there is one."""
    if isinstance(message, str) and message in gates:
        gates[message].hold()
    return message


made: list[str] = []
"""The calls that were made in this process."""


@dsh.behaviour(interrupted="retry")
def calls(turn: dsh.Turn, gate: str) -> list[str]:
    """One call that ends, and one that a crash cuts off at the gate."""

    def one() -> str:
        made.append("one")
        return "first"

    def two() -> str:
        made.append("two")
        if gate in gates:
            gates[gate].hold()
        return "second"

    found = [turn.call("one", one)]
    try:
        found.append(turn.call("two", two))
    except dsh.OutcomeUnknown:
        found.append("unknown")
    return found
