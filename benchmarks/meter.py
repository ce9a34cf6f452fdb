"""Small instruments that every measurement shares."""

from __future__ import annotations

import gc
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """The resident memory of this process, in bytes, after a collection."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def seconds(work: Callable[[], object]) -> float:
    """How long *work* takes, in seconds."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def relax_collector() -> None:
    """Collect cyclic garbage less often, as is documented for processes with very many agents.

    The peers in the same row do so, too.
    """
    gc.set_threshold(50_000, 20, 100)
