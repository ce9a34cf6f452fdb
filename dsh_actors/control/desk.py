"""Carries out what clients of a control server ask for, and answers them.

What belongs to the connection (hello, streams) is done here, and all else by the verbs.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

from dsh_actors import __version__, codec
from dsh_actors.control.connection import Waiting
from dsh_actors.control.protocol import END, ERROR, EVENT, OK, PROTOCOL, BadFrame
from dsh_actors.control.verbs import checked
from dsh_actors.control.watching import Stream
from dsh_actors.errors import ControlError, DshActorsError, SystemClosed, UsageError
from dsh_actors.observe.logging import get_logger

if TYPE_CHECKING:
    from dsh_actors.control.connection import Connection
    from dsh_actors.control.discovery import Record
    from dsh_actors.control.limits import Limits
    from dsh_actors.control.protocol import Request
    from dsh_actors.control.verbs import Verbs
    from dsh_actors.control.watching import Hub
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.system import ActorSystem

__all__ = ["Desk"]

_WATCH_FIELDS = {
    "agent": (str, NoneType),
    "session": (str, NoneType),
    "events": (bool, NoneType),
}


class Front(Protocol):
    """The thread that moves the bytes."""

    hub: Hub

    @property
    def peers_checked(self) -> bool:
        """Whether the kernel says who connects."""

    def settled(self, connection: Connection, id: int) -> None:
        """Have a request answered whose work is done; from any thread."""


class Desk:
    """Where requests are done, one at a time, without ever waiting.

    Parameters:
        system: the system.
        store: its store, if it has one.
        verbs: what it does.
        record: who it is.
        limits: what clients are allowed.
        front: the thread that moves the bytes.
    """

    __slots__ = ("_front", "_limits", "_log", "_record", "_store", "_system", "_verbs")

    def __init__(
        self,
        system: ActorSystem,
        store: SessionStore | None,
        verbs: Verbs,
        record: Record,
        limits: Limits,
        front: Front,
    ) -> None:
        self._system = system
        self._store = store
        self._verbs = verbs
        self._record = record
        self._limits = limits
        self._front = front
        self._log = get_logger("dsh_actors.control")

    def serve(self, connection: Connection, now: float) -> None:
        """Do the next request of a client, if there is one."""
        try:
            request = connection.next_request(now)
            if request is None:
                return
            if not connection.greeted:
                self._greet(connection, request, now)
                return
        except BadFrame as error:
            connection.refuse(error, now)
            return
        try:
            self._do(connection, request, now)
        except DshActorsError as error:
            connection.send_error(request.id, error, now)
        except Exception as error:
            self._log.exception("a request of a client failed", verb=request.verb)
            connection.send_error(request.id, error, now)

    def _greet(self, connection: Connection, request: Request, now: float) -> None:
        if request.verb != "hello":
            raise BadFrame("the first request must be hello")
        spoken = request.fields.get("protocol")
        if spoken != PROTOCOL:
            connection.refuse(
                ControlError(
                    f"system {self._record.id} is of dsh-actors {__version__} and speaks version "
                    f"{PROTOCOL} of the control protocol, not {spoken!r:.20}; use that version",
                    type_name="VersionMismatch",
                ),
                now,
            )
            return
        connection.greeted = True
        connection.send(request.id, OK, codec.encode(self._hello()), now)

    def _hello(self) -> dict[str, Any]:
        record = self._record
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "system": record.id,
            "name": record.name,
            "pid": record.pid,
            "started": record.started,
            "store": self._store is not None,
            "peers_checked": self._front.peers_checked,
            "verbs": ["hello", *self._verbs.names, "watch", "unwatch"],
        }

    def _do(self, connection: Connection, request: Request, now: float) -> None:
        id, verb, fields = request
        if id in connection.waiting or id in connection.streams:
            raise UsageError(f"the id {id} belongs to another request that is not done")
        if verb == "hello":
            answer: bytes | Waiting = codec.encode(self._hello())
        elif verb == "watch":
            self._watch(connection, id, now, **checked(verb, fields, _WATCH_FIELDS))
            return
        elif verb == "unwatch":
            answer = self._unwatch(connection, now, **checked(verb, fields, {"stream": (int,)}))
        else:
            if len(connection.waiting) >= self._limits.open_requests:
                raise ControlError(
                    f"{len(connection.waiting)} requests of this client wait for their answers; "
                    "wait for some of them, or use another connection",
                    type_name="Busy",
                )
            answer = self._verbs.do(verb, fields)
        if isinstance(answer, Waiting):
            connection.waiting[id] = answer
            answer.future.add_done_callback(lambda _: self._front.settled(connection, id))
        else:
            connection.send(id, OK, answer, now)

    def answer(self, connection: Connection, id: int, now: float) -> None:
        """Answer a request whose future is settled, if it is still wanted."""
        waiting = connection.waiting.pop(id, None)
        if waiting is not None:
            good, data = waiting.answer()
            connection.send(id, OK if good else ERROR, data, now)

    def say_goodbye(self, connection: Connection, now: float) -> None:
        """Answer what is done, refuse what is not, and end the streams."""
        over = SystemClosed(f"system {self._record.id} is ending and answers no more")
        for id, waiting in list(connection.waiting.items()):
            if waiting.future.done():
                self.answer(connection, id, now)
            else:
                connection.send_error(id, over, now)
        connection.waiting.clear()
        for id in connection.streams:
            connection.send(id, END, codec.encode(None), now)

    # -- streams ---------------------------------------------------------------------------------

    def _watch(
        self,
        connection: Connection,
        id: int,
        now: float,
        agent: str | None = None,
        session: str | None = None,
        events: bool | None = None,
    ) -> None:
        limits = self._limits
        if len(connection.streams) >= limits.streams:
            raise ControlError(
                f"one client may have {limits.streams} streams; end one of them first",
                type_name="Busy",
            )
        if events is None:
            events = session is None
        if agent is not None:
            if session is not None:
                raise UsageError("watch takes an agent or a session, not both")
            session = self._system.agent(agent).session_id
        elif session is not None and self._store is None:
            raise UsageError("this system has no store, so that there are no sessions to watch")
        stream = Stream(
            connection, id,
            agent=agent, session=session, events=events, limit=limits.stream_events,
        )  # fmt: skip
        self._front.hub.add(stream)
        connection.streams[id] = stream
        begun = {"type": "watching", "system": self._record.id, "session": session}
        connection.send(id, EVENT, codec.encode(begun), now)

    def _unwatch(self, connection: Connection, now: float, stream: int) -> bytes:
        found = connection.streams.pop(stream, None)
        if found is None:
            raise UsageError(f"there is no stream {stream}")
        self._front.hub.remove(found)
        connection.send(stream, END, codec.encode(None), now)
        return codec.encode(None)
