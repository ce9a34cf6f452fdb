"""Every error that a user of dsh-actors can meet, under one root.

Each message says what happened, where, and what to do. Errors cross processes as type
name, message and traceback text and are never unpickled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
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
    "DepthExceeded",
    "DshActorsError",
    "DuplicateId",
    "ForkedSystemError",
    "Holder",
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
]


class DshActorsError(Exception):
    """The root of all errors of this library."""


class UsageError(DshActorsError):
    """The library was called in a way that cannot work; the message says what to do."""


class ConfigError(DshActorsError):
    """A configuration file or option is wrong.

    Parameters:
        message: what is wrong, in one line.
        file: the file that holds it, if any.
        line: the line in that file, counted from 1, if known.
        hint: what to do about it, in one sentence, if there is something to say.
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, hint: str = ""
    ) -> None:
        self.message, self.file, self.line, self.hint = message, file, line, hint
        where = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{where}{message}{'; ' if hint else ''}{hint}")


class BehaviourError(DshActorsError):
    """A behaviour cannot be found, imported or called, or cannot run where it was asked to."""


class MessageError(DshActorsError):
    """A value cannot be carried in a message.

    Parameters:
        path: where in the value the trouble is, e.g. ``$.jobs[3].callback``.
        problem: what is wrong there.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class DuplicateId(DshActorsError):
    """A live agent already has this id."""


class AdmissionRefused(DshActorsError):
    """A new agent, turn or message was refused, because that part of the tree is closing."""


class PolicyError(DshActorsError):
    """An agent asked for something that its policy does not allow; nothing was done."""


class DepthExceeded(DshActorsError):
    """A child was refused, because it would be deeper in the tree than is allowed.

    Parameters:
        depth: the depth that it would have had; a root has 0.
        cap: the greatest depth that is allowed.
    """

    def __init__(self, message: str, *, depth: int = 0, cap: int = 0) -> None:
        self.depth, self.cap = depth, cap
        super().__init__(message)


class BudgetExceeded(DshActorsError):
    """A budget has not enough left: a child or turn was refused, or running work was ended.

    Parameters:
        resource: of what: ``wall``, ``turns``, ``children``, ``depth``, ``processes``,
            ``tokens`` or ``cost``.
        left: how much there was; seconds for ``wall``.
        asked: how much was asked for, or by how much it is overdrawn.
    """

    def __init__(
        self, message: str, *, resource: str = "", left: float = 0, asked: float = 0
    ) -> None:
        self.resource, self.left, self.asked = resource, left, asked
        super().__init__(message)


class SurvivorsError(DshActorsError):
    """Agents have not ended within their grace period, and other things failed as well."""


class SystemClosed(AdmissionRefused):
    """The actor system is closing or closed."""


class ForkedSystemError(DshActorsError):
    """An actor system was used in a forked child of the process that made it."""


class ScopeInactive(DshActorsError):
    """Something was registered in a scope that is ending or has ended."""


class InitiatorClosed(DshActorsError):
    """The system is ending: nobody can begin to act on behalf of an agent any more."""

    def __init__(self, message: str = "agent initiator scope is disposed") -> None:
        super().__init__(message)


class NotAuthorized(DshActorsError):
    """An agent tried to reach one that only its parent, an ancestor or the user may reach."""


class AgentGone(DshActorsError):
    """A message was sent to an agent that is stopping or has ended."""


class InboxFull(DshActorsError):
    """The inbox of an agent is at its limit; the message was refused, none was dropped."""


class AskCycle(DshActorsError):
    """Agents ask each other in a circle, which could never be answered."""


class AgentFailed(DshActorsError):
    """The behaviour of an agent raised an exception in the turn that handled the message.

    Parameters:
        type_name: the name of the exception's class.
        message: the exception's message.
        traceback_text: the formatted traceback, from the process where it happened.
    """

    def __init__(self, type_name: str, message: str, traceback_text: str = "") -> None:
        self.type_name, self.message = type_name, message
        self.traceback_text = traceback_text
        super().__init__(f"{type_name}: {message}" if message else type_name)


class TurnAborted(DshActorsError):
    """The turn that would have answered was cancelled, or the message was discarded.

    Parameters:
        cause: why: ``user``, ``parent``, ``disposed``, ``deadline``, ``budget`` or ``hook``.
    """

    def __init__(self, cause: str, message: str = "") -> None:
        self.cause = cause
        super().__init__(message or f"the work was cancelled (cause: {cause})")


class AgentLost(DshActorsError):
    """The worker process of an agent ended under it."""


class CallFailed(DshActorsError):
    """A call of an interrupted turn had failed; the retried turn is told so, and it is not made.

    Parameters:
        type_name: the name of the exception's class.
        message: the exception's message.
        traceback_text: the formatted traceback.
    """

    def __init__(self, type_name: str, message: str, traceback_text: str = "") -> None:
        self.type_name, self.message = type_name, message
        self.traceback_text = traceback_text
        super().__init__(f"{type_name}: {message}" if message else type_name)


class OutcomeUnknown(DshActorsError):
    """A call was made in a turn that was cut off, and nobody knows whether it has happened.

    Find out, or ask; then go on. Only a call that is ``idempotent`` is made again by itself.

    Parameters:
        name: the name of the call.
        key: its key.
        call_args: what it was called with, as ``{"args": [...], "kwargs": {...}}``.
    """

    def __init__(
        self, message: str, *, name: str = "", key: str = "", call_args: Any = None
    ) -> None:
        self.name, self.key, self.call_args = name, key, call_args
        super().__init__(message)


class WorkerStartError(DshActorsError):
    """A worker process did not start; the message carries what it wrote to stderr."""


class ShellStartError(DshActorsError):
    """A command could not be started; nothing of it is left."""


class ShellTaskUnknown(DshActorsError):
    """There is no such task, or it is not the caller's: both are refused in the same words."""


class StoreError(DshActorsError):
    """The session store cannot be opened, read or written."""


class IllegalTransition(StoreError):
    """An event cannot follow what a session's log holds; it was refused, and the log is as it was.

    Parameters:
        event: its type, e.g. ``turn/end``.
    """

    def __init__(self, message: str, *, event: str = "") -> None:
        self.event = event
        super().__init__(message)


class SessionNotFound(StoreError):
    """No session with this id is in the store."""


class Holder(NamedTuple):
    """Who may write to a session: one open store of one process.

    Parameters:
        name: of the system that works there.
        host: the machine's name.
        pid: its process on that machine.
        started: when it opened the store, in Unix seconds.
        heartbeat: when it last showed that it is alive, in Unix seconds.
    """

    name: str
    host: str
    pid: int
    started: float
    heartbeat: float


class SessionHeld(StoreError):
    """A session belongs to another holder; here it can be read and forked, but not written.

    Parameters:
        holder: who holds it.
    """

    def __init__(self, message: str, *, holder: Holder | None = None) -> None:
        self.holder = holder
        super().__init__(message)


class ControlError(DshActorsError):
    """A running system cannot be reached, or did not do what it was asked over its socket.

    Parameters:
        message: what is wrong, in one line.
        type_name: the name of the error's class in that system, such as ``AgentGone``; or what
            went wrong on the way: ``NoSystem``, ``ConnectionLost``, ``Timeout``, ``BadFrame``,
            ``VersionMismatch``, ``Busy``, ``UnsafeFolder``.
        details: more about it, as plain data.
    """

    def __init__(
        self, message: str, *, type_name: str = "ControlError", details: object = None
    ) -> None:
        self.type_name, self.details = type_name, details
        super().__init__(message)


class Cancelled(BaseException):
    """Raised inside a plain behaviour whose turn was cancelled.

    A ``BaseException``, as in trio and asyncio, so that ``except Exception`` in the code of a
    behaviour does not swallow it. Let it pass.

    Parameters:
        cause: why the turn was cancelled: ``user``, ``parent``, ``disposed``, ...
    """

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(f"cancelled (cause: {cause})")
