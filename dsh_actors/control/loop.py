"""The thread of a control server: it moves bytes and carries out requests, one at a time.

It takes no lock while it reads or writes, nobody in the system waits for it, and it keeps to its
share of a processor. In one pass each client gets at most one request done and a bounded amount
of bytes moved, so that none is served at the cost of another.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from dsh_actors import __version__, codec
from dsh_actors.control.connection import Connection, Waiting
from dsh_actors.control.door import Door, turn_away
from dsh_actors.control.limits import Throttle
from dsh_actors.control.protocol import (
    END,
    ERROR,
    EVENT,
    OK,
    PROTOCOL,
    BadFrame,
    error_data,
)
from dsh_actors.control.verbs import checked
from dsh_actors.control.watching import Hub, Stream
from dsh_actors.errors import ControlError, DshActorsError, SystemClosed, UsageError
from dsh_actors.observe.logging import get_logger

if TYPE_CHECKING:
    from dsh_actors.control.discovery import Record
    from dsh_actors.control.endpoint import Endpoint
    from dsh_actors.control.limits import Limits
    from dsh_actors.control.protocol import Request
    from dsh_actors.control.verbs import Verbs
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.system import ActorSystem

__all__ = ["Loop"]

_WATCH_FIELDS = {
    "agent": (str, type(None)),
    "session": (str, type(None)),
    "events": (bool, type(None)),
}


class Loop:
    """Serves the clients of one system until it is closed.

    Parameters:
        endpoint: the socket; it is closed with this.
        system: the system.
        store: its store, if it has one.
        verbs: what it does.
        record: who it is.
        limits: what clients are allowed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        system: ActorSystem,
        store: SessionStore | None,
        verbs: Verbs,
        record: Record,
        limits: Limits,
    ) -> None:
        self._endpoint = endpoint
        self._system = system
        self._store = store
        self._verbs = verbs
        self._record = record
        self._limits = limits
        self._log = get_logger("dsh_actors.control")
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._rung = False
        self._hub = Hub(system, store, limits, self._wake)
        self._connections: dict[Connection, int] = {}  # and what the selector looks for
        self._settled: deque[tuple[Connection, int]] = deque()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._door = Door(endpoint.listener, self._selector)

    # -- from any thread -------------------------------------------------------------------------

    def close(self) -> None:
        """Have it end, soon."""
        self._closing.set()
        self._ring()

    def _wake(self) -> None:
        if not self._rung:
            self._rung = True
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it is full, which is as good, or closed
            self._ringer.send(b"\0")

    def _hush(self) -> None:
        """Take the ring. In this order: who rings in between has put down before what is to do."""
        self._bell.recv(4096)
        self._rung = False

    def _on_settled(self, connection: Connection, id: int) -> None:
        self._settled.append((connection, id))
        self._wake()

    def forget(self) -> None:
        """Close what it has open, and touch nothing that another process may still use."""
        for connection in list(self._connections):
            connection.socket.close()
        self._selector.close()
        self._bell.close()
        self._ringer.close()

    # -- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until it is closed."""
        throttle = Throttle(self._limits.share, self._limits.burst, time.monotonic())
        used = time.thread_time()
        more = False
        try:
            while not self._closing.is_set():
                try:
                    more = self._serve(0.0 if more else None)
                except Exception:
                    self._log.exception("a pass of the control server failed")
                then, used = used, time.thread_time()
                pause = throttle.spent(used - then, time.monotonic())
                if pause > 0:
                    self._closing.wait(pause)
            self._say_goodbye()
        except Exception:
            self._log.exception("the control server did not end in order")
        finally:
            self._hub.close()
            for connection in list(self._connections):
                self._close(connection)
            self._endpoint.close()
            self.forget()

    def _serve(self, timeout: float | None) -> bool:
        """One pass; whether there is more to do at once."""
        ready = self._selector.select(self._patience() if timeout is None else timeout)
        now = time.monotonic()
        for key, mask in ready:
            if key.fileobj is self._bell:
                self._hush()
            elif key.fileobj is self._endpoint.listener:
                for client in self._door.accept(now):
                    self._admit(client, now)
            else:
                self._move(key.data, mask, now)
        self._door.reopen(now)
        self._answer_settled(now)
        self._verbs.new_pass()
        for connection in list(self._connections):
            self._do_one(connection, now)
        more = self._hub.distribute(now)
        for connection in list(self._connections):
            more |= self._tidy(connection, now)
        return more or bool(self._settled)

    def _patience(self) -> float | None:
        """For how long nothing has to be done unless something comes."""
        due = [found[0] for each in self._connections if (found := each.deadline()) is not None]
        if self._door.reopens is not None:
            due.append(self._door.reopens)
        return max(0.0, min(due) - time.monotonic()) if due else None

    # -- connections -----------------------------------------------------------------------------

    def _admit(self, client: socket.socket, now: float) -> None:
        held = len(self._connections)
        if held >= self._limits.clients and not self._make_room(now):
            turn_away(client, "Busy", f"{held} clients are connected already; try again later")
            return
        connection = Connection(client, self._limits, now)
        self._connections[connection] = selectors.EVENT_READ
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _make_room(self, now: float) -> bool:
        """Give the place of the client that has done nothing for the longest time to another."""
        spare = [
            each
            for each in self._connections
            if each.is_idle and now - each.last_active > self._limits.spare
        ]
        if not spare:
            return False
        idle = min(spare, key=lambda each: each.last_active)
        idle.drop("its place was needed")
        self._close(idle)
        return True

    def _move(self, connection: Connection, mask: int, now: float) -> None:
        try:
            if mask & selectors.EVENT_READ:
                connection.read(now)
            if mask & selectors.EVENT_WRITE:
                connection.write(now)
        except OSError as error:
            connection.drop(str(error))

    def _tidy(self, connection: Connection, now: float) -> bool:
        """Send, close, or look for what comes next; whether a request waits to be done."""
        try:
            connection.write(now)
        except OSError as error:
            connection.drop(str(error))
        due = connection.deadline()
        if due is not None and now >= due[0]:
            if connection.closing_since is None and not connection.wants_write:
                connection.refuse(ControlError(f"closed: {due[1]}", type_name="Timeout"), now)
            else:
                connection.drop(due[1])
        if connection.is_over:
            self._close(connection)
            return False
        wanted = selectors.EVENT_READ if connection.wants_read else 0
        if connection.wants_write:
            wanted |= selectors.EVENT_WRITE
        if wanted != self._connections[connection]:
            self._look_for(connection, wanted)
        return connection.has_request

    def _look_for(self, connection: Connection, wanted: int) -> None:
        before, self._connections[connection] = self._connections[connection], wanted
        if not wanted:
            self._selector.unregister(connection.socket)
        elif before:
            self._selector.modify(connection.socket, wanted, connection)
        else:
            self._selector.register(connection.socket, wanted, connection)

    def _close(self, connection: Connection) -> None:
        if self._connections.pop(connection):
            self._selector.unregister(connection.socket)
        for stream in connection.streams.values():
            self._hub.remove(stream)
        connection.streams.clear()
        connection.waiting.clear()
        connection.closed = True
        connection.socket.close()

    # -- requests --------------------------------------------------------------------------------

    def _do_one(self, connection: Connection, now: float) -> None:
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
            "peers_checked": self._door.peers_checked,
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
            answer.future.add_done_callback(lambda _: self._on_settled(connection, id))
        else:
            connection.send(id, OK, answer, now)

    def _answer_settled(self, now: float) -> None:
        while self._settled:
            connection, id = self._settled.popleft()
            waiting = connection.waiting.pop(id, None)
            if waiting is not None:
                good, data = waiting.answer()
                connection.send(id, OK if good else ERROR, data, now)

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
        self._hub.add(stream)
        connection.streams[id] = stream
        begun = {"type": "watching", "system": self._record.id, "session": session}
        connection.send(id, EVENT, codec.encode(begun), now)

    def _unwatch(self, connection: Connection, now: float, stream: int) -> bytes:
        found = connection.streams.pop(stream, None)
        if found is None:
            raise UsageError(f"there is no stream {stream}")
        self._hub.remove(found)
        connection.send(stream, END, codec.encode(None), now)
        return codec.encode(None)

    # -- the end ---------------------------------------------------------------------------------

    def _say_goodbye(self) -> None:
        """Answer what is done, refuse the rest, and give clients a moment to read it."""
        now = time.monotonic()
        self._door.shut()
        self._hub.finish(now)
        over = SystemClosed(f"system {self._record.id} is ending and answers no more")
        for connection in list(self._connections):
            for id, waiting in list(connection.waiting.items()):
                good, data = (
                    waiting.answer() if waiting.future.done() else (False, error_data(over))
                )
                connection.send(id, OK if good else ERROR, data, now)
            connection.waiting.clear()
            for id in connection.streams:
                connection.send(id, END, codec.encode(None), now)
            connection.closing_since = connection.closing_since or now
        while self._connections:
            for connection in list(self._connections):
                self._tidy(connection, time.monotonic())
            if self._connections:
                for key, _ in self._selector.select(self._patience()):
                    if key.fileobj is self._bell:
                        self._hush()
