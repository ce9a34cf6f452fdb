"""The agents of the code census: a coordinator, and one-shot children that count.

The coordinator only looks at names and sizes. Its children, in pooled worker processes, read
and parse; each sends back sums and its ten most complex functions, not one line per function,
so that the coordinator has next to nothing to do and more workers mean less time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from census_count import Census, count_file, describe, display
from census_files import THIRD_PARTY, SourceFile, split, standard_library, walk

import dsh_actors as dsh

if TYPE_CHECKING:
    from census_count import CensusData


class Prompt(TypedDict, total=False):
    """What the coordinator is asked: the folder to count, or nothing for the default."""

    root: str | None


class Chunk(TypedDict):
    """The work of one child. Paths are bytes, since a file's name need not be UTF-8."""

    root: bytes
    paths: list[bytes]


@dsh.behaviour
def count_files(turn: dsh.Turn, chunk: Chunk) -> CensusData:
    """Count some files; one that cannot be read or parsed is a failure in the result."""
    census = Census()
    for path in chunk["paths"]:
        turn.check()
        census.add(count_file(chunk["root"], path))
    return census.data()


@dsh.behaviour
async def census(turn: dsh.Turn, prompt: Prompt | None) -> CensusData:
    """Count all Python files under a folder, by default those of the standard library.

    Raises:
        OSError: the folder is missing, or cannot be listed.
    """
    given = (prompt or {}).get("root")
    root = Path(given) if given else standard_library()
    # The standard library's folder may hold installed packages, which are not part of it. In a
    # folder that was asked for, everything counts.
    total = Census()
    sources = await _find(turn, total, root, skip=() if given else THIRD_PARTY)
    chunks = {}
    for chunk in split(sources):
        job = turn.run(count_files, _message(root, chunk), isolation="pool", restart="transient")
        chunks[job.id] = job, chunk
    turn.progress(done=total.files, total=total.files + len(sources))
    async for job in dsh.as_settled([job for job, _ in chunks.values()]):
        outcome = job.outcome
        if outcome.ok:
            total.add(outcome.value)
        else:
            # The child or its process is gone, so its files were not counted.
            reason = f"the child that was to count it: {outcome.kind}"
            if outcome.error:
                reason += f" ({outcome.error})"
            for source in chunks[job.id][1]:
                total.add_failure(display(source.path), reason)
        turn.progress(done=total.files)
    return total.data()


async def _find(
    turn: dsh.Turn, total: Census, root: Path, *, skip: tuple[str, ...]
) -> list[SourceFile]:
    """Walk the folder; a part of it that cannot be listed counts as one failed file."""
    found: list[SourceFile] = []
    for listing in walk(root, skip=skip):
        found += listing.files
        if listing.error:
            total.add_failure(display(listing.folder), describe(listing.error))
        turn.progress(note=f"found {len(found)} files")
        await turn.sleep(0)  # other turns share this event loop
    return found


def _message(root: Path, sources: list[SourceFile]) -> Chunk:
    return {
        "root": os.fsencode(root),
        "paths": [os.fsencode(source.path) for source in sources],
    }
