"""A Pykka future without a condition variable, for threads and for ``await``.

Most futures are set before anyone waits, so a future holds no lock of its own. One lock,
shared by all futures, guards the short steps from *pending* to *done*; what waits is made on
demand. Nothing inside the shared lock calls Python code or creates an object: no callback, no
collection of garbage and no signal handler can run while it is held.
"""

from __future__ import annotations

import functools
import logging
import queue
import sys
import threading
import time
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import pykka

from dsh_actors.actors import fork
from dsh_actors.actors.bell import LockBell, best_bell
from dsh_actors.actors.fork import next_serial
from dsh_actors.actors.worker import current_worker
from dsh_actors.errors import ForkedSystemError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import TracebackType

    from pykka._types import OptExcInfo

    Callback: TypeAlias = Callable[["Future[Any]"], object]

__all__ = ["Future"]

logger = logging.getLogger("dsh_actors")

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")

_PENDING, _VALUE, _ERROR, _HOOK = range(4)
_shared = allocate_lock()


class _Hook(Generic[T]):
    """The function that computes a derived future, and what it is derived from."""

    __slots__ = ("func", "pulled", "running", "sources")

    def __init__(self, func: Callable[[float | None], T], sources: tuple[Any, ...] | None) -> None:
        self.func = func
        self.sources = sources  # None if they are not known
        self.running = False  # a thread is inside func; guarded by the shared lock
        self.pulled = False  # somebody is bound to run it when the sources are done


class Future(pykka.Future[T]):
    """A value that is available now or later; it is set once.

    Everything of ``pykka.Future`` works (``get``, ``set``, ``map``, ``join``, ...). Beside it,
    ``result`` raises the builtin ``TimeoutError``, ``add_done_callback`` tells without waiting,
    and ``await`` does not block the event loop. A waiter's own time-out always holds, whatever
    other waiters do.
    """

    __slots__ = ("_born", "_content", "_state", "_waiters")

    # pending: None; value: the value; error: (exception, its traceback); hook: a _Hook.
    _content: Any
    # Moves under the shared lock only, and never away from _VALUE or _ERROR.
    _state: int
    # Bells of blocked threads (mapped to None) and keys of callbacks, in order of arrival.
    _waiters: dict[Any, Callback | None] | None
    # Its place in the order of all futures and waits; see the modules fork and bell.
    _born: int

    def __init__(self) -> None:
        self._state = _PENDING
        self._content = None
        self._waiters = None
        self._born = next_serial()

    def __repr__(self) -> str:
        state = ("pending", "value", "error", "derived")[self._state]
        return f"<{type(self).__name__} {state} at {id(self):#x}>"

    # Setting

    def set_result(self, value: T) -> None:
        """Set the value.

        Raises:
            queue.Full: the future is done or derived already.
        """
        if not self._complete(_VALUE, value):
            raise queue.Full

    def set_error(self, error: BaseException) -> None:
        """Set an exception, which every waiter will get raised.

        Raises:
            queue.Full: the future is done or derived already.
        """
        if not self._complete(_ERROR, (error, error.__traceback__)):
            raise queue.Full

    def try_set_result(self, value: T) -> bool:
        """Set the value, unless the future is done or derived already.

        Returns:
            whether this call set it.
        """
        return self._complete(_VALUE, value)

    def try_set_error(self, error: BaseException) -> bool:
        """Set an exception, unless the future is done or derived already.

        Returns:
            whether this call set it.
        """
        return self._complete(_ERROR, (error, error.__traceback__))

    def set(self, value: T | None = None) -> None:
        """Set the value; Pykka's name of :meth:`set_result`."""
        if not self._complete(_VALUE, value):
            raise queue.Full

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Set an exception as ``sys.exc_info()`` gives it.

        Parameters:
            exc_info: type, value and traceback; by default the exception being handled.

        Raises:
            UsageError: there is no exception.
            queue.Full: the future is done or derived already.
        """
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        if error is None:
            if kind is None:
                msg = "set_exception() needs an exc_info tuple, or to be called in an except block"
                raise UsageError(msg)
            error = kind()
        if not self._complete(_ERROR, (error, trace)):
            raise queue.Full

    def set_get_hook(self, func: Callable[[float | None], T]) -> None:
        """Let ``func(timeout)`` compute the value when somebody asks for it.

        Parameters:
            func: is called by one thread at a time, with the seconds that the waiter has left;
                its first success is the value for good, a failure is only that waiter's.

        Raises:
            queue.Full: the future is done already.
        """
        self._set_hook(_Hook(func, None))

    def _set_hook(self, hook: _Hook[T]) -> None:
        with _shared:
            if free := self._state == _PENDING or self._state == _HOOK:
                self._state, self._content = _HOOK, hook
        if not free:
            raise queue.Full

    def _complete(self, state: int, content: Any, *, hook: _Hook[T] | None = None) -> bool:
        """Move to a final state, if the future still is as the caller takes it to be."""
        with _shared:
            if hook is None:
                if self._state != _PENDING:
                    return False
            elif self._content is not hook:
                return False
            self._content = content
            self._state = state
            waiters, self._waiters = self._waiters, None
        if waiters is not None:
            self._tell(waiters)
        return True

    def _tell(self, waiters: dict[Any, Callback | None]) -> None:
        interrupt: KeyboardInterrupt | None = None
        for key, callback in waiters.items():
            if callback is None:
                key.ring()
                continue
            try:
                self._call(callback)
            except KeyboardInterrupt as error:
                interrupt = error  # the others must hear of it first
        if interrupt is not None:
            raise interrupt

    def _call(self, callback: Callback) -> None:
        try:
            callback(self)
        except KeyboardInterrupt:
            raise
        except BaseException:
            logger.exception("A done-callback of a future failed: %r", callback)

    # Getting

    def done(self) -> bool:
        """Tell whether a value or an exception is set.

        A derived future whose hook nobody has run yet is not done.
        """
        return self._state == _VALUE or self._state == _ERROR

    def result(self, timeout: float | None = None) -> T:
        """Wait for the value.

        Parameters:
            timeout: seconds to wait at most; None waits for as long as it takes.

        Returns:
            the value.

        Raises:
            TimeoutError: it was not there in time.
            ForkedSystemError: only the process that forked this one could set it.
            BaseException: the exception that was set instead of a value.
        """
        if self._state != _VALUE and self._state != _ERROR and not self._settle(timeout):
            msg = f"no result within {timeout} seconds"
            raise TimeoutError(msg)
        try:
            return self._outcome()
        finally:
            del self  # else a raised exception and this frame hold each other

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the future is done and give its exception without raising it.

        Parameters:
            timeout: seconds to wait at most.

        Returns:
            the exception, or None if there is a value.

        Raises:
            TimeoutError: it was not done in time.
            ForkedSystemError: only the process that forked this one could set it.
        """
        try:
            if not self.done() and not self._settle(timeout):
                msg = f"not done within {timeout} seconds"
                raise TimeoutError(msg)
        except ForkedSystemError:
            raise
        except Exception as error:
            if self.done() or isinstance(error, TimeoutError | pykka.Timeout):
                raise
            return error  # the hook of a derived future failed: that is its outcome
        return self._content[0] if self._state == _ERROR else None

    def get(self, *, timeout: float | None = None) -> T:
        """Wait for the value as Pykka does it.

        Parameters:
            timeout: seconds to wait at most.

        Returns:
            the value.

        Raises:
            pykka.Timeout: it was not there in time.
            BaseException: as :meth:`result`.
        """
        if self._state != _VALUE and self._state != _ERROR and not self._settle(timeout):
            msg = f"{timeout} seconds"
            raise pykka.Timeout(msg)
        try:
            return self._outcome()
        finally:
            del self

    def _outcome(self) -> T:
        if self._state == _VALUE:
            return cast("T", self._content)
        error: BaseException
        trace: TracebackType | None
        error, trace = self._content
        try:
            # With its first traceback each time, or every raise would leave its frames in it.
            raise error.with_traceback(trace)
        finally:
            del error, trace, self

    def _settle(self, timeout: float | None) -> bool:
        """Wait until the future is done, or run its hook; False if the time is up."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            remaining = None if deadline is None else deadline - time.monotonic()
            hook = self._claim_hook() if self._state == _HOOK else None
            if hook is not None:
                self._run_hook(hook, timeout if remaining is None else max(remaining, 0.0))
            elif not self._wait(remaining):
                return self.done()
        return True

    def _claim_hook(self) -> _Hook[T] | None:
        with _shared:
            if self._state != _HOOK or self._content.running:
                return None
            hook: _Hook[T] = self._content
            hook.running = True
        return hook

    def _run_hook(self, hook: _Hook[T], timeout: float | None) -> None:
        try:
            value = hook.func(timeout)
        except BaseException:
            with _shared:
                hook.running = False
                waiters, self._waiters = self._waiters, None
            self._pass_on(waiters or {})
            raise
        self._complete(_VALUE, value, hook=hook)

    def _pass_on(self, waiters: dict[Any, Callback | None]) -> None:
        """After a failed hook: callbacks stay, blocked threads look again and one runs it."""
        for key, callback in waiters.items():
            if callback is None:
                key.ring()
            elif not self._add_waiter(key, callback):
                self._call(callback)

    def _wait(self, remaining: float | None) -> bool:
        """Sleep until told to look again; False if ``remaining`` seconds passed before."""
        if remaining is not None and remaining <= 0:
            return False
        if self._born < fork.first_serial:
            raise _forked()
        worker = current_worker()
        bell = LockBell() if worker is not None else best_bell(self._born)
        if not self._add_waiter(bell, None):
            bell.close()
            return True
        rung = False
        try:
            if worker is None:
                rung = bell.wait(remaining)
            else:
                worker.begin_wait(self)
                try:
                    rung = bell.wait(remaining)
                finally:
                    worker.end_wait()
        finally:
            # One that is being rung right now is not given back: it goes with its ringer.
            if rung or self._remove_waiter(bell):
                bell.close()
        return rung

    def _add_waiter(self, key: Any, callback: Callback | None) -> bool:
        """Register for the end of the future; False if there is nothing to wait for."""
        fresh: dict[Any, Callback | None] = {}
        with _shared:
            if self._state == _VALUE or self._state == _ERROR:
                return False
            if callback is None and self._state == _HOOK and not self._content.running:
                return False  # the hook came free in between: the caller can run it
            if self._waiters is None:
                self._waiters = fresh
            self._waiters[key] = callback
        return True

    def _remove_waiter(self, key: Any) -> bool:
        with _shared:
            if there := self._waiters is not None and key in self._waiters:
                del self._waiters[key]
        return there

    # Telling

    def add_done_callback(self, callback: Callback) -> None:
        """Call ``callback(future)`` once the future is done: at once if it is done already.

        Parameters:
            callback: runs on the thread that sets the future, outside of any lock, and should
                be short. An exception from it is logged.
        """
        if not self._add_waiter(object(), callback):
            self._call(callback)
        elif self._state == _HOOK:
            self._pull()

    def _pull(self) -> None:
        """See to it that the hook of a derived future runs when its sources are done."""
        with _shared:
            hook = self._content if self._state == _HOOK else None
            if hook is None or hook.pulled:
                return
            hook.pulled = True
        if hook.sources is None:
            # Its function may block for as long as it likes.
            threading.Thread(target=self._evaluate, name="dsh-future", daemon=True).start()
            return
        left = list(hook.sources)

        def advance(_: Future[Any]) -> None:
            if left:
                left.pop().add_done_callback(advance)
            else:
                self._evaluate()

        advance(self)

    def _evaluate(self) -> None:
        try:
            self._settle(None)
        except BaseException as error:
            hook = self._content
            if self._state == _HOOK:
                # A callback has nobody to raise to: here the failure becomes the outcome.
                self._complete(_ERROR, (error, error.__traceback__), hook=hook)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            yield from self._wake_loop()
        return self.result()

    __iter__ = __await__

    def _wake_loop(self) -> Generator[Any, None, None]:
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def release() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def wake(_: Future[Any]) -> None:
            try:
                loop.call_soon_threadsafe(release)
            except RuntimeError:
                if not loop.is_closed():
                    raise  # a closed loop has nobody left who waits

        if self._born < fork.first_serial:
            raise _forked()
        if self._add_waiter(waiter, wake):
            if self._state == _HOOK:
                self._pull()
            try:
                yield from waiter
            finally:
                self._remove_waiter(waiter)

    # Deriving

    def _derive(self, func: Callable[[float | None], M], *others: pykka.Future[Any]) -> Future[M]:
        derived: Future[M] = cast("Future[M]", type(self)())
        sources: tuple[Any, ...] | None = (self, *others)
        if not all(isinstance(source, Future) for source in others):
            sources = None
        derived._set_hook(_Hook(func, sources))
        return derived

    def filter(self: Future[Iterable[J]], func: Callable[[J], bool]) -> Future[Iterable[J]]:
        """Derive a future of the list of those items for which ``func`` is true."""
        return self._derive(lambda timeout: list(filter(func, self.get(timeout=timeout))))

    def join(self, *futures: pykka.Future[Any]) -> Future[Iterable[Any]]:
        """Derive a future of the list of this value and those of ``futures``."""

        def collect(timeout: float | None) -> Iterable[Any]:
            deadline = None if timeout is None else time.monotonic() + timeout
            return [
                future.get(
                    timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0)
                )
                for future in (self, *futures)
            ]

        return self._derive(collect, *futures)

    def map(self, func: Callable[[T], M]) -> Future[M]:
        """Derive a future of ``func`` of the value; it runs on the thread that asks for it."""
        return self._derive(lambda timeout: func(self.get(timeout=timeout)))

    def reduce(self: Future[Iterable[J]], func: Callable[[R, J], R], *args: R) -> Future[R]:
        """Derive a future of the items, combined from the left, from an optional start value."""
        return self._derive(
            lambda timeout: functools.reduce(func, self.get(timeout=timeout), *args)
        )


def _forked() -> ForkedSystemError:
    return ForkedSystemError(
        "this future belongs to the process that forked this one, and is never set here"
    )
