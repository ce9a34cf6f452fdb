"""Shows a running system of another process as its own run would: the live tree, or lines."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack, suppress
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING

from dsh_actors.errors import ControlError
from dsh_actors_cli.remote import nodes_of, tree_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from dsh_actors.control import RunningSystem
    from dsh_actors.system import TreeNode

__all__ = ["Viewer"]

# How long a terminal that takes no output may hold up the end, in seconds.
_PATIENCE = 1.0
# How often the thread that waits for events looks whether it is to end, in seconds.
_LOOK_EVERY = 0.1
# How many of the agents that are there at the beginning are named when they end.
_MOST_NAMED = 100


class Viewer:
    """Shows one system on stderr, for as long as the block lasts.

    Two connections serve it: one brings the events, one is asked for the tree. The thread that
    draws is the reporter's; this one is free to wait for something else.

    Parameters:
        system: what to show.

    Attributes:
        style: how to paint what is printed behind it.

    Raises:
        ControlError: the system cannot be reached.
    """

    def __init__(self, system: RunningSystem) -> None:
        from dsh_actors.control import ControlClient
        from dsh_actors_cli.render.reporter import Reporter, wants_live_tree
        from dsh_actors_cli.render.style import Style, wants_colour

        self.style = Style(wants_colour(sys.stderr))  # before stderr becomes a pipe
        self._ended = threading.Event()
        self._closing = False
        with ExitStack() as stack:
            self._tree = stack.enter_context(ControlClient.connect(system.path))
            self._events = stack.enter_context(ControlClient.connect(system.path))
            agents = self._tree.call("tree")["agents"]
            self._last: Sequence[TreeNode] = tree_nodes(agents)
            named = [node["id"] for node in islice(nodes_of(agents), _MOST_NAMED)]
            screen = None
            if wants_live_tree():
                from dsh_actors_cli.render.screen import Screen

                screen = Screen()
            self._reporter = Reporter(
                system.name,
                named,
                monotonic() - max(0.0, time.time() - system.started),
                self.style,
                screen=screen,
                on_hang_up=self._ended.set,
            )
            self._clients = stack.pop_all()
        self._thread = threading.Thread(target=self._hear, name="dsh-events", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._reporter.start(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        """Take the tree away, give the terminal back, and close the connections."""
        self._reporter.close(_PATIENCE)
        self._closing = True
        self._thread.join()
        self._clients.close()

    def await_end(self) -> None:
        """Return when the system has ended, or nobody can read stderr any more."""
        while not self._ended.wait(3600.0):
            pass  # a wait without a time-out would not be interruptible everywhere

    def _look(self) -> Sequence[TreeNode]:
        """Return the tree; the last one when the system does not answer any more."""
        try:
            self._last = tree_nodes(self._tree.call("tree")["agents"])
        except ControlError as error:
            if error.type_name != "Timeout":  # it may only be busy
                self._ended.set()
        return self._last

    def _hear(self) -> None:
        with suppress(ControlError):  # the end of the system is the end of its events
            stream = self._events.stream("watch", events=True)
            while not (stream.over or self._closing):
                event = stream.get(_LOOK_EVERY)
                if event is not None and event["type"] != "dropped":
                    self._reporter.hear(event)
        self._ended.set()
