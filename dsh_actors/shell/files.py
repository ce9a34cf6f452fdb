"""Where output goes that is too much for memory: a private folder that ends with its owner."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from dsh_actors.processes.identity import ProcessId

__all__ = ["SpillFolder"]


class SpillFolder:
    """A folder for the files of one executor, made with the first of them.

    Its name says which process it belongs to. What processes have left behind that were killed
    is removed by the next one that makes such a folder.

    Parameters:
        name: a word in the folder's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._path: Path | None = None

    def create(self, name: str) -> tuple[int, str]:
        """Make a file, readable by its user alone.

        Returns:
            Its descriptor and its path.

        Raises:
            OSError: it cannot be made.
        """
        if self._path is None:
            parent = self._parent()
            self._sweep(parent)
            me = ProcessId.of(os.getpid()) or ProcessId(os.getpid(), 0.0)
            prefix = f"{me.pid}-{me.start_time:.2f}-{self._name}-"
            self._path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        path = self._path / name
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags, 0o600), str(path)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None

    @staticmethod
    def _parent() -> Path:
        parent = Path(tempfile.gettempdir(), f"dsh-actors-{os.getuid()}", "shell")
        for folder in (parent.parent, parent):
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                found = folder.lstat()
                if found.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
                    raise PermissionError(
                        1, "the folder for output belongs to somebody else", str(folder)
                    ) from None
        return parent

    @staticmethod
    def _sweep(parent: Path) -> None:
        for folder in parent.iterdir():
            pid, _, rest = folder.name.partition("-")
            started, _, _ = rest.partition("-")
            try:
                owner = ProcessId(int(pid), float(started))
            except ValueError:
                continue  # none of ours
            found = ProcessId.of(owner.pid)
            if found is None or abs(found.start_time - owner.start_time) > 0.011:
                shutil.rmtree(folder, ignore_errors=True)
