"""Run one measurement in this process and print its figures as JSON.

Usage: ``python -m benchmarks.one MODULE:FUNCTION N``
"""

from __future__ import annotations

import importlib
import json
import os
import sys

PEERS = ("xoscar", "trio")

ONE_PROCESSOR = (
    "benchmarks.ours.inline",
    "benchmarks.ours.continuable",
    "benchmarks.peers.threading_actor",
    "benchmarks.peers.trio_peer",
    "benchmarks.peers.raw:handoff",
)
"""What runs on one processor. The threads of one interpreter take turns anyway; on two processors
the time of a hand-off between them varies by a factor of five with where the system puts them,
for us and for the peers alike, which says nothing of either."""


def main(reference: str, n: str) -> int:
    """Run it.

    Returns:
        The exit status; a peer that is not installed is a result, not a failure.
    """
    module, _, function = reference.partition(":")
    if module in ONE_PROCESSOR or reference in ONE_PROCESSOR:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        measure = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        print(json.dumps({"missing": error.name}))
        return 0
    print(json.dumps(measure(int(n))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
