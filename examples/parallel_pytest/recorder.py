"""A pytest plugin that writes down each test as it begins and as it ends, a line each.

A report that is written at the end is lost with a process that crashes. This one tells which
test it was, and what had passed before.
"""

from __future__ import annotations

import json
import os
from typing import Any

_file = open(os.environ["PARALLEL_PYTEST_RECORD"], "a", buffering=1)  # noqa: SIM115 - kept open


def _write(**line: Any) -> None:
    _file.write(json.dumps(line) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins."""
    _write(begins=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """A test's set-up, body or tear-down has ended."""
    if report.when == "call" or report.outcome != "passed":
        _write(
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            seconds=round(report.duration, 4),
            text=report.longreprtext[-4000:] if report.failed else "",
        )


def pytest_runtest_logfinish(nodeid: str) -> None:
    """A test is through."""
    _write(ends=nodeid)
