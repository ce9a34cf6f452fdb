"""Streams of events: from any thread of the system, through two bounded queues, to who watches.

The system and the store only ever append to the first queue, which costs them next to nothing and
never waits. When a queue is full, events are dropped and counted, and the count takes their place.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.control.protocol import EVENT
from dsh_actors.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dsh_actors.control.connection import Connection
    from dsh_actors.control.limits import Limits
    from dsh_actors.sessions.events import Event
    from dsh_actors.sessions.store import SessionStore
    from dsh_actors.system import ActorSystem

__all__ = ["Hub", "Stream"]

_BATCH = 512  # events that are passed on before clients are looked at again


class _Item:
    """One event on its way; encoded at most once, for all that it goes to."""

    __slots__ = ("_data", "event", "session")

    def __init__(self, event: Mapping[str, Any], session: str | None) -> None:
        self.event = event
        self.session = session  # None for an event of the system
        self._data: bytes | None = None

    def encoded(self) -> bytes:
        data = self._data
        if data is None:
            try:
                data = codec.encode(dict(self.event))
            except MessageError as error:
                told = {"type": str(self.event.get("type")), "problem": str(error)}
                data = codec.encode(told)
            self._data = data
        return data


class Stream:
    """One stream of one client.

    Parameters:
        connection: the client.
        id: of the request.
        agent: whose events of the system are wanted; None for those of all.
        session: whose log events are wanted; None for none.
        events: whether events of the system are wanted.
        limit: how many events may wait.
    """

    __slots__ = (
        "_agent", "_connection", "_events", "_id", "_limit", "_lost", "_queue", "session",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        id: int,
        *,
        agent: str | None,
        session: str | None,
        events: bool,
        limit: int,
    ) -> None:
        self._connection = connection
        self._id = id
        self._agent, self.session, self._events = agent, session, events
        self._limit = limit
        self._queue: deque[_Item] = deque()
        self._lost = 0

    def offer(self, item: _Item) -> None:
        """Queue an event, if it is wanted and there is room."""
        if item.session is not None:
            wanted = item.session == self.session
        else:
            wanted = self._events and self._agent in (None, item.event.get("agent"))
        if wanted:
            if len(self._queue) >= self._limit:
                self._lost += 1
                return
            self._tell_lost()
            self._queue.append(item)

    def lose(self, count: int) -> None:
        """Count events that were dropped before anybody saw whom they concern."""
        self._lost += count

    def _tell_lost(self) -> None:
        if self._lost:
            self._queue.append(_Item({"type": "dropped", "count": self._lost}, None))
            self._lost = 0

    def flush(self, now: float, *, all: bool = False) -> None:
        """Pass on as many events as the client takes, or all that are left."""
        connection = self._connection
        while all or connection.takes_events:
            if not self._queue:
                self._tell_lost()
                if not self._queue:
                    return
            connection.send(self._id, EVENT, self._queue.popleft().encoded(), now)


class Hub:
    """Listens to a system and its store as long as somebody watches, and passes events on.

    Parameters:
        system: the system.
        store: its store, if it has one.
        limits: how much may wait.
        wake: wakes the thread that calls `distribute`; called from any thread.
    """

    def __init__(
        self,
        system: ActorSystem,
        store: SessionStore | None,
        limits: Limits,
        wake: Callable[[], None],
    ) -> None:
        self._system = system
        self._store = store
        self._limit = limits.events
        self._wake = wake
        self._queue: deque[_Item] = deque()
        self._lost = 0
        self._counting = allocate_lock()
        self._streams: dict[Stream, None] = {}
        self._sessions: dict[str, int] = {}
        self._stop_events: Callable[[], None] | None = None
        self._stop_log: Callable[[], None] | None = None

    def add(self, stream: Stream) -> None:
        """Begin a stream."""
        self._streams[stream] = None
        if self._stop_events is None:
            self._stop_events = self._system.observe(self._hear)
        session = stream.session
        if session is not None:
            self._sessions[session] = self._sessions.get(session, 0) + 1
            if self._stop_log is None and self._store is not None:
                self._stop_log = self._store.observe(self._hear_log)

    def remove(self, stream: Stream) -> None:
        """End a stream. With the last one, the system is not listened to any more."""
        if stream not in self._streams:
            return
        del self._streams[stream]
        session = stream.session
        if session is not None:
            self._sessions[session] -= 1
            if not self._sessions[session]:
                del self._sessions[session]
        if not self._sessions and self._stop_log is not None:
            self._stop_log()
            self._stop_log = None
        if not self._streams:
            self._listen_no_more()

    def finish(self, now: float) -> None:
        """Listen no more, and pass on what came."""
        self._listen_no_more()
        while self.distribute(now):
            pass
        for stream in self._streams:
            stream.flush(now, all=True)

    def close(self) -> None:
        """End all streams."""
        self._streams.clear()
        self._sessions.clear()
        self._listen_no_more()

    def _listen_no_more(self) -> None:
        if not self._streams:
            self._queue.clear()
        for stop in (self._stop_events, self._stop_log):
            if stop is not None:
                stop()
        self._stop_events = self._stop_log = None

    # -- on any thread ---------------------------------------------------------------------------

    def _hear(self, event: Mapping[str, Any]) -> None:
        self._put(_Item(event, None))

    def _hear_log(self, session: str, event: Event) -> None:
        if session in self._sessions:
            told = {
                "type": "log",
                "session": session,
                "seq": event.seq,
                "time": event.time,
                "event": event.type,
                "data": event.data,
            }
            self._put(_Item(told, session))

    def _put(self, item: _Item) -> None:
        if len(self._queue) >= self._limit:
            with self._counting:
                self._lost += 1
            return
        self._queue.append(item)
        self._wake()

    # -- on the thread of the server -------------------------------------------------------------

    def distribute(self, now: float) -> bool:
        """Pass some events on; whether there are more."""
        queue, streams = self._queue, self._streams
        for _ in range(min(_BATCH, len(queue))):
            item = queue.popleft()
            for stream in streams:
                stream.offer(item)
        if self._lost and len(queue) < self._limit:
            with self._counting:
                lost, self._lost = self._lost, 0
            for stream in streams:
                stream.lose(lost)
        for stream in streams:
            stream.flush(now)
        return bool(queue)
