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
from typing import TYPE_CHECKING

from dsh_actors.control.connection import Connection
from dsh_actors.control.desk import Desk
from dsh_actors.control.door import Door, turn_away
from dsh_actors.control.limits import Throttle
from dsh_actors.control.watching import Hub
from dsh_actors.errors import ControlError
from dsh_actors.observe.logging import get_logger

if TYPE_CHECKING:
    from dsh_actors.control.discovery import Record
    from dsh_actors.control.endpoint import Endpoint
    from dsh_actors.control.limits import Limits
    from dsh_actors.control.verbs import Verbs
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.system import ActorSystem

__all__ = ["Loop"]


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
        self._verbs = verbs
        self._limits = limits
        self._log = get_logger("dsh_actors.control")
        self._closing = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._rung = False
        self.hub = Hub(system, store, limits, self._wake)
        self._connections: dict[Connection, int] = {}  # and what the selector looks for
        self._settled: deque[tuple[Connection, int]] = deque()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._door = Door(endpoint.listener, self._selector)
        self._desk = Desk(system, store, verbs, record, limits, self)

    # -- from any thread -------------------------------------------------------------------------

    def close(self) -> None:
        """Have it end, soon."""
        self._closing.set()
        self._ring()

    @property
    def peers_checked(self) -> bool:
        """Whether the kernel says who connects."""
        return self._door.peers_checked

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

    def settled(self, connection: Connection, id: int) -> None:
        """Have a request answered whose work is done."""
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
            self.hub.close()
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
            self._desk.serve(connection, now)
        more = self.hub.distribute(now)
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
            self.hub.remove(stream)
        connection.streams.clear()
        connection.waiting.clear()
        connection.closed = True
        connection.socket.close()

    def _answer_settled(self, now: float) -> None:
        while self._settled:
            connection, id = self._settled.popleft()
            self._desk.answer(connection, id, now)

    # -- the end ---------------------------------------------------------------------------------

    def _say_goodbye(self) -> None:
        """Answer what is done, refuse the rest, and give clients a moment to read it."""
        now = time.monotonic()
        self._door.shut()
        self.hub.finish(now)
        for connection in list(self._connections):
            self._desk.say_goodbye(connection, now)
            connection.closing_since = connection.closing_since or now
        while self._connections:
            for connection in list(self._connections):
                self._tidy(connection, time.monotonic())
            if self._connections:
                for key, _ in self._selector.select(self._patience()):
                    if key.fileobj is self._bell:
                        self._hush()
