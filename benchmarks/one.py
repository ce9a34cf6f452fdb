"""Run one measurement in this process and print its figures as JSON.

Usage: ``python -m benchmarks.one MODULE:FUNCTION N``
"""

from __future__ import annotations

import importlib
import json
import sys

PEERS = ("xoscar", "trio")


def main(reference: str, n: str) -> int:
    """Run it.

    Returns:
        The exit status; a peer that is not installed is a result, not a failure.
    """
    module, _, function = reference.partition(":")
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
