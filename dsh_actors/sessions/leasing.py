"""Taking sessions and giving them back, as far as the stores have it in common."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from dsh_actors.sessions.ops import Release, StoreBusyError
from dsh_actors.sessions.retry import BUSY_PATIENCE
from dsh_actors.sessions.writer import GroupCommitStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dsh_actors.sessions.store import OnCommit

__all__ = ["LeasedStore"]


class LeasedStore(GroupCommitStore):
    """A store whose sessions have one writer at a time."""

    def _acquire(self, session_ids: list[str]) -> None:
        """Take sessions, all of them or none, on the writer thread between two groups."""
        raise NotImplementedError

    def acquire(self, session_ids: Sequence[str]) -> None:
        """Take sessions, all of them or none; see ``SessionStore.acquire``."""
        self._refuse_in_callback("acquire")
        wanted = list(dict.fromkeys(session_ids))
        deadline = monotonic() + BUSY_PATIENCE
        while True:
            try:
                return self._on_writer(lambda: self._acquire(wanted))
            except StoreBusyError:
                if monotonic() >= deadline:
                    raise

    def release(self, session_id: str, *, on_commit: OnCommit | None = None) -> None:
        """Give a session back; see ``SessionStore.release``."""
        with self._lock:
            self._check_open()
            log = self._logs.get(session_id)
            if log is not None and log.refused is None:
                self._enqueue(Release(log, on_commit))
                return
            # What was taken from us is not ours to give; it may be attached anew.
            self._logs.pop(session_id, None)
        if on_commit is not None:
            on_commit(None)
