"""Two stores on one file: who may write, and what becomes of the one who no longer may."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, contextmanager
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from dsh_actors.codec import encode
from dsh_actors.errors import SessionHeld, SessionNotFound, StoreError
from dsh_actors.sessions import SqliteReader, SqliteStore
from dsh_actors.sessions.dbfile import open_for_writing
from dsh_actors.sessions.schema import APPLICATION_ID, MIGRATIONS, VERSION
from dsh_actors.testing.store_log_contract import make_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTHING = encode(None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def first(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path, holder="first") as store:
        yield store


@pytest.fixture
def second(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path, holder="second") as store:
        yield store


def create(store: SqliteStore, count: int = 1) -> list[str]:
    headers = [make_header() for _ in range(count)]
    for header in headers:
        store.create(header)
    assert store.flush(10)
    return [header.id for header in headers]


@contextmanager
def busy_writer(store: SqliteStore) -> Iterator[None]:
    """Keep the writer thread in a callback: what is appended meanwhile becomes one group."""
    is_busy, may_go_on = threading.Event(), threading.Event()

    def wait(error: BaseException | None) -> None:
        is_busy.set()
        may_go_on.wait(30)

    store.create(make_header(), wait)
    assert is_busy.wait(30)
    try:
        yield
    finally:
        may_go_on.set()


def change_holder(path: Path, name: str, change: str) -> None:
    """Change the row of a holder as time, or a crash, would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"UPDATE holders SET {change} WHERE name = ?", (name,))


def silence(path: Path, name: str) -> None:
    """Make a holder look as if it had given no sign of life for a long time."""
    change_holder(path, name, "uptime = uptime - 1000, heartbeat = heartbeat - 1000")


def types(store: SqliteStore, session_id: str) -> list[str]:
    return [event.type for event in store.load(session_id).events]


@pytest.mark.behaviour(99)
def test_what_a_living_one_holds_is_refused_by_name(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    (session,) = create(first)
    for use in (
        lambda: second.acquire([session]),
        lambda: second.append(session, "custom/x", NOTHING),
        lambda: second.set_status(session, "completed"),
        lambda: second.delete(session),
    ):
        with pytest.raises(SessionHeld, match=r"is held by first \(pid \d+ on .+, since") as info:
            use()
        assert "read it, fork it, or end that process first" in str(info.value)
        assert info.value.holder == second.holder_of(session)
    assert second.load(session).events == []  # reading is free
    assert second.load(second.fork(session)).header.forked_from == session
    first.append(session, "custom/first", NOTHING)
    assert first.flush(10)
    assert types(second, session) == ["custom/first"]


def test_a_reader_says_who_holds_what(path: Path, first: SqliteStore) -> None:
    (session,) = create(first)
    with SqliteReader(path) as reader:
        holder = reader.holder_of(session)
        assert holder is not None
        assert holder.name == "first"
        assert reader.holders() == {session: holder}
        change_holder(path, "first", "pid_started = pid_started - 1")
        assert reader.holder_of(session) is None
        assert reader.holders() == {}


@pytest.mark.parametrize(
    "death", ["pid_started = pid_started - 1", "image = 'before the exec'", "boot = 'former x y'"]
)
def test_a_dead_holder_is_taken_over_at_once(
    path: Path, first: SqliteStore, second: SqliteStore, death: str
) -> None:
    """The same pid is there, but it is another process: an identity is more than a pid."""
    session, other = create(first, 2)
    change_holder(path, "first", death)
    second.acquire([session])
    assert second.append(session, "custom/second", NOTHING) == 0
    assert second.flush(10)
    # Had the judgement been wrong, as it is here, nothing of it would be lost.
    errors: list[BaseException | None] = []
    first.append(session, "custom/first", NOTHING, on_commit=errors.append)
    first.append(other, "custom/first", NOTHING, on_commit=errors.append)
    first.flush(10)
    assert isinstance(errors[0], SessionHeld)
    assert errors[1] is None
    assert types(second, session) == ["custom/second"]
    assert types(second, other) == ["custom/first"]


def test_a_silent_holder_is_taken_over_and_fenced(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    taken, kept = create(first, 2)
    for session in (taken, kept, taken):
        first.append(session, "custom/before", NOTHING)
    assert first.flush(10)

    # It wakes up with a group in hand: the events of the session that is gone are refused ...
    answers: dict[str, list[BaseException | None]] = {taken: [], kept: []}
    with busy_writer(first):
        silence(path, "first")
        second.acquire([taken])
        assert second.append(taken, "custom/second", NOTHING) == 2
        assert second.flush(10)
        for session in (kept, taken, kept, taken):
            first.append(session, "custom/late", NOTHING, on_commit=answers[session].append)
    first.flush(10)
    assert answers[kept] == [None, None]
    for error in answers[taken]:
        assert isinstance(error, SessionHeld)
        assert error.holder is not None
        assert error.holder.name == "second"
        assert "was taken over by second (pid " in str(error)
    # ... and so is whatever it still wants to write to it.
    with pytest.raises(SessionHeld, match="was taken over by second"):
        first.append(taken, "custom/later", NOTHING)
    with pytest.raises(SessionHeld, match="is held by second"):
        first.acquire([taken])
    assert types(second, taken) == ["custom/before", "custom/before", "custom/second"]
    assert types(second, kept) == ["custom/before", "custom/late", "custom/late"]


def test_nothing_more_is_taken_once_a_session_is_gone(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    (session,) = create(first)
    silence(path, "first")
    second.acquire([session])
    errors: list[BaseException | None] = []

    def append_another(error: BaseException | None) -> None:
        errors.append(error)
        try:
            first.append(session, "custom/another", NOTHING)
        except SessionHeld as refused:
            errors.append(refused)

    first.append(session, "custom/one", NOTHING, on_commit=append_another)
    first.flush(10)
    assert [error.__class__ for error in errors] == [SessionHeld, SessionHeld]


def test_what_is_still_queued_is_refused_with_its_group(
    path: Path, first: SqliteStore, second: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it kept for the next group, it could be written when the session has come back."""
    monkeypatch.setattr("dsh_actors.sessions.writer.MAX_GROUP", 2)
    (session,) = create(first)
    errors: list[BaseException | None] = []
    with busy_writer(first):
        silence(path, "first")
        second.acquire([session])
        for _ in range(5):
            first.append(session, "custom/late", NOTHING, on_commit=errors.append)
        second.release(session)
        assert second.flush(10)
    first.flush(10)
    assert [error.__class__ for error in errors] == [SessionHeld] * 5
    assert types(second, session) == []


def test_a_lost_session_can_be_acquired_again_where_it_is_now(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    (session,) = create(first)
    silence(path, "first")
    second.acquire([session])
    for _ in range(3):
        second.append(session, "custom/second", NOTHING)
    second.set_status(session, "completed")
    assert second.flush(10)
    errors: list[BaseException | None] = []
    first.append(session, "custom/late", NOTHING, on_commit=errors.append)
    first.flush(10)
    assert "another process, which has let go of it since" in str(errors[0])
    first.acquire([session])
    assert first.append(session, "custom/first", NOTHING) == 3
    assert first.flush(10)
    assert types(first, session) == ["custom/second"] * 3 + ["custom/first"]


def test_there_and_back_between_two_commits_is_noticed(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    """Ours, theirs and ours again looks in the table as if it had always been ours."""
    (session,) = create(first)
    errors: list[BaseException | None] = []
    with busy_writer(first):
        first.append(session, "custom/stale", NOTHING, on_commit=errors.append)
        silence(path, "first")
        second.acquire([session])
        second.append(session, "custom/second", NOTHING)
        second.release(session)
        assert second.flush(10)
        again = threading.Thread(target=first.acquire, args=([session],))
        again.start()
        deadline = monotonic() + 30
        while not first._errands:  # it is to be done before the group is written
            assert monotonic() < deadline
    again.join(30)
    assert first.append(session, "custom/fresh", NOTHING) == 1
    assert first.flush(10)
    assert [error.__class__ for error in errors] == [SessionHeld]
    assert types(first, session) == ["custom/second", "custom/fresh"]


def test_acquire_is_all_or_nothing(path: Path, first: SqliteStore, second: SqliteStore) -> None:
    free, held = create(first, 2)
    first.release(free)
    assert first.flush(10)
    with pytest.raises(SessionHeld, match=held):
        second.acquire([free, held])
    assert second.holder_of(free) is None


def test_the_first_append_takes_a_free_session(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    (session,) = create(first)
    first.release(session)
    assert first.flush(10)
    assert second.append(session, "custom/second", NOTHING) == 0
    assert second.flush(10)
    with pytest.raises(SessionHeld, match="is held by second"):
        first.append(session, "custom/first", NOTHING)


def test_of_two_first_appends_one_is_refused_at_its_commit(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    (session,) = create(first)
    first.release(session)
    assert first.flush(10)
    errors: list[BaseException | None] = []
    with busy_writer(first):
        first.append(session, "custom/first", NOTHING, on_commit=errors.append)  # it was free
        second.append(session, "custom/second", NOTHING)
        assert second.flush(10)
    first.flush(10)
    assert [error.__class__ for error in errors] == [SessionHeld]
    second.release(session)
    assert second.flush(10)
    assert first.append(session, "custom/first", NOTHING) == 1  # and now it is free again
    assert first.flush(10)
    assert types(first, session) == ["custom/second", "custom/first"]


def test_closing_frees_everything(path: Path, second: SqliteStore) -> None:
    with SqliteStore(path) as store:
        sessions = create(store, 100)
        assert len(second.holders()) == 100
    assert second.holders() == {}
    second.acquire(sessions)


def test_deleting_fences_a_silent_holder(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    (session,) = create(first)
    silence(path, "first")
    assert second.delete(session) == 1
    errors: list[BaseException | None] = []
    first.append(session, "custom/late", NOTHING, on_commit=errors.append)
    first.flush(10)
    assert isinstance(errors[0], SessionNotFound)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (0,)
        assert database.execute("SELECT count(*) FROM heads").fetchone() == (0,)


def test_an_idle_holder_beats_and_no_more_than_it_must(path: Path) -> None:
    with SqliteStore(path, lease_ttl=0.3) as store, closing(sqlite3.connect(path)) as database:
        assert store.flush(10)
        (session,) = create(store)
        beats: list[float] = []
        versions: set[int] = set()
        deadline = monotonic() + 30
        while len(beats) < 4:
            assert monotonic() < deadline
            (uptime,) = database.execute("SELECT uptime FROM holders").fetchone()
            if uptime not in beats:
                beats.append(uptime)
            versions.add(database.execute("PRAGMA data_version").fetchone()[0])
        gaps = [later - earlier for earlier, later in pairwise(beats[1:])]
        assert min(gaps) >= 0.099
        assert len(versions) <= len(beats) + 1  # and it writes nothing else
        store.release(session)
        assert store.flush(10)
        assert store._time_to_chore() is None  # without sessions there is nothing to keep


def test_an_idle_holder_learns_of_its_loss_from_its_heartbeat(path: Path) -> None:
    with SqliteStore(path, lease_ttl=0.03, holder="first") as first, SqliteStore(path) as second:
        (session,) = create(first)
        log = first._logs[session]
        with first._lock:  # it cannot go on, and so it cannot beat
            while True:
                try:
                    second.acquire([session])
                    break
                except SessionHeld:
                    continue
        deadline = monotonic() + 30
        while log.refused is None:
            assert monotonic() < deadline
        with pytest.raises(SessionHeld, match="was taken over"):
            first.append(session, "custom/first", NOTHING)


def test_a_busy_writer_beats_too(path: Path) -> None:
    with SqliteStore(path, lease_ttl=0.06) as store:
        (session,) = create(store)
        seen = set()
        deadline = monotonic() + 30
        while len(seen) < 3:
            assert monotonic() < deadline
            store.append(session, "custom/x", NOTHING)
            assert store.flush(10)
            holder = store.holder_of(session)
            assert holder is not None
            seen.add(holder.heartbeat)


def test_one_that_gathers_for_long_beats_too(path: Path) -> None:
    with SqliteStore(path, lease_ttl=0.06, flush_interval=3600) as store:
        (session,) = create(store)
        before = store.holders()[session].heartbeat
        store.append(session, "custom/x", NOTHING)
        deadline = monotonic() + 30
        while store.holders()[session].heartbeat == before:
            assert monotonic() < deadline


def test_a_store_of_the_first_version_is_brought_up_to_date(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(MIGRATIONS[0])
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA user_version = 1")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "INSERT INTO sessions VALUES (7, 's-old', 'a', 'sys', 's-old', NULL, 0, 'm:f', 1.0,"
            " ?, ?, 1, NULL, NULL)",
            (encode({}), encode({})),
        )
        database.execute("INSERT INTO heads VALUES (7, 'active', NULL, 2, 3.0)")
        for seq in range(2):
            database.execute(
                "INSERT INTO events VALUES (7, ?, 2.0, 'custom/old', ?)", (seq, encode(seq))
            )
    with SqliteStore(path) as store:
        assert [(event.seq, event.data) for event in store.load("s-old").events] == [(0, 0), (1, 1)]
        assert store.load("s-old").damage == ()
        assert [info.status for info in store.list()] == ["active"]
        assert store.holder_of("s-old") is None
        store.acquire(["s-old"])
        assert store.append("s-old", "custom/new", NOTHING) == 2
        (new,) = create(store)
        assert set(store.holders()) == {"s-old", new}
        assert types(store, "s-old") == ["custom/old", "custom/old", "custom/new"]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
        fresh = path.with_name("fresh.db")
        open_for_writing(str(fresh)).close()
        with closing(sqlite3.connect(fresh)) as other:
            query = "SELECT name, sql FROM sqlite_master ORDER BY name"
            assert database.execute(query).fetchall() == other.execute(query).fetchall()


def test_a_failed_first_commit_leaves_no_half_known_holder(
    path: Path, first: SqliteStore, second: SqliteStore
) -> None:
    """The key of a row that was rolled back belongs to the next one that is written."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER no BEFORE INSERT ON sessions BEGIN SELECT raise(ABORT, 'no'); END"
        )
        first.create(make_header())
        assert not first.flush(10)
        database.execute("DROP TRIGGER no")
    (theirs,) = create(second)
    assert first.flush(10)
    holders = second.holders()
    assert len(holders) == 2
    assert holders[theirs].name == "second"
    assert first.append(next(iter(set(holders) - {theirs})), "custom/x", NOTHING) == 0
    assert first.flush(10)


def test_only_store_errors_come_out(path: Path, first: SqliteStore, second: SqliteStore) -> None:
    (session,) = create(first)
    first.close(10)
    with pytest.raises(StoreError, match="closed"):
        first.acquire([session])
    with pytest.raises(StoreError, match="closed"):
        first.release(session)
