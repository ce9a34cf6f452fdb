"""Calls and checkpoints of agents anywhere: what they wait for is a commit of their session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors import codec
from dsh_actors.actors.future import Future
from dsh_actors.agents.calls import ABORTED, UNKNOWN
from dsh_actors.errors import IllegalTransition, StoreError

if TYPE_CHECKING:
    from dsh_actors.lifecycle.node import Node
    from dsh_actors.supervisor.core import Core


class Calls:
    """Puts calls on the record of their agents. From any thread; nothing here waits."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def checkpoint(self, node: Node, turn: int) -> Future[None]:
        """A future that is settled once all that the agent has done so far is durable."""
        journal = self._core.journal
        done: Future[None] = Future()
        if journal is None:
            done.set_result(None)
            return done
        try:
            journal.record(node, "turn/checkpoint", {"turn": turn}, _settles(done))
        except StoreError as error:
            done.try_set_error(error)
        return done

    def begin(self, node: Node, call: str, intent: bytes) -> Future[None]:
        """Record an intent and its dispatch; the future is settled once both are durable."""
        journal = self._core.journal
        done: Future[None] = Future()
        if journal is None:
            done.set_result(None)
            return done
        try:
            journal.called(node, call, intent, _settles(done))
        except StoreError as error:
            done.try_set_error(error)
        else:
            if node.life is not None:
                self._remember(node, call, intent)
        return done

    def _remember(self, node: Node, call: str, intent: bytes) -> None:
        """Keep an open call for a next life in this system; it is unknown until it has ended."""
        said = codec.decode(intent)
        row = [*(said[name] for name in ("message", "name", "key", "args", "idempotent"))]
        with self._core.lock:
            node.life.open_calls[call] = [*row, "unknown", None, None]

    def end(self, node: Node, call: str, outcome: bytes) -> None:
        """Record the result of a call. One that cannot be recorded stays unknown."""
        journal = self._core.journal
        if journal is None:
            return
        try:
            journal.call_ended(node, call, outcome)
        except IllegalTransition:
            return  # its intent was refused, so there is nothing to end
        except StoreError as error:
            self._core.log.error(
                "the result of a call was not stored", agent=node.id, call=call, error=str(error)
            )
        if node.life is not None:
            self._keep_result(node, call, outcome)

    def _keep_result(self, node: Node, call: str, outcome: bytes) -> None:
        said = codec.decode(outcome)
        result, error = said.get("result"), said.get("error")
        with self._core.lock:
            life = node.life
            row = life.open_calls.pop(call, None)
            if row is None or error == ABORTED:
                return
            if error is None:
                row[5:] = ["ok", result, None]
            elif error != UNKNOWN:
                row[5:] = ["error", None, error]
            life.calls = [*(old for old in life.calls if old[0] != row[0] or old[2] != row[2]), row]

    def over(self, node: Node, completed: bool) -> None:
        """A turn has ended: the calls of its messages, and of failed ones, will not come again.

        Parameters:
            node: an agent with a life.
            completed: whether the turn has gone on to its end, with what is unknown told to it.
        """
        waiting = getattr(node.agent, "pending", ())
        with self._core.lock:
            node.life.calls = [
                row
                for row in node.life.calls
                if row[0] in waiting or (row[5] == "unknown" and not completed)
            ]

    def cut_off(self, node: Node) -> None:
        """The process of an agent with a life has ended: what was open is unknown."""
        with self._core.lock:
            node.life.calls = [*node.life.calls, *node.life.open_calls.values()]
            node.life.open_calls = {}


def _settles(done: Future[None]) -> Any:
    def committed(error: BaseException | None) -> None:
        if error is None:
            done.try_set_result(None)
        else:
            done.try_set_error(StoreError(str(error)))

    return committed
