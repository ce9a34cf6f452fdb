"""A busy tree of agents, to be killed at any moment and resumed by the next process.

    crash_system.py STORE SESSION|- inline|pool [finish]

Tells its root session, then each message whose acceptance was acknowledged, a line each. With
``finish`` it sends nothing, waits until all is handled, and ends in order.
"""

from __future__ import annotations

import os
import sys
import threading
from itertools import count
from typing import Any

import dsh_actors as dsh
from dsh_actors.config import AgentSpec, TreeSpec
from dsh_actors.sessions import SqliteStore


class Counter(dsh.Behaviour):
    """Counts what it has been told, and can be brought back."""

    def __init__(self) -> None:
        self.seen = 0

    def replay(self, event: Any) -> None:
        """One more had been counted."""
        self.seen += 1

    def on_message(self, turn: dsh.Turn, message: Any) -> int:
        """Count, remember, and sometimes have others work."""
        turn.remember("seen", message)
        self.seen += 1
        if message % 50 == 3:
            job = turn.run(double, message, isolation="pool" if message % 100 == 3 else "inline")
            doubled = job.result(30).unwrap()
            assert doubled == 2 * message, f"{doubled!r} is not 2 * {message!r}: {job!r}"
        if message == 5:
            turn.spawn(Counter, -1, interrupted="retry")
        return self.seen


@dsh.behaviour
def double(turn: dsh.Turn, number: int) -> int:
    """Work for a one-shot."""
    return 2 * number


def tree(far: Any) -> TreeSpec:
    """A root with a child in this process, and one in a worker if ``far`` is ``pool``."""

    def agent(
        id: str, isolation: Any = "inline", children: tuple[AgentSpec, ...] = ()
    ) -> AgentSpec:
        return AgentSpec(
            id=id, behaviour="crash_system:Counter", isolation=isolation, restart="permanent",
            interrupted="retry", children=children,
        )  # fmt: skip

    return TreeSpec("crash", agents=(agent("root", children=(agent("near"), agent("far", far))),))


def say(*words: object) -> None:
    """One line, in one write: it is told once it is written, whatever comes then."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def send(agent: dsh.Agent, numbers: Any) -> None:
    """Send for as long as this process lives."""
    for number in numbers:
        say("ack", agent.session_id, agent.send(number))
        if number % 20 == 19:
            agent.when_idle().result()


def main(path: str, session: str, far: str, finish: bool) -> None:
    """Run until killed; or to the end."""
    store = SqliteStore(path)
    system = dsh.ActorSystem(workers=1, store=store, name="crash")
    handle = system.start_tree(tree(far))[0] if session == "-" else system.resume(session)
    say("session", handle.agent.session_id)
    agents = [handle.agent, system.agent("near"), system.agent("far")]
    if not finish:
        numbers = count()
        for agent in agents:
            threading.Thread(target=send, args=(agent, numbers), daemon=True).start()
        threading.Event().wait()
    for _ in range(2):
        for agent in agents:
            agent.when_idle().result(60)
    system.shutdown().result(60)
    store.close()
    say("done")


if __name__ == "__main__":
    main(*sys.argv[1:4], "finish" in sys.argv[4:])
