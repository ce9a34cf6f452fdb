"""Tests that pass."""

import math

import pytest


@pytest.mark.parametrize("number", range(12))
def test_a_square_root(number: int) -> None:
    assert math.isclose(math.sqrt(number) ** 2, number)


def test_the_greatest_common_divisor() -> None:
    assert math.gcd(12, 18) == 6
