"""Every test of this project runs under the leak check."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _clean(no_leaks: None) -> None:
    """No test may leave a thread, actor, process or file descriptor behind."""
