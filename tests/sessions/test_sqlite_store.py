"""What only the store on disk has to do: files, other processes, a disk that refuses."""

from __future__ import annotations

import multiprocessing as mp
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from dsh_actors.codec import encode
from dsh_actors.errors import ForkedSystemError, SessionHeld, SessionNotFound, StoreError
from dsh_actors.sessions import SqliteStore, default_store_path, state_dir
from dsh_actors.sessions.schema import VERSION
from dsh_actors.testing.store_log_contract import make_header

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = encode({})


def _sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def _types(store: SqliteStore, session_id: str) -> list[str]:
    return [event.type for event in store.load(session_id)[1]]


def test_a_reopened_store_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, header = tmp_path / "s.db", make_header(options={"isolation": "pool"})
    with SqliteStore(path) as store:
        store.create(header)
        store.append(header.id, "turn/start", NOTHING)
    with SqliteStore(path) as store:
        assert store.append(header.id, "turn/end", NOTHING) == 1
        store.set_status(header.id, "completed")
        assert store.flush(10)
        assert store.load(header.id)[0] == header
        assert _types(store, header.id) == ["turn/start", "turn/end"]
        (info,) = store.list()
        assert (info.status, info.events) == ("completed", 2)
    assert os.listdir(tmp_path) == ["s.db"]  # the write-ahead log is folded in at the close


def test_a_confirmed_event_survives_the_kill_of_its_process(tmp_path: Path) -> None:
    path, header = tmp_path / "s.db", make_header()
    code = (
        "import os, signal, sys\n"
        "from dsh_actors.sessions import SessionHeader, SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.create(SessionHeader(sys.argv[2], 'a', 's', sys.argv[2], None, 0, 'm:f', 1.0))\n"
        "def die(error):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.append(sys.argv[2], 'prompt/accepted', b'\\x80', on_commit=die)\n"
        "store.flush(30)\n"
    )
    package = os.path.dirname(os.path.dirname(sys.modules["dsh_actors"].__file__ or ""))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), header.id],
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": package},
    )
    assert done.returncode == -9
    with SqliteStore.open_readonly(path) as reader:
        assert [event.type for event in reader.load(header.id)[1]] == ["prompt/accepted"]
    with SqliteStore(path) as store:
        assert store.append(header.id, "custom/next", NOTHING) == 1


def test_file_and_folders_are_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "s.db"
    with SqliteStore(path):
        for made, mode in ((path, 0o600), (path.parent, 0o700), (path.parent.parent, 0o700)):
            assert stat.S_IMODE(made.stat().st_mode) == mode


def test_a_reader_sees_what_a_live_writer_has_committed(
    sqlite_store: SqliteStore,
) -> None:
    header = make_header()
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    with SqliteStore.open_readonly(sqlite_store.path) as reader:
        assert [info.events for info in reader.list()] == [0]
        sqlite_store.append(header.id, "custom/a", NOTHING)
        assert sqlite_store.flush(10)
        assert [info.events for info in reader.list()] == [1]
        assert reader.resolve(header.id[:20]) == header.id
        assert reader.check() == []
        with pytest.raises(SessionNotFound):
            reader.load("s-nope")
    with pytest.raises(StoreError, match="closed"):
        reader.list()


def test_a_reader_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none\.db: there is no session store; it is made by"):
        SqliteStore.open_readonly(tmp_path / "none.db")
    assert os.listdir(tmp_path) == []
    path = tmp_path / "odd name ?#%.db"
    with SqliteStore(path):
        pass
    with SqliteStore.open_readonly(path) as reader:
        assert reader.list() == []


def test_what_is_not_a_session_store_is_left_alone(tmp_path: Path) -> None:
    other, junk, folder = tmp_path / "other.db", tmp_path / "junk.db", tmp_path / "folder"
    _sql(other, "CREATE TABLE t (x)")
    junk.write_bytes(b"not a database at all, but long enough to be one" * 50)
    folder.mkdir()
    before = other.read_bytes(), junk.read_bytes()
    with pytest.raises(StoreError, match=r"other\.db: it is a database of another program"):
        SqliteStore(other)
    with pytest.raises(StoreError, match=r"junk\.db: it is not a session store; move it away"):
        SqliteStore(junk)
    with pytest.raises(StoreError, match="folder: it is a folder; give the path of a file"):
        SqliteStore(folder)
    with pytest.raises(StoreError, match=r"cannot be created .*check the rights"):
        SqliteStore(other / "s.db")
    assert (other.read_bytes(), junk.read_bytes()) == before


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SqliteStore(path).close()
    _sql(path, f"PRAGMA user_version = {VERSION + 1}")
    for open_store in (SqliteStore, SqliteStore.open_readonly):
        with pytest.raises(StoreError, match=f"of version {VERSION + 1} .* update dsh-actors"):
            open_store(path)


def test_a_damaged_store_says_so(tmp_path: Path) -> None:
    path, header = tmp_path / "s.db", make_header()
    with SqliteStore(path) as store:
        store.create(header)
        for _ in range(3):
            store.append(header.id, "custom/a", NOTHING)
    _sql(path, "DELETE FROM events WHERE seq = 1")
    with SqliteStore.open_readonly(path) as reader:
        assert reader.list()[0].events == 3
        log = reader.load(header.id)
    assert [event.type for event in log.events] == ["custom/a", "damaged", "custom/a"]
    assert log.damage == ("event 1 is missing",)
    _sql(path, "UPDATE events SET data = x'c1' WHERE seq = 0")
    with SqliteStore.open_readonly(path) as reader:
        log = reader.load(header.id)
    assert log.events[0].data == {"problem": "it was changed on the disk"}
    assert log.damage == ("event 0 is damaged: it was changed on the disk", "event 1 is missing")


@pytest.mark.behaviour(100)
def test_a_full_disk_keeps_the_group_and_the_next_attempt_writes_it(
    sqlite_store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    header = make_header()
    errors: list[BaseException | None] = []
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    pages = sqlite_store._connection.execute("PRAGMA page_count").fetchone()[0]
    sqlite_store._connection.execute(f"PRAGMA max_page_count = {pages}")
    sqlite_store.append(header.id, "custom/big", encode("x" * 100_000), on_commit=errors.append)
    assert not sqlite_store.flush(10)
    assert "the disk is full; make room" in str(sqlite_store.failure)
    assert errors == []  # neither confirmed nor given up
    sqlite_store._connection.execute("PRAGMA max_page_count = 1000000")
    sqlite_store.append(header.id, "custom/next", NOTHING, on_commit=errors.append)
    assert sqlite_store.flush(10)
    assert errors == [None, None]
    assert sqlite_store.failure is None
    assert _types(sqlite_store, header.id) == ["custom/big", "custom/next"]
    assert caplog.text.count("the write is kept and will be tried again") == 1


def test_what_can_not_be_written_by_the_close_gets_the_error(tmp_path: Path) -> None:
    header = make_header()
    errors: list[BaseException | None] = []
    store = SqliteStore(tmp_path / "s.db")
    store.create(header)
    assert store.flush(10)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    store.append(header.id, "custom/big", encode("x" * 100_000), on_commit=errors.append)
    store.append(header.id, "custom/next", NOTHING, on_commit=errors.append)
    assert not store.close(10)
    assert [type(error) for error in errors] == [StoreError, StoreError]
    assert "the disk is full" in str(errors[0])
    with SqliteStore.open_readonly(tmp_path / "s.db") as reader:
        assert reader.load(header.id)[1] == []


def test_a_locked_store_is_waited_for(sqlite_store: SqliteStore) -> None:
    header = make_header()
    confirmed = threading.Event()
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    other = sqlite3.connect(sqlite_store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    sqlite_store.append(header.id, "custom/a", NOTHING, on_commit=lambda error: confirmed.set())
    assert not sqlite_store.flush(0.05)
    assert not confirmed.is_set()
    other.execute("COMMIT")
    other.close()
    assert sqlite_store.flush(10)
    assert confirmed.is_set()


def test_a_store_that_stays_locked_does_not_hold_up_the_close(tmp_path: Path) -> None:
    header = make_header()
    errors: list[BaseException | None] = []
    given_up = threading.Event()
    store = SqliteStore(tmp_path / "s.db")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def note(error: BaseException | None) -> None:
        errors.append(error)
        given_up.set()

    store.create(header, on_commit=note)
    assert not store.close(0.05)
    assert given_up.wait(10)
    assert "another process holds it" in str(errors[0])
    other.execute("ROLLBACK")
    other.close()
    store.close(10)
    with SqliteStore.open_readonly(store.path) as reader:
        assert reader.list() == []


def test_two_stores_on_one_file_do_not_mix_sessions(tmp_path: Path) -> None:
    mine, yours = make_header(), make_header()
    with SqliteStore(tmp_path / "s.db") as first, SqliteStore(tmp_path / "s.db") as second:
        first.create(mine)
        second.create(yours)
        for _ in range(50):
            first.append(mine.id, "custom/mine", NOTHING)
            second.append(yours.id, "custom/yours", NOTHING)
        assert first.flush(10)
        assert second.flush(10)
        assert _types(first, yours.id) == ["custom/yours"] * 50
        assert _types(second, mine.id) == ["custom/mine"] * 50


def test_a_second_writer_of_one_session_is_refused(tmp_path: Path) -> None:
    header = make_header()
    with SqliteStore(tmp_path / "s.db") as first, SqliteStore(tmp_path / "s.db") as second:
        first.create(header)
        first.append(header.id, "custom/first", NOTHING)
        assert first.flush(10)
        with pytest.raises(SessionHeld, match="is held by"):
            second.append(header.id, "custom/second", NOTHING)
        assert first.append(header.id, "custom/later", NOTHING) == 1
        assert first.flush(10)
        assert _types(second, header.id) == ["custom/first", "custom/later"]


def test_one_group_holds_thousands_of_sessions_and_events(sqlite_store: SqliteStore) -> None:
    headers = [make_header(created=float(number)) for number in range(1, 1002)]
    for header in headers:
        sqlite_store.create(header)
        sqlite_store.append(header.id, "agent/started", NOTHING)
    assert sqlite_store.flush(30)
    listed = sqlite_store.list()
    assert [info.id for info in listed] == [header.id for header in reversed(headers)]
    assert {info.events for info in listed} == {1}


def test_an_interval_gathers_but_a_flush_does_not_wait_for_it(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db", flush_interval=3600) as store:
        header = make_header()
        store.create(header)
        assert store.flush(10)
        store.append(header.id, "custom/a", NOTHING)
        assert store.pending == 1
        assert store.flush(10)
        assert store.pending == 0
        store.append(header.id, "custom/b", NOTHING)


def _use_after_fork(store: SqliteStore, session_id: str, answers: mp.SimpleQueue[str]) -> None:
    for use in (
        lambda: store.append(session_id, "custom/child", NOTHING),
        lambda: store.flush(1),
        store.list,
    ):
        try:
            use()
        except ForkedSystemError as error:
            answers.put(str(error))
    answers.put(f"closed: {store.close(1)}")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_gets_a_clear_error(sqlite_store: SqliteStore) -> None:
    header = make_header()
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    context = mp.get_context("fork")
    answers = context.SimpleQueue()
    with sqlite_store._lock:  # as if another thread were appending at the time of the fork
        child = context.Process(target=_use_after_fork, args=(sqlite_store, header.id, answers))
        child.start()
    got = [answers.get() for _ in range(4)]
    child.join(30)
    answers.close()
    assert child.exitcode == 0
    child.close()
    assert all("belongs to process" in text for text in got[:3])
    assert got[3] == "closed: True"
    sqlite_store.append(header.id, "custom/parent", NOTHING)
    assert sqlite_store.flush(10)
    assert _types(sqlite_store, header.id) == ["custom/parent"]


def _open_and_write(path: str, start: mp.synchronize.Event) -> None:
    start.wait(30)
    with SqliteStore(path) as store:
        store.create(make_header())


def test_processes_that_make_the_file_together_all_succeed(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    start = context.Event()
    path = str(tmp_path / "s.db")
    children = [context.Process(target=_open_and_write, args=(path, start)) for _ in range(4)]
    for child in children:
        child.start()
    start.set()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
        child.close()
    with SqliteStore.open_readonly(path) as reader:
        assert len(reader.list()) == 4


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DSH_ACTORS_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert state_dir() == tmp_path / ".local/state/dsh-actors"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_dir() == tmp_path / "xdg/dsh-actors"
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path / "all"))
    assert default_store_path() == tmp_path / "all/state/sessions.db"
