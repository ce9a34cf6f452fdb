"""A test that fails, one that is skipped, and one whose fixture is broken."""

import pytest


def test_upper() -> None:
    assert "straße".upper() == "STRASSE"


def test_that_is_wrong() -> None:
    assert "ß".upper() == "ß"


@pytest.mark.skip(reason="nobody has time for it")
def test_later() -> None:
    raise NotImplementedError


@pytest.fixture
def broken() -> str:
    raise OSError("no such service")


def test_with_a_broken_fixture(broken: str) -> None:
    assert broken
