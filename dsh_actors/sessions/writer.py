"""The queue in front of a store and the one thread that commits what is in it, in groups.

Many threads append, one thread writes. Whatever has been queued while a commit was running is
the next group, so that under load the cost of a disk flush is shared by thousands of events and
an idle store commits a single one at once.

Two rules make the log trustworthy. A number is given and its event is queued under one lock, so
the order in the queue is the order of the numbers. A group that could not be written is kept, in
front of everything that came later, until it is written or the store is closed.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from dsh_actors.errors import ForkedSystemError, SessionHeld, StoreError
from dsh_actors.sessions.errands import Errand
from dsh_actors.sessions.intake import MAX_WAITING, MAX_WAITING_WHILE_FAILING, Intake, size_of
from dsh_actors.sessions.observers import report
from dsh_actors.sessions.ops import Log, RefusedError, StoreBusyError, log_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from dsh_actors.sessions.ops import Ops

__all__ = ["GroupCommitStore"]

T = TypeVar("T")

MAX_GROUP = 16_384
"""How many operations one commit takes, so that its callbacks do not wait too long."""


class GroupCommitStore(Intake):
    """The writing half of a store. A subclass says how a group is committed.

    Parameters:
        name: what to call it in errors, e.g. the path of its file.
        flush_interval: the shortest time between two commits, in seconds. 0 commits as soon as
            there is something; more makes larger groups and later confirmations.
    """

    # -- for the subclass ---------------------------------------------------------------------

    def _commit(self, group: Ops) -> None:
        """Write a group, wholly or not at all, on the writer thread.

        Raises:
            RefusedError: some of its sessions can never be written.
            StoreBusyError: somebody else holds the store.
            StoreError: it could not be written now.
        """
        raise NotImplementedError

    def _release(self) -> None:
        """Release files and connections, after the last write."""
        raise NotImplementedError

    def _time_to_chore(self) -> float | None:
        """Seconds until ``_do_chore`` is due in an idle store, or None. With the lock."""
        return None

    def _do_chore(self) -> None:
        """Do what an idle store does now and then, on the writer thread."""

    # -- waiting ------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what was accepted is durable; see ``SessionStore.flush``."""
        self._refuse_in_callback("flush")
        deadline = None if timeout is None else monotonic() + timeout
        with self._lock:
            self._check_fork()
            target, attempt, lost = self._accepted, self._attempts.number, self._lost
            while self._settled < target:
                if self._attempts.failed > attempt or self._ended:
                    return False
                self._urgent = True
                self._unpark()
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return False
                self._done.wait(left)
            return self._lost == lost

    def close(self, timeout: float | None = 10.0) -> bool:
        """Write what is queued and end; see ``SessionStore.close``."""
        self._refuse_in_callback("close")
        deadline = None if timeout is None else monotonic() + timeout
        with self._lock:
            if self._forked:
                return True  # nothing here belongs to this process
            if self._refusal is None:
                self._refusal = (
                    StoreError,
                    f"{self._name}: the session store is closed; open it again to write",
                )
                self._set_room()
                self._closing, self._give_up_at = True, deadline
                if self._thread is None:
                    self._ended = True
                    self._release()
            while not self._ended:
                self._unpark()
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return False
                self._done.wait(left)
            thread = self._thread
        if thread is not None:
            thread.join(None if deadline is None else max(0.1, deadline - monotonic()))
        return self._lost == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _refuse_in_callback(self, verb: str) -> None:
        if self._is_writer():
            raise StoreError(
                f"{self._name}: {verb} was called in an on_commit callback or a listener, which "
                "the writer waits for; call it from another thread"
            )

    def _on_writer(self, work: Callable[[], T]) -> T:
        """Have something done on the writer thread, between two groups, and wait for it."""
        errand = Errand(work)
        with self._lock:
            self._check_open()
            if self._thread is None:
                self._start_writer()
            self._errands.append(errand)
            self._unpark()
            while not errand.done:
                self._done.wait()
        return errand.outcome()

    # -- forks --------------------------------------------------------------------------------

    def _after_fork(self, parent: int) -> None:
        """In a forked child: the writer thread is not here, and a lock may be held for ever."""
        self._make_locks()
        self._forked = True
        self._refusal = (
            ForkedSystemError,
            f"{self._name}: the session store belongs to process {parent}, from which this one "
            "was forked; open a store of its own here",
        )
        self._set_room()

    def _check_fork(self) -> None:
        if self._forked:
            self._check_open()

    # -- the writer thread --------------------------------------------------------------------

    def _run(self) -> None:
        while self._take_group():
            self._tend()
            error = self._try_commit()
            if error is None:
                self._observers.confirm(self._group, None)
                self._forget_ended()
                self._settle()
            elif self._must_give_up(error):
                with self._lock:
                    self._group += self._queue
                    self._queue = []
                    self._move_bytes(self._queue_bytes)
                self._observers.confirm(self._group, error)
                self._settle(lost=len(self._group))
        try:
            self._release()
        except StoreError as error:
            report(self._name, "closing it failed", error)
        with self._lock:
            self._ended = True
            self._done.notify_all()

    def _take_group(self) -> bool:
        """Wait until there is something to do; False at the end of all work."""
        with self._lock:
            while True:
                if self._closing and not (self._group or self._queue or self._errands):
                    return False
                wait = self._time_to_wait()
                if wait is not None and wait <= 0:
                    break
                self._parked = True
                self._wake.wait(wait)
                self._parked = False
            room = MAX_GROUP - len(self._group)
            if room >= len(self._queue):
                if self._group:
                    self._group += self._queue
                    self._queue = []
                else:
                    self._group, self._queue = self._queue, []
                self._move_bytes(self._queue_bytes)
            elif room > 0:
                # About its share; what is too little now is made up for with the rest.
                self._move_bytes(self._queue_bytes * room // len(self._queue))
                self._group += self._queue[:room]
                del self._queue[:room]
            self._attempts.number += 1
            self._urgent = False
            self._begun_closing = self._closing
            return True

    def _time_to_wait(self) -> float | None:
        """Seconds until the next attempt; None for as long as nothing happens. With the lock."""
        if self._errands:
            return 0.0
        chore = self._time_to_chore() if not self._group else None
        if not self._group and not self._queue:
            return chore
        wait = self._attempts.wait(
            monotonic(), urgent=self._urgent, closing=self._closing, more=bool(self._queue)
        )
        # However long it gathers; while it cannot write there is no use in chores.
        return wait if chore is None else min(wait, chore)

    def _tend(self) -> None:
        """Do what has to be done between two groups."""
        with self._lock:
            errands, self._errands = self._errands, []
        for errand in errands:
            errand.run()
        if errands:
            with self._lock:
                self._done.notify_all()
        if not self._group:
            try:
                self._do_chore()
            except Exception as error:  # the only writer must not die of anything
                report(self._name, "a chore of an idle store failed", error)

    def _try_commit(self) -> StoreError | None:
        """Commit the group in hand, without what has to be refused."""
        while self._group:
            try:
                self._commit(self._group)
            except RefusedError as refused:
                self._drop_refused(refused.errors)
                continue
            except StoreError as error:
                return self._note_failure(error)
            except BaseException as error:  # the only writer must not die of anything
                wrapped = StoreError(f"{self._name}: {error.__class__.__name__}: {error}")
                wrapped.__cause__ = error
                return self._note_failure(wrapped)
            break
        self._attempts.succeed(monotonic())
        if self._limit != MAX_WAITING:
            with self._lock:
                self._set_limit(MAX_WAITING)
        return None

    def _note_failure(self, error: StoreError) -> StoreError:
        with self._lock:
            news = self._attempts.fail(error, monotonic())
            if self._attempts.failed == self._attempts.number:
                self._set_limit(MAX_WAITING_WHILE_FAILING)
            self._done.notify_all()
        if news:
            why = str(error).removeprefix(f"{self._name}: ")
            report(self._name, f"{why}; the write is kept and will be tried again")
        return error

    def _must_give_up(self, error: StoreError) -> bool:
        """Whether a failed group is lost: at a close, unless a moment's patience may help."""
        with self._lock:
            if not self._begun_closing:
                return False
            if not isinstance(error, StoreBusyError):
                return True
            return self._give_up_at is not None and monotonic() >= self._give_up_at

    def _drop_refused(self, errors: dict[Log, StoreError]) -> None:
        with self._lock:
            for log, error in errors.items():
                log.refused = error
                if isinstance(error, SessionHeld) and not log.token:
                    self._logs.pop(log.id, None)  # it never was ours; it may be, another time
            dropped = [op for op in self._group if log_of(op) in errors]
            self._group = [op for op in self._group if log_of(op) not in errors]
            # And what comes after them: nothing of a refused session is ever queued again, so
            # that nothing of it can be written should the session become ours once more.
            late = [op for op in self._queue if log_of(op) in errors]
            if late:
                self._queue = [op for op in self._queue if log_of(op) not in errors]
                self._queue_bytes -= sum(map(size_of, late))
        dropped += late
        for op in dropped:
            self._observers.confirm((op,), errors[log_of(op)])
        with self._lock:
            self._settled += len(dropped)
            self._lost += len(dropped)

    def _forget_ended(self) -> None:
        """Drop logs of ended sessions that have nothing queued, so that memory stays flat."""
        ended = [op.log for op in self._group if not isinstance(op, tuple) and not op.log.token]
        if not ended:
            return
        with self._lock:
            queued = {log_of(op) for op in self._queue}
            for log in ended:
                if not log.token and log not in queued and log.refused is None:
                    self._logs.pop(log.id, None)
            self._forgotten += 1

    def _settle(self, lost: int = 0) -> None:
        with self._lock:
            self._settled += len(self._group)
            self._lost += lost
            self._group = []
            self._group_bytes = 0
            self._set_room()
            self._done.notify_all()
