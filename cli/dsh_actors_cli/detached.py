"""The process of a detached run: it has no terminal, and tells its starter when it is up.

Its stdout and stderr are its log. The starter sends the options over a socket pair, whose other
direction carries one line back. A starter that is gone by then has told nobody of the run, which
is stopped.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from dsh_actors.errors import DshActorsError
from dsh_actors_cli import exits, output, signals
from dsh_actors_cli.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dsh_actors.sessions import SessionStore
    from dsh_actors.system import ActorSystem, TreeNode
    from dsh_actors_cli.launch import Options
    from dsh_actors_cli.outcome import Outcome
    from dsh_actors_cli.serving import Shutdown

__all__ = ["main"]


class _DetachedServing(Serving):
    """Opens the control socket before it says that the run is up, and keeps the result."""

    def __init__(self, link: socket.socket, watch: signals.Watch) -> None:
        super().__init__()
        self._link, self._watch = link, watch
        self._system_id = ""
        self._begun: set[str] = set()
        self._gone: set[str] = set()

    def hear(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "turn/start":
            self._begun.add(event["agent"])
        elif event["type"] == "agent/ended" and not event["restarting"]:
            self._gone.add(event["agent"])

    def is_up(self, asked: Iterable[str], agents: Iterable[TreeNode]) -> bool | None:
        """An agent that was asked something has been set up if it begins a turn."""
        begun = set(self._begun)
        known = begun | self._gone
        if not known.issuperset(asked) or any(node.status == "preparing" for node in agents):
            return None
        return begun.issuperset(asked)

    def up(
        self,
        system: ActorSystem,
        store: SessionStore | None,
        session_id: str,
        shutdown: Shutdown,
    ) -> None:
        from dsh_actors_cli.runs import name_log

        warning = self._open(system, store, shutdown)
        try:
            told = {
                "system_id": system.id,
                "session_id": session_id,
                "pid": os.getpid(),
                "log": str(name_log(system.id)),
                "warning": warning,
            }
            self._link.sendall(json.dumps(told).encode() + b"\n")
        except OSError:
            self._watch.hang_up()
            return
        finally:
            self._link.close()
        self._system_id = system.id

    def ended(self, outcome: Outcome | DshActorsError) -> None:
        from dsh_actors_cli import runs

        if self._system_id:
            try:
                runs.write(self._system_id, runs.record_of(outcome))
            except OSError as error:
                output.print_warning(f"the result of the run cannot be kept: {error}")
        super().ended(outcome)


def main(link: int) -> NoReturn:
    """Run what the starter sends.

    Parameters:
        link: the descriptor of the socket to it.
    """
    watch = signals.install()
    sys.exit(_run(socket.socket(fileno=link), watch))


def _run(link: socket.socket, watch: signals.Watch) -> int:
    from dataclasses import replace

    from dsh_actors_cli.launch import run_tree
    from dsh_actors_cli.options import resolve_from_here

    link.set_inheritable(False)
    data = b""
    while chunk := link.recv(65536):
        data += chunk
    if not data:
        return exits.FAILED  # the starter was gone before it had begun
    options: Options = pickle.loads(data)
    resolve_from_here()
    try:
        return run_tree(replace(options, form="text"), _DetachedServing(link, watch))
    except DshActorsError as error:
        return output.print_error(
            str(error), exits.USAGE if output.is_user_error(error) else exits.FAILED
        )
    except OSError as error:
        return output.print_error(str(error), exits.FAILED)
