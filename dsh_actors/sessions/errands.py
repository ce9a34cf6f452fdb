"""Work that a caller waits for and that only the writer thread may do, between two groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Errand"]

T = TypeVar("T")


class Errand(Generic[T]):
    """One piece of such work.

    Parameters:
        work: what to do on the writer thread.
    """

    __slots__ = ("_error", "_result", "_work", "done")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T
        self._error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        """Do it, on the writer thread. What goes wrong is the caller's."""
        try:
            self._result = self._work()
        except BaseException as error:  # the only writer must not die of anything
            self._error = error
        self.done = True

    def outcome(self) -> T:
        """Return what came of it, or raise its error, on the caller's thread."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle through the traceback
        return self._result
