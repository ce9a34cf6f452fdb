"""dsh-actors: supervised trees of agents as actors in worker processes, where stopped is true.

    import dsh_actors as dsh

    @dsh.behaviour
    def greet(turn, name):
        return f"Hello {name}"

    with dsh.ActorSystem(workers=2) as system:
        print(system.create(greet, isolation="pool").agent.ask("world").result(timeout=10))
"""

from dsh_actors.actors.future import Future
from dsh_actors.agents.abort import AbortSignal
from dsh_actors.agents.behaviour import Behaviour, behaviour
from dsh_actors.agents.handle import Agent, AgentHandle
from dsh_actors.agents.initiator import InitiatorRegistry, current_agent, without_initiator
from dsh_actors.agents.job import Job, Outcome, as_settled
from dsh_actors.agents.registration import Registration
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
    Cancelled,
    ConfigError,
    DepthExceeded,
    DshActorsError,
    DuplicateId,
    ForkedSystemError,
    InboxFull,
    InitiatorClosed,
    MessageError,
    PolicyError,
    ScopeInactive,
    SessionNotFound,
    StoreError,
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
    "Cancelled",
    "ConfigError",
    "DepthExceeded",
    "DshActorsError",
    "DuplicateId",
    "ForkedSystemError",
    "Future",
    "InboxFull",
    "InitiatorClosed",
    "InitiatorRegistry",
    "Job",
    "LifeEvent",
    "MessageError",
    "Outcome",
    "Owner",
    "Policy",
    "PolicyError",
    "Receipt",
    "Registration",
    "Scope",
    "ScopeInactive",
    "SessionNotFound",
    "StoreError",
    "Survivor",
    "SystemClosed",
    "TreeNode",
    "Turn",
    "TurnAborted",
    "UsageError",
    "WorkerStartError",
    "as_settled",
    "behaviour",
    "current_agent",
    "register",
    "without_initiator",
]
