"""Notices: messages of the runtime to an agent, which nobody has sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.agents.message import FOLLOW_UP, NOTICE, STEER, Message

if TYPE_CHECKING:
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.supervisor import Supervisor


def give_notice(supervisor: Supervisor, node: Node, body: bytes) -> bool:
    """Give an agent a notice: for its next step if it runs, else for its next turn.

    Parameters:
        supervisor: of the system.
        node: the agent.
        body: the encoded notice.

    Returns:
        False if the agent is closing: it is not woken, and nobody would act on it.
    """
    core, agent = supervisor.core, node.agent
    with core.lock:
        if node.closing is not None:
            return False
        kind: Any = (STEER if agent.is_running else FOLLOW_UP) | NOTICE
        message = Message(core.next_message(), kind, body)
        supervisor.delivery.accept_locked(node, message)
    if core.journal is None:
        agent.ring()
    return True
