"""A lock on a store's file as a whole: shared by all who write, alone for one who replaces it.

SQLite's own locks cannot do it: a damaged file is one that SQLite refuses to work with.
"""

from __future__ import annotations

import fcntl
import os
from time import monotonic, sleep

from dsh_actors.errors import StoreError
from dsh_actors.sessions.ops import StoreBusyError

__all__ = ["FileLock"]


class FileLock:
    """The lock of one store, in a small file beside it that is there as long as the store is open.

    Parameters:
        path: the store's file.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        self._path = f"{path}.lock"
        self._descriptor = -1

    def share(self, patience: float) -> None:
        """Hold it together with others.

        Parameters:
            patience: seconds to wait while somebody replaces the file.

        Raises:
            StoreError: the folder cannot be written.
            StoreBusyError: the file is still being replaced.
        """
        deadline = monotonic() + patience
        while True:
            if self._descriptor < 0:
                self._open()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() >= deadline:
                    raise StoreBusyError(
                        f"{self._path}: another process salvages the store; try again later"
                    ) from None
                sleep(0.02)
                continue
            except OSError as error:
                raise StoreError(
                    f"{self._path}: it cannot be locked ({error.strerror}); put the store on a "
                    "local disk with DSH_ACTORS_HOME"
                ) from error
            if self._is_in_place():
                return
            self.forget()  # its last user has removed it in between

    def exclude(self) -> bool:
        """Hold it alone, if nobody else holds it; if somebody does, it may not be held at all."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # also where nothing can be locked
            return False
        return self._is_in_place()

    def release(self) -> None:
        """Give it back. The last one removes the file. Idempotent."""
        if self._descriptor < 0:
            return
        try:
            if self.exclude():
                os.unlink(self._path)
        except OSError as error:
            raise StoreError(f"{self._path}: it cannot be removed ({error.strerror})") from error
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the file, as a forked child does with its parent's lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{self._path}: it cannot be made ({error.strerror}); make the folder writable, "
                "or choose another store with DSH_ACTORS_HOME"
            ) from error

    def _is_in_place(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))
