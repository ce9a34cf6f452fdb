"""Who comes in at the socket of a system, and who is turned away at once."""

from __future__ import annotations

import os
import selectors
from typing import TYPE_CHECKING

from dsh_actors.control.peer import peer_uid
from dsh_actors.control.protocol import ERROR, error_data, frames_of
from dsh_actors.errors import ControlError
from dsh_actors.observe.logging import get_logger

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

__all__ = ["Door", "turn_away"]

_ACCEPTS = 16  # in one pass
_NO_DESCRIPTORS = 1.0  # seconds until the next try, if the process has no descriptor left


class Door:
    """Accepts connections of the user whose system this is.

    Parameters:
        listener: the listening socket.
        selector: where to wait for it.

    Attributes:
        reopens: when to listen again, if that had to pause.
        peers_checked: whether the kernel says who connects.
    """

    __slots__ = ("_listener", "_log", "_selector", "peers_checked", "reopens")

    def __init__(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        self._listener = listener
        self._selector = selector
        self._log = get_logger("dsh_actors.control")
        self.reopens: float | None = None
        self.peers_checked = True
        selector.register(listener, selectors.EVENT_READ)

    def accept(self, now: float) -> Iterator[socket.socket]:
        """Give the clients that have come, non-blocking, up to a limit."""
        for _ in range(_ACCEPTS):
            try:
                client, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor left, most likely
                self._log.warning("no client can be accepted for now", error=str(error))
                self._selector.unregister(self._listener)
                self.reopens = now + _NO_DESCRIPTORS
                return
            client.setblocking(False)
            if self._is_welcome(client):
                yield client

    def _is_welcome(self, client: socket.socket) -> bool:
        try:
            uid = peer_uid(client)
        except OSError:
            client.close()  # it is gone again
            return False
        if uid is None:
            if self.peers_checked:
                self._log.warning(
                    "this kernel does not say who connects; only the folder protects the socket"
                )
            self.peers_checked = False
        elif uid != os.geteuid():
            self._log.warning("a connection of another user was refused", uid=uid)
            turn_away(client, "NotAuthorized", "this system belongs to another user")
            return False
        return True

    def reopen(self, now: float) -> None:
        """Listen again, if it is time."""
        if self.reopens is not None and now >= self.reopens:
            self.reopens = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def shut(self) -> None:
        """Let nobody in any more."""
        if self.reopens is None:
            self._selector.unregister(self._listener)
        self.reopens = None


def turn_away(client: socket.socket, type_name: str, why: str) -> None:
    """Say in one go why a client cannot come in."""
    data = error_data(ControlError(why, type_name=type_name))
    try:
        client.send(b"".join(frames_of(0, ERROR, data)))
    except OSError:
        return  # it does not listen
    finally:
        client.close()
