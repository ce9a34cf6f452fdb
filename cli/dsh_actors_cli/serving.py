"""What makes a run reachable for the other verbs, while it lasts.

A foreground run opens its control socket once it is well under way, on a thread of its own, so
that it costs the launch nothing, and a run that is over at once never has one. Without a socket
a run goes on as well; nobody can look at it from outside, and one line says so.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from dsh_actors.errors import DshActorsError
from dsh_actors_cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dsh_actors.actors.future import Future
    from dsh_actors.control import ControlServer
    from dsh_actors.sessions import SessionStore
    from dsh_actors.supervisor.receipt import Receipt
    from dsh_actors.system import ActorSystem, TreeNode
    from dsh_actors_cli.outcome import Outcome

    Shutdown = Callable[[float | None], Future[Receipt]]

__all__ = ["Serving"]

# Not while the launch needs the processor, and not for runs that are over before.
_OPEN_AFTER = 0.3
# How long the last answers to clients may take, in seconds.
_PATIENCE = 1.0


class Serving:
    """The control socket of a run in the foreground."""

    def __init__(self) -> None:
        self._server: ControlServer | None = None
        self._over = threading.Event()
        self._opening: threading.Thread | None = None

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take an event of the system; from any thread, without waiting."""

    def is_up(self, asked: Iterable[str], agents: Iterable[TreeNode]) -> bool | None:
        """Return whether the run is up; False if it never will be, None if nobody knows yet.

        Parameters:
            asked: the roots that have a prompt.
            agents: all that live.
        """
        return True

    def up(
        self,
        system: ActorSystem,
        store: SessionStore | None,
        session_id: str,
        shutdown: Shutdown,
    ) -> None:
        """Open the socket soon: the tree has started, and its roots have been asked.

        Parameters:
            system: what is running.
            store: where its sessions go.
            session_id: of the root that was asked first.
            shutdown: ends the run, within so many seconds.
        """
        self._opening = threading.Thread(
            target=self._open_soon, args=(system, store, shutdown), name="dsh-serving", daemon=True
        )
        self._opening.start()

    def ended(self, outcome: Outcome | DshActorsError) -> None:
        """Tell those who wait for it what the run came to, and close the socket.

        Parameters:
            outcome: of the run, or why there was none. Only the first one counts.
        """
        self._over.set()
        if self._opening is not None:
            self._opening.join(_PATIENCE)
        server, self._server = self._server, None
        if server is not None:
            from dsh_actors_cli.runs import record_of

            server.publish_result(record_of(outcome))
            server.close(_PATIENCE)

    def _open_soon(
        self, system: ActorSystem, store: SessionStore | None, shutdown: Shutdown
    ) -> None:
        if self._over.wait(_OPEN_AFTER):
            return
        problem = self._open(system, store, shutdown)
        if problem:
            output.print_warning(problem)

    def _open(self, system: ActorSystem, store: SessionStore | None, shutdown: Shutdown) -> str:
        """Open the socket; return why it cannot be, if so."""
        from dsh_actors.control import ControlServer

        server = ControlServer(system, store=store, shutdown=shutdown)
        try:
            server.start()
        except (OSError, DshActorsError) as error:
            return f"ps, tree and send cannot reach this run: {error}"
        self._server = server
        return ""
