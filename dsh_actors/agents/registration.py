"""What is registered in a scope, one by one, and how it is taken back."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import pykka

from dsh_actors.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh_actors.agents.scope import Scope

    Setup: TypeAlias = Callable[[], Callable[[], Any] | Iterable[Callable[[], Any]] | None]
    Table: TypeAlias = dict[str, dict["Entry", None]]

inside: ContextVar[tuple[Scope, ...]] = ContextVar("dsh_actors_scopes", default=())
"""The scopes of which a set-up or a release runs here: they end only after it."""


class Registration:
    """One thing that is registered. Call it to take just that back, ahead of its scope's end.

    It works once: a second call, and one that comes after the end of the scope has begun,
    returns at once without waiting. :meth:`Scope.dispose` is what waits.
    """

    __slots__ = ("claimed", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        # Whoever sets this, under the lock, takes it back.
        self.claimed = False

    def __call__(self) -> None:
        """Take it back, unless somebody does or did so already.

        Raises:
            Exception: what a disposer raised; of several, an ``ExceptionGroup``.
        """
        raise NotImplementedError


class Entry(Registration):
    """A tool, a section or a listener: in a table as long as it is not claimed."""

    __slots__ = ("table", "value", "word")

    def __init__(self, scope: Scope, table: Table, word: str, value: Any) -> None:
        super().__init__(scope)
        self.table = table
        self.word = word
        self.value = value

    def __call__(self) -> None:
        """See :class:`Registration`."""
        with self.scope._lock:
            if not self.claimed:
                del self.scope._entries[self]
                self.leave_locked()

    def enter_locked(self) -> None:
        """Be found from here on."""
        self.table.setdefault(self.word, {})[self] = None

    def leave_locked(self) -> None:
        """Be found no more, nor called."""
        self.claimed = True
        found = self.table[self.word]
        del found[self]
        if not found:
            del self.table[self.word]


class Effect(Registration):
    """What a set-up did, as the disposers that it gave."""

    __slots__ = ("loaded", "parts")

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.loaded = False
        self.parts: list[Callable[[], Any]] = []

    def __call__(self) -> None:
        """See :class:`Registration`."""
        scope = self.scope
        with scope._lock:
            if self.claimed:
                return
            self.claimed = True
            scope._unfinished += 1
        failures = self.release()
        scope._left(self, ())
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise group(f"taking back an effect of {scope.name}", failures)

    def load(self, setup: Setup) -> None:
        """Run the set-up on this thread."""
        with Inside(self.scope):
            given = setup()
            if given is None:
                return
            if callable(given):
                self.parts.append(given)
                return
            for part in given:  # a generator may raise on the way: what it gave is kept
                if not callable(part):
                    raise UsageError(f"a set-up gave {part!r}, which is no function to undo it")
                self.parts.append(part)

    def release(self) -> list[BaseException]:
        """Undo its parts on this thread, the last one first, and return what went wrong."""
        failures: list[BaseException] = []
        with Inside(self.scope):
            while self.parts:
                try:
                    _wait_for(self.parts.pop()())
                except BaseException as error:
                    failures.append(error)
        return failures


class Plugin(Registration):
    """A scope below a scope."""

    __slots__ = ("below", "loaded")

    def __init__(self, scope: Scope, below: Scope) -> None:
        super().__init__(scope)
        self.loaded = False
        self.below = below


class Inside:
    """Marks that what runs here has to end before a scope can."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._token = inside.set((*inside.get(), self._scope))

    def __exit__(self, *_: object) -> None:
        inside.reset(self._token)


def group(message: str, failures: list[BaseException]) -> BaseExceptionGroup[BaseException]:
    """All of them in one; an ``ExceptionGroup`` if each is an ``Exception``."""
    return BaseExceptionGroup(message, failures)


def _wait_for(value: Any) -> None:
    """What a disposer returned: a future is waited for, a coroutine could never run."""
    if isinstance(value, pykka.Future):
        value.get()
    elif hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise UsageError("what undoes an effect is a plain function, not an async one")
    elif hasattr(value, "add_done_callback"):  # of concurrent.futures
        value.result()
