"""What a tree file says of policies, budgets and interrupted prompts reaches its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import ActorSystem, Turn, behaviour
from dsh_actors.sessions import MemoryStore
from tests.config.layered import Layered

if TYPE_CHECKING:
    from pathlib import Path


@behaviour
def bounds(turn: Turn, _message: Any) -> dict[str, Any]:
    """What this agent may do and use."""
    return {"policy": turn.policy.to_plain(), "tokens": turn.budget.tokens}


TREE = f"""\
version: 1
agents:
  - id: root
    behaviour: {__file__}:bounds
    policy: {{tools: [a, b], paths: [sub], depth: 2}}
    budget: {{tokens: 100, wall: 5m}}
    interrupted: retry
    children:
      - id: child
        behaviour: {__file__}:bounds
        policy: {{tools: [b, c], network: false}}
        budget: {{tokens: 40}}
      - {{id: apart, behaviour: '{__file__}:bounds', isolation: own}}
"""


def test_agents_are_bound_by_what_their_tree_file_says(tmp_path: Path) -> None:
    spec = Layered(tmp_path, TREE).load("agents: [{id: child, policy: {tools: [a, b], depth: 9}}]")
    with MemoryStore() as store, ActorSystem(store=store) as system:
        system.start_tree(spec)
        told = {
            name: system.agent(name).ask(None).result(timeout=30)
            for name in ("root", "child", "apart")
        }
        headers = {info.agent_id: store.load(info.id)[0] for info in store.list()}
    root = {"tools": ["a", "b"], "paths": [str(tmp_path / "sub")], "max_depth": 2}
    assert told["root"] == {"policy": root, "tokens": 60}  # 40 of them are the child's
    assert told["apart"] == {"policy": root, "tokens": 60}
    assert told["child"] == {"policy": {**root, "tools": ["b"], "network": False}, "tokens": 40}
    assert headers["child"].policy["tools"] == ["b"]
    assert headers["root"].options["interrupted"] == "retry"
