"""The forest that the tests of the core work on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forest import Forest
from order_rules import violations_at_end

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def forest() -> Iterator[Forest]:
    """Whatever a test does with it: by its end everything ends, and no rule was broken."""
    forest = Forest()
    yield forest
    forest.stop_all()
    forest.complete_all()
    assert violations_at_end(forest) == []
