"""The threads that run pooled actors.

Runnable actors wait in one queue; a thread takes one, serves a batch of its messages, and puts
it back at the end if there are more. That is all, until a handler blocks. Then:

* A thread that waits for a future, or is inside :meth:`Dispatcher.blocking`, does not count as
  running. If actors wait and no thread is left to run them, one is added. So handlers may ask
  each other to any depth, up to ``max_threads``.
* Nobody adds a thread for a block that is short. ``enter_blocking`` only writes two fields of
  its own thread. A watchdog thread looks every few milliseconds, and only while actors wait
  and no thread is idle; otherwise it sleeps on a lock and costs nothing.
* A handler that blocks without saying so is noticed by its lack of progress, after a longer
  time, which doubles with each thread added for that reason.
* Threads beyond ``threads`` end when they have been superfluous for a while.

At ``max_threads`` a wait for a future that would leave no thread to run actors raises
``UsageError`` in the handler that waits, as nothing might ever end that wait; for other blocks
an error is logged, and the waiting actors run when a block ends.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from _thread import allocate_lock
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from dsh_actors.actors import fork
from dsh_actors.actors.bell import close_descriptors, open_descriptors
from dsh_actors.actors.registry import live_actors
from dsh_actors.actors.worker import Runnable, Worker, current_worker, local
from dsh_actors.errors import ForkedSystemError, SystemClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh_actors.actors.future import Future

__all__ = ["Dispatcher", "default_dispatcher"]

logger = logging.getLogger("dsh_actors")

_TICK = 0.002
_LONGEST_TICK = 0.016
_QUIET_TICKS = 25
_PATIENCE = 0.02
_LONGEST_PATIENCE = 1.0
_KEEP_ALIVE = 1.0


class Dispatcher:
    """Runs pooled actors on a few daemon threads.

    Threads are started when there is something to run.

    Parameters:
        name: begins the names of the threads.
        threads: how many run actors while none of them blocks.
        max_threads: how many there may be when handlers block.
    """

    def __init__(
        self, name: str = "dsh-actors", *, threads: int = 2, max_threads: int = 1024
    ) -> None:
        if not 1 <= threads <= max_threads:
            msg = f"threads must be between 1 and max_threads ({max_threads}), not {threads}"
            raise UsageError(msg)
        self.name, self.threads, self.max_threads = name, threads, max_threads
        self.forked = False
        """True in a forked child of the process that made the dispatcher."""
        self.closed = False
        """True from the begin of :meth:`shutdown` on: no actor may be started here."""
        self._queue: SimpleQueue[Runnable | None] = SimpleQueue()
        # Replaced by what refuses, so that submit has nothing to check.
        self._put: Callable[[Runnable], None] = self._queue.put
        # Threads inside queue.get; a dict for its atomic operations.
        self._idle: dict[Worker, None] = {}
        # Guards _threads, and every decision to start one or to end.
        self._lock = threading.RLock()  # reentrant: a finaliser that tells may get in
        self._threads: dict[Worker, None] = {}
        self._count = 0
        self._patience = _PATIENCE
        self._scarce = 0.0  # when all threads were in use last, in monotonic seconds
        self._full_reported = False
        self._ended = False  # no thread is left to watch
        self._watchdog: threading.Thread | None = None
        # Held while the watchdog is awake; the bell wakes it.
        self._watching = allocate_lock()
        self._bell = allocate_lock()
        self._bell.acquire()
        _all.add(self)

    def __repr__(self) -> str:
        return f"<Dispatcher {self.name!r}, {len(self._threads)} threads>"

    def submit(self, actor: Runnable) -> None:
        """Have an actor run. It must not be queued or running already.

        Raises:
            SystemClosed: the dispatcher is shut down.
            ForkedSystemError: it belongs to the process that forked this one.
        """
        self._put(actor)
        if not self._idle and not self._watching.locked():
            self._attend()

    def enter_blocking(self) -> None:
        """Say that this thread may be busy with something else than actors for a while.

        If it is a dispatcher thread, others will run the actors that wait meanwhile. Follow it
        by :meth:`exit_blocking`. It may be nested, and costs about as much as a method call.
        """
        worker = local.worker
        if worker is not None:
            worker.blocking += 1
            worker.progress += 1

    def exit_blocking(self) -> None:
        """Say that what :meth:`enter_blocking` announced is over."""
        worker = local.worker
        if worker is not None:
            worker.blocking -= 1
            worker.progress += 1

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Bracket code that may block: ``with dispatcher.blocking(): ...``."""
        self.enter_blocking()
        try:
            yield
        finally:
            self.exit_blocking()

    # The work of a thread

    def _work(self, me: Worker) -> None:
        queue, idle = self._queue, self._idle
        get, empty, watching = queue.get, queue.empty, self._watching
        while True:
            idle[me] = None
            try:
                actor = get() if len(self._threads) <= self.threads else self._get_or_end(me)
            finally:
                del idle[me]
            if actor is None:
                if self._end(me):
                    return
                continue
            if not idle:
                if len(self._threads) > self.threads:
                    self._scarce = time.monotonic()
                if not watching.locked() and not empty():
                    self._attend()
            me.actor = actor
            while True:
                me.progress += 1
                if not actor.serve():
                    break
                if not empty():
                    queue.put(actor)
                    break
                # Alone: handing it to another thread would only cost a switch.
            # An idle thread must not keep the last actor that it ran alive.
            me.actor = None
            del actor

    def _get_or_end(self, me: Worker) -> Runnable | None:
        """Take an actor, or None if this thread is superfluous."""
        if len(self._idle) > self.threads and time.monotonic() - self._scarce > _KEEP_ALIVE:
            # Idle threads take turns, so under a light load none would ever time out.
            with contextlib.suppress(Empty):
                return self._queue.get(False)
            return None
        try:
            return self._queue.get(True, _KEEP_ALIVE)
        except Empty:
            return None

    def _end(self, me: Worker) -> bool:
        with self._lock:
            if not self.closed and len(self._threads) <= self.threads:
                return False
            del self._threads[me]
            if self.closed and self._threads:
                self._queue.put(None)  # for the next one
            if len(self._threads) <= self.threads:
                self._patience = _PATIENCE
        if self._is_short() and not self.closed:
            self._attend()  # a sender took this thread for an idle one
        return True

    # Threads on demand

    def _attend(self) -> None:
        """Actors wait and no thread is idle: start the first threads, or wake the watchdog."""
        if len(self._threads) < self.threads:
            with self._lock:
                if len(self._threads) < self.threads and not self.closed:
                    self._start_thread()
                    return
        if self._watching.acquire(False):
            if self._watchdog is None:
                watchdog = threading.Thread(
                    target=self._watch, name=f"{self.name}-watchdog", daemon=True
                )
                try:
                    watchdog.start()
                except BaseException:
                    self._watching.release()
                    raise
                self._watchdog = watchdog
            self._bell.release()

    def _start_thread(self) -> None:
        if not self._count:
            open_descriptors(self)
        self._count += 1
        worker = Worker(self, f"{self.name}-{self._count}")
        self._threads[worker] = None
        try:
            worker.start()
        except BaseException:
            del self._threads[worker]
            raise

    def _watch(self) -> None:
        while True:
            self._bell.acquire()
            quiet = busy = 0
            # It stays awake for a while: waking it for each short block would cost more.
            while quiet < _QUIET_TICKS and not self._ended:
                if not self._is_short():
                    quiet += 1
                else:
                    quiet = 0
                    busy = 0 if self._relieve() else busy + 1
                # Where actors wait only because there is much to do, it looks less often.
                time.sleep(_TICK if busy < _QUIET_TICKS else _LONGEST_TICK)
            self._watching.release()
            if self._ended:
                return
            if self._is_short() and self._watching.acquire(False):
                self._bell.release()

    def _is_short(self) -> bool:
        return not self._idle and not self._queue.empty()

    def _relieve(self) -> bool:
        """Add a thread if actors wait and none is running.

        Returns:
            whether all threads are blocked.
        """
        with self._lock:
            if not self._is_short() or self.forked:
                return False
            now = time.monotonic()
            running = undeclared = False
            for worker in self._threads:
                if worker.sleeps():
                    continue
                progress, since = worker.seen
                if worker.progress != progress:
                    worker.seen = (worker.progress, now)
                    running = True
                elif now - since < (_TICK / 2 if worker.blocking else self._patience):
                    running = True
                else:
                    undeclared |= not worker.blocking
            if running:
                self._full_reported = False
                return False
            self._grow()
            if undeclared:
                self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        return True

    def _grow(self) -> None:
        if len(self._threads) >= self.max_threads:
            if not self._full_reported:
                self._full_reported = True
                logger.error(
                    "Dispatcher %s: all of its %d threads are blocked and it may start no more; "
                    "%d actors wait until one goes on. Block less, or raise max_threads.",
                    self.name,
                    self.max_threads,
                    self._queue.qsize(),
                )
            return
        self._scarce = time.monotonic()
        try:
            self._start_thread()
        except RuntimeError:
            logger.exception("Dispatcher %s cannot start a thread", self.name)

    def _refuse_last_wait(self, me: Worker, future: Future[Any]) -> None:
        with self._lock:
            # Said under the lock, or the last two threads would each take the other for running.
            me.waiting = future
            if self._idle or not all(worker.sleeps() for worker in self._threads):
                return
            me.waiting = None
        msg = (
            f"all {self.max_threads} threads of the dispatcher {self.name!r} would wait for other "
            "actors: ask less deeply, or without blocking, or raise max_threads"
        )
        raise UsageError(msg)

    # The end

    def shutdown(self, timeout: float | None = None) -> bool:
        """Stop the actors that still run here, in front of their messages, and end the threads.

        Parameters:
            timeout: seconds to wait at most for handlers that run.

        Returns:
            True if all actors and threads ended. Otherwise some handler is still running; its
            actor is closed, what waited for it is refused, and its thread ends when it returns.

        Raises:
            UsageError: a thread of this dispatcher called it.
            ForkedSystemError: it belongs to the process that forked this one.
        """
        if self.forked:
            _refuse_forked(None)
        if current_worker() in self._threads:
            msg = f"{self!r} cannot be shut down by one of its own actors"
            raise UsageError(msg)
        deadline = None if timeout is None else time.monotonic() + timeout

        def remaining() -> float | None:
            return None if deadline is None else max(deadline - time.monotonic(), 0.0)

        self.closed = True
        ends = [(actor, actor.end_now()) for actor in live_actors() if actor.dispatcher is self]
        complete = True
        for actor, end in ends:
            try:
                end.exception(remaining())
            except TimeoutError:
                complete = False
                actor.discard_waiting()
        self._put = self._refuse_closed
        self._queue.put(None)
        for thread in list(self._threads):
            thread.join(remaining())
            complete = complete and not thread.is_alive()
        self._ended = True
        if self._watchdog is not None:
            if self._watching.acquire(False):
                self._bell.release()
            self._watchdog.join(remaining())
        close_descriptors(self)
        return complete

    def check_open(self) -> None:
        """Raise what :meth:`submit` would raise if the dispatcher takes no actors any more."""
        if self.forked:
            _refuse_forked(None)
        if self.closed:
            self._refuse_closed(None)

    def _refuse_closed(self, _: Runnable | None) -> NoReturn:
        msg = f"the dispatcher {self.name!r} is shut down"
        raise SystemClosed(msg)

    def _poison(self) -> None:
        self.forked = True
        self._put = _refuse_forked
        self._threads.clear()
        self._idle.clear()


def _refuse_forked(_: Any) -> NoReturn:
    msg = "this dispatcher belongs to the process that forked this one: make one here"
    raise ForkedSystemError(msg)


_all: weakref.WeakSet[Dispatcher] = weakref.WeakSet()
_default: Dispatcher | None = None
_default_lock = threading.RLock()


def default_dispatcher() -> Dispatcher:
    """Give the dispatcher of actors that name none; it is made at the first use."""
    global _default
    dispatcher = _default
    if dispatcher is None or dispatcher.closed:
        with _default_lock:
            dispatcher = _default
            if dispatcher is None or dispatcher.closed:
                dispatcher = _default = Dispatcher()
    return dispatcher


@fork.in_child
def _forget() -> None:
    global _default, _default_lock
    _default, _default_lock = None, threading.RLock()
    for dispatcher in list(_all):
        dispatcher._poison()
