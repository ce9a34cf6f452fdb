"""Which files a census covers, and how they are shared out.

Finding files is cheap (names and sizes only); reading them is left to the children.
"""

from __future__ import annotations

import heapq
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

THIRD_PARTY = ("site-packages", "dist-packages")
"""Folders inside the folder of the standard library that are not part of it."""

CHUNK_BYTES = 256 * 1024
"""Source per chunk: about a quarter of a second of parsing, so that no worker ends late."""

MIN_CHUNKS = 8
"""Even a small folder is worth several workers."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Python file: its path relative to the root, and its size in bytes."""

    path: str
    size: int


def standard_library() -> Path:
    """Return the folder of the standard library of the running interpreter."""
    return Path(sysconfig.get_path("stdlib"))


class Listing(NamedTuple):
    """What one folder holds: its files, or the reason why it cannot be listed."""

    folder: str
    files: list[SourceFile]
    error: OSError | None = None


def walk(root: Path, *, skip: Sequence[str] = ()) -> Iterator[Listing]:
    """List every ``*.py`` file under a folder, folder by folder.

    Links to folders are not followed, so that a loop of links ends. A link to a file counts as
    a file, a broken one too: it is a file that cannot be read.

    Parameters:
        root: the folder.
        skip: names of folders directly under ``root`` that are left out.

    Raises:
        OSError: ``root`` itself is missing, not a folder, or cannot be listed.
    """
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(root / folder) as scan:
                entries = list(scan)
        except OSError as error:
            if not folder:
                raise
            yield Listing(folder, [], error)
            continue
        files: list[SourceFile] = []
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if path not in skip:
                    pending.append(path)
            elif entry.name.endswith(".py") and not entry.is_dir():
                files.append(SourceFile(path, _size(entry)))
        yield Listing(folder, files)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return 0  # the child that tries to read it reports the failure


def split(sources: Iterable[SourceFile], chunks: int | None = None) -> list[list[SourceFile]]:
    """Share files out over chunks of about equal size.

    The largest files go first, each into the lightest chunk so far.

    Parameters:
        sources: the files.
        chunks: how many chunks at most; by default one for every ``CHUNK_BYTES`` bytes.

    Returns:
        The chunks, the heaviest first, none of them empty; files within a chunk by path.
    """
    largest_first = sorted(sources, key=lambda source: (-source.size, source.path))
    if chunks is None:
        total = sum(source.size for source in largest_first)
        chunks = max(MIN_CHUNKS, total // CHUNK_BYTES)
    count = min(chunks, len(largest_first))
    bins: list[list[SourceFile]] = [[] for _ in range(count)]
    lightest = [(0, 0, index) for index in range(count)]  # bytes, files, index
    for source in largest_first:
        size, files, index = lightest[0]
        bins[index].append(source)
        heapq.heapreplace(lightest, (size + source.size, files + 1, index))
    weight = {index: size for size, _, index in lightest}
    heaviest_first = sorted(range(count), key=lambda index: (-weight[index], index))
    return [sorted(bins[index], key=lambda source: source.path) for index in heaviest_first]
