"""Large values: files beside the database, durable before the commit that names them.

What is stored in the database instead is a stub that no encoded value begins like. The files of a
session are in a folder of its own, named by the hash of its id, each by the hash of its content:
to write a group once more finds them there, and a file that was changed is noticed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dsh_actors.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LARGE", "Blobs", "is_stub"]

LARGE = 256 * 1024
"""Encoded bytes from which on a value goes to a file of its own."""

# 0xC1 is the one byte that msgpack never writes.
_MARK = b"\xc1file:"


def is_stub(data: bytes) -> bool:
    """Whether these are not the data but say in which file they are."""
    return data.startswith(_MARK)


class Blobs:
    """The files of a store's large values.

    Parameters:
        path: the store's file; theirs are in a folder beside it.
    """

    __slots__ = ("folder",)

    def __init__(self, path: str) -> None:
        self.folder = f"{path}.files"

    def write(self, session_id: str, data: bytes) -> bytes:
        """Bring a value to the disk and return the stub to store instead.

        Raises:
            StoreError: it cannot be written.
        """
        from hashlib import sha256

        name = sha256(data).hexdigest()
        folder = self._folder_of(session_id)
        path = os.path.join(folder, name)
        try:
            self._make_folders(folder)
            if not self._is_there(path, len(data)):
                _write_file(path, data)
            # Also if it is there: the attempt that wrote it may have failed right after.
            _sync_folder(folder)
        except OSError as error:
            raise StoreError(
                f"{path}: a large value cannot be written ({error.strerror or error}); make room "
                "and check the rights on the folder"
            ) from error
        return _MARK + name.encode()

    def read(self, session_id: str, stub: bytes) -> bytes | str:
        """Return the value that a stub stands for, or what is wrong with it."""
        from hashlib import sha256

        name = stub[len(_MARK) :].decode("ascii", "replace")
        if len(name) != 64 or not name.isalnum():
            return "its file is not known"
        path = os.path.join(self._folder_of(session_id), name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            return f"its file cannot be read ({path}: {error.strerror or error})"
        if sha256(data).hexdigest() != name:
            return f"its file has been changed ({path})"
        return data

    def remove(self, session_ids: Iterable[str]) -> None:
        """Remove the files of sessions.

        Raises:
            StoreError: some of them cannot be removed.
        """
        from shutil import rmtree

        for session_id in session_ids:
            folder = self._folder_of(session_id)
            try:
                if os.path.isdir(folder):
                    rmtree(folder)
            except OSError as error:
                raise StoreError(
                    f"{folder}: the session is deleted, but its files are not "
                    f"({error.strerror or error}); remove the folder"
                ) from error

    def _folder_of(self, session_id: str) -> str:
        from hashlib import sha256

        return os.path.join(self.folder, sha256(session_id.encode()).hexdigest()[:40])

    def _make_folders(self, folder: str) -> None:
        for made in (self.folder, folder):
            try:
                os.mkdir(made, 0o700)
            except FileExistsError:
                continue
            _sync_folder(os.path.dirname(made))

    @staticmethod
    def _is_there(path: str, size: int) -> bool:
        try:
            return os.stat(path).st_size == size
        except FileNotFoundError:
            return False


def _write_file(path: str, data: bytes) -> None:
    """Write a private file whole or not at all; it is on the disk when this returns."""
    temporary = f"{path}.{os.getpid()}.part"
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
