"""Damaged stores: opened, reported, appended to; what is left of them is never wrong."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from dsh_actors.codec import encode
from dsh_actors.errors import StoreError
from dsh_actors.sessions import Event, SqliteReader, SqliteStore
from dsh_actors.sessions.filelock import FileLock
from dsh_actors.testing.store_log_contract import make_header

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
        for number in range(240):
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


def _examine(path: Path, made: Made) -> tuple[int, set[str]]:
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
    return lost, headless


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
    for number, size in enumerate(_edges(len(made.data))):
        path = _write(tmp_path, made.data[:size])
        if number % 4 == 0:
            assert _examine(path, made) != (0, set())
            continue
        with SqliteReader(path) as reader:
            assert _judge(reader, made) == (0, set()) or reader.check()


def test_a_page_of_zeros_anywhere_costs_what_was_on_it_and_no_more(
    made: Made, tmp_path: Path
) -> None:
    size = len(made.data)
    pages = size // PAGE
    total = 0
    # The first pages hold the tables' roots; then a stride through the rest.
    for page in [*range(14), *range(14, pages, 7), pages - 1]:
        data = bytearray(made.data)
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
        lost, headless = _examine(_write(tmp_path, bytes(data)), made)
        total += lost
        # A page has room for so many of the smallest events, and for all five headers.
        assert lost <= PAGE // 40
        assert len(headless) in (0, 5)
    assert total


def test_one_damaged_session_among_five_does_not_break_the_list(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        for name in IDS:
            # With so large a header each session has a page of its own.
            store.create(make_header(name, options={"args": {"text": name * 600}}))
            store.append(name, "custom/step", encode(name))
        assert store.flush(10)
    data = path.read_bytes()
    place = data.index(b"s-2" * 500)
    page = place // PAGE * PAGE
    path.write_bytes(data[:page] + bytes(PAGE) + data[page + PAGE :])
    with SqliteReader(path) as reader:
        listed = {info.id: info for info in reader.list()}
        damaged = {name for name, info in listed.items() if info.damaged}
        assert set(listed) == set(IDS)
        assert "s-2" in damaged
        assert len(damaged) <= 2  # the page may hold the end of another one
        assert [event.data for event in reader.load("s-0").events] == ["s-0"]
        with pytest.raises(StoreError, match=r"'s-2': damaged \(its header was lost"):
            reader.load("s-2")
        assert any("s-2" in finding for finding in reader.check())
    with SqliteStore(path) as store:
        assert {info.id for info in store.list()} == set(IDS)
        for name in damaged:
            assert store.delete(name) == 1
        assert {info.id for info in store.list()} == set(IDS) - damaged
        assert not [info for info in store.list() if info.damaged]
        with SqliteReader(path) as reader:
            assert reader.check() == []


def test_what_is_not_lost_is_not_called_damaged(made: Made, tmp_path: Path) -> None:
    path = _write(tmp_path, made.data)
    with SqliteReader(path) as reader:
        assert reader.check() == []
        assert not reader.is_copy
    with SqliteStore(path):
        pass
    assert os.listdir(tmp_path) == ["s.db"]


def test_the_damaged_file_is_kept_and_what_was_lost_is_on_record(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = made.data[: len(made.data) - 3 * PAGE - 100]
    path = _write(tmp_path, cut)
    with SqliteStore(path) as store:
        assert "it was damaged" in caplog.text
        assert any(info.damaged for info in store.list())
    (kept,) = (name for name in os.listdir(tmp_path) if name != "s.db")
    assert kept.startswith("s.db.damaged-20")
    assert (tmp_path / kept).read_bytes() == cut
    with SqliteReader(path) as reader:
        assert any(kept in finding for finding in reader.check())
        for info in reader.list():
            assert info.damaged == bool(reader.load(info.id).damage)


def test_what_is_in_the_log_of_a_damaged_store_is_saved_too(tmp_path: Path) -> None:
    path, header = tmp_path / "s.db", make_header()
    with SqliteStore(path) as store:
        store.create(header)
        for number in range(200):
            store.append(header.id, "custom/old", encode([number, "x" * 300]))
        store.set_status(header.id, "completed")
    with SqliteStore(path) as store:
        for number in range(50):
            store.append(header.id, "custom/new", encode(number))
        store.release(header.id)
        assert store.flush(10)
        # As a crash would leave it: the newest commits are in the log alone.
        data, log = path.read_bytes(), (tmp_path / "s.db-wal").read_bytes()
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    path = crashed / "s.db"
    path.write_bytes(data[: 15 * PAGE])
    (crashed / "s.db-wal").write_bytes(log)
    with SqliteStore(path) as store:
        store.append(header.id, "custom/last", encode("last"))
        assert store.flush(10)
        events = store.load(header.id).events
    assert [e.data for e in events if e.type == "custom/new"] == list(range(50))
    assert len(events) == 251
    assert events[250].data == "last"


def test_a_store_that_others_have_open_is_not_exchanged_under_them(
    made: Made, tmp_path: Path
) -> None:
    path = _write(tmp_path, made.data)
    with SqliteStore(path) as store:
        store.list()
        lock = FileLock(str(path))
        lock.share(1)  # as another process would
        os.truncate(path, len(made.data) - 10 * PAGE - 7)
        store.append("s-4", "custom/late", encode(1))
        for name in IDS:
            store.load(name)
        with pytest.raises(StoreError, match="another process has it open; end that process"):
            SqliteStore(path)
        lock.release()
        assert store.flush(10), store.failure


def test_damage_under_a_store_that_is_open_loses_nothing_of_what_comes(
    made: Made, tmp_path: Path
) -> None:
    path = _write(tmp_path, made.data)
    errors: list[BaseException | None] = []
    with SqliteStore(path) as store:
        number = store.append("s-0", "custom/before", encode(0), on_commit=errors.append)
        assert store.flush(10)
        assert store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        with open(path, "r+b") as file:
            file.seek(5 * PAGE)
            file.write(bytes(os.path.getsize(path) - 5 * PAGE))
        for _ in range(3):
            store.append("s-0", "custom/after", encode(1), on_commit=errors.append)
        assert store.flush(30), store.failure
        assert errors == [None] * 4
        events = store.load("s-0").events
        assert [event.type for event in events[number + 1 :]] == ["custom/after"] * 3


@pytest.mark.parametrize("step", ["before", "log moved", "file linked"])
def test_an_exchange_that_a_crash_cut_off_is_finished(
    made: Made, tmp_path: Path, step: str
) -> None:
    """The new file is complete beside the damaged one; the exchange stops somewhere."""
    whole = _write(tmp_path, made.data).rename(tmp_path / "s.db.salvaged")
    path = tmp_path / "s.db"
    path.write_bytes(made.data[: 20 * PAGE])
    if step == "before":
        (tmp_path / "s.db-wal").write_bytes(b"old log")
    if step == "file linked":
        os.link(path, tmp_path / "s.db.damaged-20260101-000000")
    with SqliteStore(path) as store:
        assert _judge(store, made) == (0, set())
    assert not whole.exists()


def test_of_sessions_that_left_no_trace_the_pages_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path) as store:
        store.create(make_header())
        assert store.flush(10)
    os.truncate(path, PAGE)
    with SqliteStore(path) as store:
        assert store.list() == []
    with SqliteReader(path) as reader:
        (finding,) = reader.check()
    assert "pages are missing or unreadable; the damaged file is kept as s.db.damaged-" in finding


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_a_store_cut_off_at_every_byte_of_its_end(tmp_path: Path, part: int) -> None:
    """All 65,536 lengths are read; every 64th is also opened for writing, and written to."""
    path = tmp_path / "whole" / "s.db"
    with SqliteStore(path) as store:
        for name in IDS:
            store.create(make_header(name, options={"args": {"name": name}}))
        for number in range(300):
            size = (10, 50, 200, 600, 2000)[number % 7 % 5]
            body = {"n": number, "text": "x" * size}
            store.append(IDS[number % 5], "custom/step", encode(body))
        assert store.flush(10)
        events = {name: store.load(name).events for name in IDS}
    small = Made(path.read_bytes(), events)
    (tmp_path / "cut").mkdir()
    for size in range(len(small.data) - TAIL + part, len(small.data), 16):
        cut = _write(tmp_path / "cut", small.data[:size])
        if size // 16 % 4 == 0:
            _examine(cut, small)
            continue
        with SqliteReader(cut) as reader:
            lost = _judge(reader, small)
            assert lost == (0, set()) or reader.check()
