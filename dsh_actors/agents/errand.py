"""Something that a dispatcher runs once, beside its actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh_actors.actors.future import Future

if TYPE_CHECKING:
    from collections.abc import Callable

    from dsh_actors.actors.dispatcher import Dispatcher


class Errand:
    """A function for a thread of a dispatcher. It may block, and deals with its own errors.

    Parameters:
        dispatcher: whose threads; it runs others meanwhile.
        function: what to run.
    """

    name = "an errand"

    def __init__(self, dispatcher: Dispatcher, function: Callable[[], None]) -> None:
        self._dispatcher = dispatcher
        self._function = function

    def serve(self) -> bool:
        """Run it."""
        self._dispatcher.enter_blocking()
        try:
            self._function()
        finally:
            self._dispatcher.exit_blocking()
        return False

    def abandon(self, error: BaseException) -> None:
        """It has ended with an error, which the thread has logged."""

    def end_now(self) -> Future[None]:
        """It ends by itself."""
        ended: Future[None] = Future()
        ended.set_result(None)
        return ended

    def discard_waiting(self) -> None:
        """Nothing waits in it."""
