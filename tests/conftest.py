"""Every test of this project runs under the leak check."""

from __future__ import annotations

import gc

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _clean(no_leaks: None) -> None:
    """No test may leave a thread, actor, process or file descriptor behind."""


def pytest_collection_finish() -> None:
    """Keep what the collection has made out of the collections of garbage after each test.

    The leak check has them look at every object, and thousands of tests are many objects.
    """
    gc.collect()
    gc.freeze()
