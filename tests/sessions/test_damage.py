"""Damaged stores: opened, reported, appended to; what is left of them is never wrong."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from session_headers import make_header

from dsh_actors.codec import encode
from dsh_actors.errors import StoreError
from dsh_actors.sessions import Event, SqliteReader, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = 4096
TAIL = 64 * 1024
IDS = [f"s-{number}" for number in range(5)]


class Made(NamedTuple):
    """A sound store: its bytes, and what is in it."""

    data: bytes
    events: dict[str, list[Event]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("sound") / "s.db"
    rng = random.Random(4)
    with SqliteStore(path) as store:
        for name in IDS:
            store.create(make_header(name, options={"args": {"name": name}}))
        for number in range(900):
            # Among them some that need pages of their own.
            size = rng.choice([10, 50, 200, 200, 600, 2000, 9000])
            body = {"n": number, "text": "x" * size}
            store.append(IDS[number % 5 if number % 3 else 0], "custom/step", encode(body))
        for name in IDS[:3]:
            store.set_status(name, "completed")
        assert store.flush(10)
        events = {name: store.load(name).events for name in IDS}
    return Made(path.read_bytes(), events)


def _judge(reader: SqliteReader | SqliteStore, made: Made) -> tuple[int, set[str]]:
    """Make sure that nothing is wrong or silently missing; return what is lost."""
    lost_events, lost_sessions = 0, set()
    listed = {info.id: info for info in reader.list()}
    for name in IDS:
        try:
            log = reader.load(name)
        except StoreError:
            lost_sessions.add(name)
            continue
        assert name in listed
        assert log.header.options == {"args": {"name": name}}
        whole = made.events[name]
        for event, original in zip(log.events, whole, strict=False):
            assert event.seq == original.seq
            if event.type == "damaged":
                assert event.data["problem"]
                lost_events += 1
            else:
                assert event == original
        cut = len(whole) - len(log.events)
        lost_events += cut
        if cut or any(event.type == "damaged" for event in log.events):
            assert log.damage
    return lost_events, lost_sessions


def _examine(path: Path, made: Made) -> None:
    """Read a damaged store, then write to it, then read it again."""
    with SqliteReader(path) as reader:
        lost, headless = _judge(reader, made)
        if lost or headless:
            findings = "\n".join(reader.check())
            assert findings
            for name in headless:
                assert name in findings or "unknown-" in findings
    assert not [name for name in os.listdir(path.parent) if "damaged" in name]
    new = make_header()
    numbers = {}
    with SqliteStore(path) as store:
        store.create(new)
        store.append(new.id, "custom/new", encode(1))
        for name in IDS:
            if name not in headless:
                numbers[name] = store.append(name, "custom/late", encode(name))
        assert store.flush(30), store.failure
    with SqliteReader(path) as reader:
        assert [event.data for event in reader.load(new.id).events] == [1]
        for name, number in numbers.items():
            log = reader.load(name)
            assert log.events[number].data == name
            assert len(log.events) == number + 1
            del log.events[number]
        again, _ = _judge_without_late(reader, made, numbers)
        assert again == lost
        if lost or headless:
            assert reader.check()


def _judge_without_late(
    reader: SqliteReader, made: Made, numbers: dict[str, int]
) -> tuple[int, set[str]]:
    class Before:
        def list(self) -> object:
            return reader.list()

        def load(self, name: str) -> object:
            log = reader.load(name)
            return log._replace(events=log.events[: numbers[name]])

    return _judge(Before(), made)  # type: ignore[arg-type]


def _write(folder: Path, data: bytes) -> Path:
    path = folder / "s.db"
    for name in os.listdir(folder):
        os.unlink(folder / name)
    path.write_bytes(data)
    return path


def _edges(size: int) -> Iterator[int]:
    first = size - TAIL
    for boundary in range(first - first % PAGE + PAGE, size, PAGE):
        yield from (boundary - 1, boundary, boundary + 1)
    yield from (size - 1, size - PAGE // 2)


def test_a_store_cut_off_anywhere_opens_says_what_is_lost_and_goes_on(
    made: Made, tmp_path: Path
) -> None:
    for size in _edges(len(made.data)):
        _examine(_write(tmp_path, made.data[:size]), made)
