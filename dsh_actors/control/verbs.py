"""What a running system does for the user who asks over its socket.

None of it waits: what takes time gives a future, and the answer goes out when that is settled.
The user has all authority, so that agents are told the cause ``user``.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.actors.future import Future
from dsh_actors.agents.message import FOLLOW_UP, INJECT, KIND_NAMES, STEER
from dsh_actors.control.connection import Waiting
from dsh_actors.control.protocol import check_body
from dsh_actors.errors import ControlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dsh_actors.agents.message import Kind
    from dsh_actors.supervisor.receipt import Receipt
    from dsh_actors.system import ActorSystem, TreeNode

    Answer = bytes | Waiting

__all__ = ["Verbs", "checked"]

MAX_TREE_DEPTH = 200
"""How deep an answer shows the tree; msgpack itself does not nest much deeper."""

_SECONDS = (int, float, NoneType)
# By verb: the fields and their types. One that may be None may be left out.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "tree": {},
    "agent": {"agent": (str,)},
    "send": {
        "agent": (str,),
        "body": (bytes,),
        "kind": (str, NoneType),
        "wait": (bool, NoneType),
    },
    "interrupt": {"agent": (str,)},
    "cancel": {"agent": (str,), "tree": (bool, NoneType)},
    "idle": {"agent": (str,)},
    "stop": {"agent": (str,), "grace": _SECONDS},
    "drain": {"grace": _SECONDS},
    "shutdown": {"grace": _SECONDS},
    "receipt": {},
    "result": {},
}


class _RawReply(Future[bytes]):
    """The future of an answer that goes out as the agent has encoded it."""

    __slots__ = ()

    def answer(self, body: bytes) -> None:
        """Take the encoded result."""
        self.try_set_result(body)

    def fail(self, error: BaseException) -> None:
        """Take what went wrong."""
        self.try_set_error(error)


class Verbs:
    """Carries out requests, on the thread of the control server.

    Parameters:
        system: the system.
        started: when its socket was opened, in Unix seconds.
        shutdown: ends the system, with a grace period in seconds or None.
        result: of a detached run, once it is there.
    """

    def __init__(
        self,
        system: ActorSystem,
        started: float,
        shutdown: Callable[[float | None], Future[Receipt]],
        result: Future[Any],
    ) -> None:
        self._system = system
        self._started = started
        self._shutdown = shutdown
        self._result = result
        self._tree: bytes | None = None
        self._table: dict[str, Callable[..., Answer]] = {
            "tree": self._tree_of,
            "agent": self._agent,
            "send": self._send,
            "interrupt": self._interrupt,
            "cancel": self._cancel,
            "idle": self._idle,
            "stop": self._stop,
            "drain": self._drain,
            "shutdown": self._end,
            "receipt": self._receipt,
            "result": self._result_of,
        }

    @property
    def names(self) -> list[str]:
        """All that there are."""
        return list(self._table)

    def new_pass(self) -> None:
        """Requests that come from here on get no snapshot that was taken before."""
        self._tree = None

    def do(self, verb: str, fields: Mapping[str, Any]) -> Answer:
        """Do what is asked for.

        Returns:
            The encoded answer, or what to wait for.

        Raises:
            ControlError: there is no such verb.
            UsageError: it has other fields.
            DshActorsError: as the method of `ActorSystem` or `Agent`.
        """
        act = self._table.get(verb)
        if act is None:
            raise ControlError(
                f"there is no verb {verb!r}; there are: {', '.join(self._table)}",
                type_name="UnknownVerb",
            )
        return act(**checked(verb, fields, _FIELDS[verb]))

    # -- looking -------------------------------------------------------------------------------

    def _tree_of(self) -> bytes:
        """All who ask at the same time share one snapshot: it is taken under the system's lock."""
        if self._tree is None:
            system = self._system
            self._tree = codec.encode(
                {
                    "system": system.id,
                    "name": name_of(system),
                    "pid": system._core.pid,
                    "started": self._started,
                    "agents": _plain(system.tree()),
                }
            )
        return self._tree

    def _agent(self, agent: str) -> bytes:
        found = self._system.agent(agent)
        return codec.encode(
            {"agent": found.id, "status": found.status, "session": found.session_id}
        )

    def _receipt(self) -> bytes:
        return _encode_receipt(self._system.receipt())

    def _result_of(self) -> Answer:
        return Waiting(self._result, codec.encode)

    # -- doing ---------------------------------------------------------------------------------

    def _send(
        self, agent: str, body: bytes, kind: str | None = None, wait: bool | None = None
    ) -> Answer:
        number = _KINDS.get(kind or KIND_NAMES[0])
        if number is None:
            raise UsageError(f"there is no kind {kind!r} of message: {', '.join(KIND_NAMES)}")
        check_body(body)
        node = self._system._find(agent)
        supervisor = self._system._supervisor
        reply = _RawReply() if wait else None
        committed: Future[None] | None = None
        if not wait and self._system._core.journal is not None:
            committed = Future()
        id = supervisor.delivery.deliver(node, number, body, reply, committed=committed)
        if reply is not None:
            return Waiting(reply, lambda result: _map(codec.encode(id), result))
        answer = codec.encode({"message": id})
        return answer if committed is None else Waiting(committed, lambda _: answer)

    def _interrupt(self, agent: str) -> bytes:
        self._system.agent(agent).interrupt()
        return _DONE

    def _cancel(self, agent: str, tree: bool | None = None) -> bytes:
        self._system.cancel(agent, tree=tree if tree is not None else True)
        return _DONE

    def _idle(self, agent: str) -> Answer:
        return Waiting(self._system.agent(agent).when_idle(), lambda _: _DONE)

    def _stop(self, agent: str, grace: float | None = None) -> Answer:
        return Waiting(self._system.stop(agent, grace=_seconds(grace)), _encode_receipt)

    def _drain(self, grace: float | None = None) -> Answer:
        return Waiting(self._system.drain(_seconds(grace), cause="user"), _encode_receipt)

    def _end(self, grace: float | None = None) -> Answer:
        return Waiting(self._shutdown(_seconds(grace)), _encode_receipt)


_KINDS: dict[str, Kind] = {
    KIND_NAMES[FOLLOW_UP]: FOLLOW_UP,
    KIND_NAMES[STEER]: STEER,
    KIND_NAMES[INJECT]: INJECT,
}
_DONE = codec.encode(None)


def name_of(system: ActorSystem) -> str:
    """The name that a system was given; its id begins with it."""
    return system.id.rsplit("-", 2)[0]


def checked(
    verb: str, fields: Mapping[str, Any], wanted: Mapping[str, tuple[type, ...]]
) -> Mapping[str, Any]:
    """See that a request has the fields of its verb.

    Raises:
        UsageError: it has not; the message says which are wrong.
    """
    unknown = sorted(fields.keys() - wanted.keys())
    if unknown:
        known = ", ".join(wanted) or "none"
        raise UsageError(f"{verb} has no field {unknown[0]!r}; its fields are: {known}")
    for name, types in wanted.items():
        value = fields.get(name)
        if type(value) not in types:
            what = " or ".join(each.__name__ for each in types if each is not NoneType)
            if name not in fields:
                raise UsageError(f"{verb} needs the field {name!r} ({what})")
            raise UsageError(f"{verb}: the field {name!r} must be {what}, not {value!r:.80}")
    return fields


def _seconds(grace: float | None) -> float | None:
    if grace is not None and not 0 <= grace < float("inf"):
        raise UsageError(f"the grace period must be a number of seconds, at least 0, not {grace}")
    return grace


def _encode_receipt(receipt: Receipt) -> bytes:
    return codec.encode(receipt.to_dict())


def _map(message: bytes, result: bytes) -> bytes:
    """Encode ``{"message": …, "result": …}`` of values that are encoded already."""
    return b"".join((b"\x82", _MESSAGE, message, _RESULT, result))


_MESSAGE, _RESULT = codec.encode("message"), codec.encode("result")


def _plain(roots: Iterable[TreeNode]) -> list[dict[str, Any]]:
    """The tree as plain data. Below the greatest depth, ``cut`` counts the children."""
    made: list[dict[str, Any]] = []
    todo: list[tuple[TreeNode, list[dict[str, Any]], int]] = [(root, made, 1) for root in roots]
    for node, siblings, depth in todo:  # grows while it is gone through
        children: list[dict[str, Any]] = []
        shown = {
            "id": node.id,
            "status": node.status,
            "isolation": node.isolation,
            "pid": node.pid,
            "progress": node.progress,
            "queued": node.queued,
            "started": node.started,
            "session": node.session,
            "children": children,
        }
        siblings.append(shown)
        if depth < MAX_TREE_DEPTH:
            todo.extend((child, children, depth + 1) for child in node.children)
        elif node.children:
            shown["cut"] = len(node.children)
    return made
