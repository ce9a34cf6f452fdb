"""Who is told of what a store has committed: one callback per write, and listeners to all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.codec import decode_leniently
from dsh_actors.sessions.events import Event
from dsh_actors.sessions.ops import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh_actors.sessions.ops import EventOp, Log, Op
    from dsh_actors.sessions.store import Listener

__all__ = ["Observers", "report"]


class Observers:
    """Calls callbacks and listeners on the writer thread, in commit order.

    Parameters:
        name: what to call the store in the log.
    """

    __slots__ = ("_listeners", "_name", "telling")

    def __init__(self, name: str) -> None:
        self._name = name
        # Replaced, never changed: the writer goes through it while others add and remove.
        self._listeners: tuple[_Entry, ...] = ()
        self.telling: Log | None = None
        """The session whose event the listeners are being told of."""

    def add(self, listener: Listener) -> _Entry:
        """Add a listener; with the store's lock."""
        entry = _Entry(listener)
        self._listeners = (*self._listeners, entry)
        return entry

    def remove(self, entry: _Entry) -> None:
        """Remove it again; with the store's lock. It may be told of one more event."""
        self._listeners = tuple(other for other in self._listeners if other is not entry)

    def confirm(self, ops: Iterable[Op], error: BaseException | None) -> None:
        """Tell everybody that these writes are durable, or never will be."""
        for op in ops:
            callback: Callable[[BaseException | None], None] | None
            if isinstance(op, tuple):
                callback = op[5]
                if self._listeners and error is None:
                    self._tell(op)
            else:
                callback = op.on_commit
            if callback is None:
                continue
            try:
                callback(error)
            except BaseException as raised:  # an observer's failure is its own
                report(self._name, f"an on_commit callback of {log_of(op).id} raised", raised)

    def _tell(self, op: EventOp) -> None:
        log, seq, time, type, data, _ = op
        self.telling = log
        try:
            for entry in self._listeners:
                try:
                    # Decoded for each of them: what one does to the data is not seen by another.
                    entry.listener(log.id, Event(seq, time, type, decode_leniently(data)))
                except BaseException as raised:  # an observer's failure is its own
                    report(self._name, f"a listener told of event {seq} of {log.id} raised", raised)
        finally:
            self.telling = None


class _Entry:
    """One call of ``observe``: the same function may be a listener twice."""

    __slots__ = ("listener",)

    def __init__(self, listener: Listener) -> None:
        self.listener = listener


def report(name: str, what: str, error: BaseException | None = None) -> None:
    """Log what nobody waits for. ``logging`` is imported only once there is something to say.

    Parameters:
        name: of the store.
        what: happened.
        error: is logged with its traceback; None if `what` says all there is to say.
    """
    import logging

    logging.getLogger("dsh_actors.sessions").error("%s: %s", name, what, exc_info=error)
