"""A loaded tree as a tree file again: all that is in force, on its own.

Loading that file gives an equal tree, wherever it is put.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dsh_actors.config.limits import POLICY_KEYS
from dsh_actors.config.spec import MISSING

if TYPE_CHECKING:
    from dsh_actors.config.spec import AgentSpec, TreeSpec

__all__ = ["effective_tree"]

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def effective_tree(spec: TreeSpec) -> dict[str, Any]:
    """Return what a tree file has to say to be this tree, with all defaults written out.

    The parameters are put in already; they are there with the values that they have.
    """
    system = spec.system
    settings = {
        "workers": system.workers,
        "stop_grace": system.stop_grace,
        "inbox_limit": system.inbox_limit,
        "max_turns": system.max_turns,
        "worker_limits": dict(system.worker_limits) or None,
    }
    tree: dict[str, Any] = {
        "version": spec.version,
        "name": spec.name,
        "system": {key: value for key, value in settings.items() if value is not None},
    }
    if spec.parameters:
        tree["parameters"] = {
            name: {
                "type": parameter.type,
                "default": spec.values.get(name),
                **({"help": parameter.help} if parameter.help else {}),
            }
            for name, parameter in spec.parameters.items()
        }
    tree["agents"] = [_agent(agent) for agent in spec.agents]
    return tree


def _agent(agent: AgentSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": agent.id,
        "behaviour": agent.behaviour,
        "isolation": agent.isolation,
        "restart": agent.restart,
    }
    if agent.interrupted is not None:
        entry["interrupted"] = agent.interrupted
    if agent.prompt is not MISSING:
        entry["prompt"] = _escaped(agent.prompt)
    if agent.args:
        entry["args"] = _escaped(dict(agent.args))
    if agent.policy is not None:
        policy = agent.policy
        entry["policy"] = {
            key: _escaped(policy[name]) if key == "paths" else policy[name]
            for key, name in POLICY_KEYS.items()
            if name in policy
        }
    if agent.budget is not None:
        entry["budget"] = dict(agent.budget)
    if agent.children:
        entry["children"] = [_agent(child) for child in agent.children]
    return entry


def _escaped(value: Any) -> Any:
    """Return a copy of a value in which nothing stands for a parameter."""
    if isinstance(value, str):
        return _REFERENCE.sub(r"$${\1}", value)
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return value
