"""dsh-actors: supervised trees of agents as actors in worker processes, where stopped is true.

import dsh_actors as dsh

@dsh.behaviour
def greet(turn, name):
    return f"Hello {name}"

with dsh.ActorSystem(workers=2) as system:
    print(system.create(greet, isolation="pool").agent.ask("world").result(timeout=10))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsh_actors.actors.future import Future
    from dsh_actors.agents.abort import AbortSignal
    from dsh_actors.agents.behaviour import Behaviour, Remembered, Settlement, behaviour
    from dsh_actors.agents.calls import UnknownCall
    from dsh_actors.agents.handle import Agent, AgentHandle
    from dsh_actors.agents.initiator import InitiatorRegistry, current_agent, without_initiator
    from dsh_actors.agents.job import Job, Outcome, as_settled
    from dsh_actors.agents.registration import Registration
    from dsh_actors.agents.resumed import ResumeReport
    from dsh_actors.agents.scope import Scope
    from dsh_actors.agents.turn import Turn
    from dsh_actors.codec import register
    from dsh_actors.errors import (
        AdmissionRefused,
        AgentFailed,
        AgentGone,
        AgentLost,
        AskCycle,
        BehaviourError,
        BudgetExceeded,
        CallFailed,
        Cancelled,
        ConfigError,
        ControlError,
        DepthExceeded,
        DshActorsError,
        DuplicateId,
        ForkedSystemError,
        IllegalTransition,
        InboxFull,
        InitiatorClosed,
        MessageError,
        NotAuthorized,
        OutcomeUnknown,
        PolicyError,
        ScopeInactive,
        SessionHeld,
        SessionNotFound,
        StoreError,
        SurvivorsError,
        SystemClosed,
        TurnAborted,
        UsageError,
        WorkerStartError,
    )
    from dsh_actors.lifecycle.budget import Budget
    from dsh_actors.lifecycle.policy import Policy
    from dsh_actors.supervisor.listeners import LifeEvent
    from dsh_actors.supervisor.ownership import AgentFactory, Owner
    from dsh_actors.supervisor.receipt import AgentEnd, Receipt, Survivor
    from dsh_actors.system import ActorSystem, TreeNode
    from dsh_actors.workers.limits import WorkerLimits

__version__ = "0.1.0"

__all__ = [
    "AbortSignal",
    "ActorSystem",
    "AdmissionRefused",
    "Agent",
    "AgentEnd",
    "AgentFactory",
    "AgentFailed",
    "AgentGone",
    "AgentHandle",
    "AgentLost",
    "AskCycle",
    "Behaviour",
    "BehaviourError",
    "Budget",
    "BudgetExceeded",
    "CallFailed",
    "Cancelled",
    "ConfigError",
    "ControlError",
    "DepthExceeded",
    "DshActorsError",
    "DuplicateId",
    "ForkedSystemError",
    "Future",
    "IllegalTransition",
    "InboxFull",
    "InitiatorClosed",
    "InitiatorRegistry",
    "Job",
    "LifeEvent",
    "MessageError",
    "NotAuthorized",
    "Outcome",
    "OutcomeUnknown",
    "Owner",
    "Policy",
    "PolicyError",
    "Receipt",
    "Registration",
    "Remembered",
    "ResumeReport",
    "Scope",
    "ScopeInactive",
    "SessionHeld",
    "SessionNotFound",
    "Settlement",
    "StoreError",
    "Survivor",
    "SurvivorsError",
    "SystemClosed",
    "TreeNode",
    "Turn",
    "TurnAborted",
    "UnknownCall",
    "UsageError",
    "WorkerLimits",
    "WorkerStartError",
    "as_settled",
    "behaviour",
    "current_agent",
    "register",
    "without_initiator",
]

# Names are imported when they are first used: a worker, and the command, need few of them, and
# how soon they can start is part of what they are for.
_MODULES = {
    "dsh_actors.actors.future": ("Future",),
    "dsh_actors.agents.abort": ("AbortSignal",),
    "dsh_actors.agents.behaviour": (
        "Behaviour",
        "Remembered",
        "Settlement",
        "behaviour",
    ),
    "dsh_actors.agents.calls": ("UnknownCall",),
    "dsh_actors.agents.handle": (
        "Agent",
        "AgentHandle",
    ),
    "dsh_actors.agents.initiator": (
        "InitiatorRegistry",
        "current_agent",
        "without_initiator",
    ),
    "dsh_actors.agents.job": (
        "Job",
        "Outcome",
        "as_settled",
    ),
    "dsh_actors.agents.registration": ("Registration",),
    "dsh_actors.agents.resumed": ("ResumeReport",),
    "dsh_actors.agents.scope": ("Scope",),
    "dsh_actors.agents.turn": ("Turn",),
    "dsh_actors.codec": ("register",),
    "dsh_actors.errors": (
        "AdmissionRefused",
        "AgentFailed",
        "AgentGone",
        "AgentLost",
        "AskCycle",
        "BehaviourError",
        "BudgetExceeded",
        "CallFailed",
        "Cancelled",
        "ConfigError",
        "ControlError",
        "DepthExceeded",
        "DshActorsError",
        "DuplicateId",
        "ForkedSystemError",
        "IllegalTransition",
        "InboxFull",
        "InitiatorClosed",
        "MessageError",
        "NotAuthorized",
        "OutcomeUnknown",
        "PolicyError",
        "ScopeInactive",
        "SessionHeld",
        "SessionNotFound",
        "StoreError",
        "SurvivorsError",
        "SystemClosed",
        "TurnAborted",
        "UsageError",
        "WorkerStartError",
    ),
    "dsh_actors.lifecycle.budget": ("Budget",),
    "dsh_actors.lifecycle.policy": ("Policy",),
    "dsh_actors.supervisor.listeners": ("LifeEvent",),
    "dsh_actors.supervisor.ownership": (
        "AgentFactory",
        "Owner",
    ),
    "dsh_actors.supervisor.receipt": (
        "AgentEnd",
        "Receipt",
        "Survivor",
    ),
    "dsh_actors.system": (
        "ActorSystem",
        "TreeNode",
    ),
    "dsh_actors.workers.limits": ("WorkerLimits",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
