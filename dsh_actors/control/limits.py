"""What the control plane allows its clients, so that none of them can be felt in the tree."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "Throttle"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one control server. Times in seconds, sizes in bytes.

    Attributes:
        clients: how many may be connected at once.
        hello: how long a connection may take until it has said hello.
        frame: how long a frame may take to arrive, from its first byte to its last.
        stall: how long a client may take to read one frame that is due.
        spare: how long an idle client is left alone when its place is wanted by another.
        linger: how long what is still to be sent to a closed connection may take.
        open_requests: how many requests of one client may wait for their answers at once.
        streams: how many streams one client may have at once.
        outbox: of how much unsent data on no more requests of that client are taken.
        outbox_limit: of how much unsent data on it is closed.
        stream_outbox: up to how much unsent data events are added to it.
        stream_events: how many events of one stream wait before some are dropped.
        events: how many events of the system wait before some are dropped.
        share: of one processor, for the whole control plane, in the long run.
        burst: how many seconds of processor time it may take ahead of that.
    """

    clients: int = 64
    hello: float = 5.0
    frame: float = 10.0
    stall: float = 15.0
    spare: float = 30.0
    linger: float = 1.0
    open_requests: int = 64
    streams: int = 8
    outbox: int = 4 << 20
    outbox_limit: int = 256 << 20
    stream_outbox: int = 256 << 10
    stream_events: int = 2_000
    events: int = 8_000
    share: float = 0.1
    burst: float = 0.2


class Throttle:
    """Keeps the control plane to its share of a processor, whatever it is asked to do.

    Parameters:
        share: of one processor, in the long run.
        burst: how many seconds of processor time may be taken ahead.
        now: the time, in seconds.
    """

    __slots__ = ("_burst", "_left", "_share", "_then")

    def __init__(self, share: float, burst: float, now: float) -> None:
        self._share, self._burst = share, burst
        self._left = burst
        self._then = now

    def spent(self, seconds: float, now: float) -> float:
        """Count processor time that was used.

        Parameters:
            seconds: how much since the last call.
            now: the time, in seconds.

        Returns:
            For how many seconds nothing more should be done.
        """
        earned = (now - self._then) * self._share
        self._then = now
        self._left = min(self._burst, self._left + earned) - seconds
        return 0.0 if self._left >= 0 else -self._left / self._share
