"""The scope of one agent: what was registered for it, and is taken back when it ends.

A scope is *active*, then *unloading*, then *disposed*. Whether it is active is asked in the same
section that registers, so that whatever races with the end of a scope is either taken back by it
or refused, and never left. Tools, sections and listeners are plain entries; effects and plugins
do something, which may take its time. The parts of one effect are released one after the other,
the last one first; different effects at the same time.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dsh_actors.agents.registration import Effect, Entry, Inside, Plugin, group, inside
from dsh_actors.agents.waiting import Awaited
from dsh_actors.errors import ScopeInactive, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dsh_actors.actors.future import Future
    from dsh_actors.agents.registration import Registration, Setup, Table

    Apart: TypeAlias = Callable[[Callable[[], None]], None]

ACTIVE: Final = "active"
UNLOADING: Final = "unloading"
DISPOSED: Final = "disposed"


class _Tables:
    """What the scopes of one agent register, all together."""

    __slots__ = ("listeners", "sections", "tools")

    def __init__(self) -> None:
        self.tools: Table = {}
        self.sections: Table = {}
        self.listeners: Table = {}


class Scope:
    """What is registered for one agent.

    A turn has it as ``turn.scope``, whoever created the agent as ``handle.scope``. It ends with
    the agent: after its last turn and its stop hook, before its session. May be used from any
    thread.

    Parameters:
        name: whose scope it is, for messages.
        apart: runs a function that may block, on another thread; by default on a new one.
    """

    __slots__ = (
        "_apart",
        "_disposed",
        "_entries",
        "_failures",
        "_lock",
        "_parent",
        "_place",
        "_state",
        "_tables",
        "_unfinished",
        "name",
    )

    def __init__(self, name: str, apart: Apart | None = None) -> None:
        self.name = name
        self._apart: Apart = apart or _on_a_thread
        self._lock = allocate_lock()  # one for an agent: plugins share it
        self._tables = _Tables()
        self._parent: Scope | None = None
        self._place: Plugin | None = None
        self._state = ACTIVE
        self._entries: dict[Entry | Effect | Plugin, None] = {}
        # How many set-ups and releases are in progress.
        self._unfinished = 0
        self._failures: list[BaseException] = []
        self._disposed: Future[None] | None = None

    # -- registering ---------------------------------------------------------------------------

    def effect(self, setup: Setup) -> Registration:
        """Do something now that is undone when the scope ends.

        Parameters:
            setup: called at once, on this thread. Returns the function that undoes it, several
                of them, or None. A generator may give them one by one: if it raises, those that
                it gave are called. They run the last one first, and all of them even if one
                raises; a future that one returns is waited for.

        Returns:
            What takes back just this effect.

        Raises:
            ScopeInactive: the scope is ending. If that began during ``setup``, what it did has
                been undone.
            Exception: what ``setup`` raised.
        """
        effect = Effect(self)
        self._begin_load(effect)
        try:
            effect.load(setup)
        except BaseException:
            # What was done before is undone; what goes wrong with that is told by the dispose.
            self._left(effect, effect.release())
            raise
        if self._end_load(effect):
            return effect
        self._left(effect, effect.release())
        raise self._inactive()

    def plugin(self, setup: Callable[[Scope], Any]) -> Scope:
        """Register several things that can be taken back together: a scope inside this one.

        Parameters:
            setup: called at once with the new scope. If it raises, all of it is taken back.

        Returns:
            The new scope. Its end is the end of this one at the latest.

        Raises:
            ScopeInactive, Exception: as for :meth:`effect`.
        """
        below = Scope(self.name, self._apart)
        below._lock, below._tables, below._parent = self._lock, self._tables, self
        place = below._place = Plugin(self, below)
        self._begin_load(place)
        try:
            with Inside(self):
                setup(below)
        except BaseException:
            self._take_back(place)
            raise
        if self._end_load(place):
            return below
        self._take_back(place)
        raise self._inactive()

    def _take_back(self, place: Plugin) -> None:
        place.claimed = True
        place.below.dispose().add_done_callback(
            lambda ended: self._left(place, _failures_of(ended))
        )

    def listen(self, event: str, listener: Callable[..., Any]) -> Registration:
        """Call a function with each event of this name that this agent has.

        The runtime emits ``turn/start`` (with the turn's number) and ``turn/end`` (the number
        and the reason) of turns that begin or end after the scope was made; a behaviour and
        its tools may :meth:`emit` others.

        Returns:
            What takes the listener out again.

        Raises:
            ScopeInactive: the scope is ending.
        """
        return self._add(Entry(self, self._tables.listeners, event, listener))

    def tool(self, name: str, function: Callable[..., Any]) -> Registration:
        """Give the agent a tool, to be found in :attr:`tools`.

        Raises:
            ScopeInactive: the scope is ending.
            UsageError: it has a tool with this name.
        """
        return self._add(Entry(self, self._tables.tools, name, function), "tool")

    def section(self, name: str, text: str | Callable[[], str]) -> Registration:
        """Give the agent a section for its prompts, to be found in :attr:`sections`.

        Raises:
            ScopeInactive: the scope is ending.
            UsageError: it has a section with this name.
        """
        return self._add(Entry(self, self._tables.sections, name, text), "section")

    def _add(self, entry: Entry, only_one: str = "") -> Registration:
        with self._lock:
            if not self.active:
                raise self._inactive()
            if only_one and entry.word in entry.table:
                raise UsageError(f"{self.name} has a {only_one} {entry.word!r} already")
            self._entries[entry] = None
            entry.enter_locked()
        return entry

    # -- looking -------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether things can be registered: neither it nor a scope around it is ending."""
        scope: Scope | None = self
        while scope is not None:
            if scope._state != ACTIVE:
                return False
            scope = scope._parent
        return True

    @property
    def state(self) -> str:
        """``active``, ``unloading`` or ``disposed``."""
        return self._state

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The tools of the agent by name, those of its plugins included: a copy."""
        with self._lock:
            return {word: next(iter(found)).value for word, found in self._tables.tools.items()}

    @property
    def sections(self) -> dict[str, str]:
        """The prompt sections of the agent by name, in order of registration: a copy."""
        with self._lock:
            found = {word: next(iter(e)).value for word, e in self._tables.sections.items()}
        return {word: text if isinstance(text, str) else text() for word, text in found.items()}

    def emit(self, event: str, *args: Any) -> None:
        """Call the listeners of this agent, in order of registration, on this thread.

        A listener that raises is logged and keeps the event from nobody else.
        """
        with self._lock:
            listeners = list(self._tables.listeners.get(event, ()))
        for entry in listeners:
            if entry.claimed:  # taken back by one that came before
                continue
            try:
                entry.value(*args)
            except KeyboardInterrupt:
                raise
            except BaseException:
                from dsh_actors.observe.logging import get_logger

                get_logger("dsh_actors.agent").exception(
                    "a listener failed", scope=self.name, event_type=event
                )

    # -- the end -------------------------------------------------------------------------------

    def dispose(self) -> Future[None]:
        """End the scope: refuse what is new, take back all that is registered.

        Effects are released at the same time, on other threads. However many callers there are,
        all get one future.

        Returns:
            A future that is done once every set-up and release has ended, also those that had
            begun before; with one ``ExceptionGroup`` of all that went wrong, if anything did.
            Waiting for it within a set-up or a release of this scope raises ``UsageError``.
        """
        work: list[Effect | Plugin] = []
        with self._lock:
            if self._disposed is not None:
                return self._disposed
            future = self._disposed = _Disposed(self)
            self._state = UNLOADING
            self._unfinished += 1
            place = self._place
            if place is not None and not place.claimed:
                # It ends ahead of the scope around it, which waits for it if it ends too.
                place.claimed = True
                place.scope._unfinished += 1
                future.add_done_callback(lambda _: place.scope._left(place, ()))
            for entry in self._entries:
                if entry.claimed:
                    continue
                if isinstance(entry, Entry):
                    entry.leave_locked()
                elif entry.loaded:  # else its loader takes it back
                    entry.claimed = True
                    self._unfinished += 1
                    work.append(entry)
        for each in work:
            if isinstance(each, Plugin):
                self._take_back(each)
            else:
                self._release_apart(each)
        self._left(None, ())
        return future

    def _release_apart(self, effect: Effect) -> None:
        context = copy_context()  # one for each: no two threads may be in the same

        def release() -> None:
            self._left(effect, context.run(effect.release))

        try:
            self._apart(release)
        except RuntimeError:  # no more threads can be started
            release()

    def _begin_load(self, effect: Effect | Plugin) -> None:
        with self._lock:
            if not self.active:
                raise self._inactive()
            self._entries[effect] = None
            self._unfinished += 1

    def _end_load(self, effect: Effect | Plugin) -> bool:
        """Whether it stays; if not, its loader takes it back, and is waited for."""
        with self._lock:
            if not self.active:
                return False
            effect.loaded = True
            self._unfinished -= 1
        return True

    def _left(self, ended: Effect | Plugin | None, failures: Iterable[BaseException]) -> None:
        """Something in progress has ended. The last one ends the scope."""
        with self._lock:
            if ended is not None:
                self._entries.pop(ended, None)
            self._failures.extend(failures)
            self._unfinished -= 1
            if self._unfinished or self._state != UNLOADING:
                return
            self._state = DISPOSED
            self._entries.clear()
            future, failed = self._disposed, self._failures
            self._failures = []
        assert future is not None
        if failed:
            future.try_set_error(group(f"disposing the scope of {self.name}", failed))
        else:
            future.try_set_result(None)

    def _inactive(self) -> ScopeInactive:
        return ScopeInactive(
            f"the scope of {self.name} is ending or has ended, and takes no registrations"
        )

    def __repr__(self) -> str:
        return f"<Scope of {self.name}, {self._state}>"


class _Disposed(Awaited[None]):
    """The end of a scope; not to be waited for by what it waits for."""

    __slots__ = ("_of",)

    def __init__(self, of: Scope | None = None) -> None:  # None in one that is derived
        super().__init__()
        self._of = of

    def _settle(self, timeout: float | None) -> bool:
        for running in inside.get():
            scope: Scope | None = running
            while scope is not None:
                if scope is self._of:
                    raise UsageError(
                        f"the end of the scope of {scope.name} is waited for by a set-up or "
                        "release that it has to wait for itself; do not wait here"
                    )
                scope = scope._parent
        return super()._settle(timeout)


def _on_a_thread(function: Callable[[], None]) -> None:
    threading.Thread(target=function, name="dsh-scope", daemon=True).start()


def _failures_of(ended: Future[None]) -> list[BaseException]:
    error = ended.exception(0)
    return [] if error is None else [error]
