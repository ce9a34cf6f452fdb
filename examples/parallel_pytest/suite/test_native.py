"""A test that takes its process down, between two that pass."""

import ctypes


def test_before() -> None:
    assert ctypes.sizeof(ctypes.c_int32) == 4


def test_reads_what_is_not_there() -> None:
    ctypes.string_at(0)


def test_after() -> None:
    assert ctypes.sizeof(ctypes.c_int64) == 8
