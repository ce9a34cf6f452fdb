"""A full disk, a read-only folder: clear errors, and nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.codec import encode
from dsh_actors.errors import StoreError
from dsh_actors.sessions import SqliteReader, SqliteStore, writer
from dsh_actors.testing.store_log_contract import make_header

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_actors.sessions import MemoryStore

NOTHING = encode({})


def _run(code: str, *arguments: str) -> Any:
    """Run code in a process of its own; return what it prints as JSON."""
    package = os.path.dirname(os.path.dirname(sys.modules["dsh_actors"].__file__ or ""))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": package},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _limit_pages(store: SqliteStore, *, more: int) -> None:
    """Give the disk room for so many more pages."""
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + more}")


@pytest.mark.behaviour(100)
def test_a_group_that_fails_once_is_written_by_the_next_attempt_or_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush does not retry; what it could not write is not lost by that."""
    header = make_header()
    store = SqliteStore(tmp_path / "s.db", flush_interval=3600)
    errors: list[BaseException | None] = []
    failing = 0

    def commit(self: SqliteStore, group: Any) -> None:
        nonlocal failing
        if failing:
            failing -= 1
            raise StoreError("the storage fails once")
        commit_really(self, group)

    commit_really = SqliteStore._commit
    monkeypatch.setattr(SqliteStore, "_commit", commit)
    store.create(header)
    assert store.flush(10)  # from here on nothing is written unless somebody asks for it
    failing = 1
    store.append(header.id, "custom/a", NOTHING, on_commit=errors.append)
    assert not store.flush(10)
    assert failing == 0
    assert str(store.failure) == "the storage fails once"
    assert errors == []
    assert store.flush(10)
    assert errors == [None]
    failing = 1
    store.append(header.id, "custom/b", NOTHING, on_commit=errors.append)
    assert not store.flush(10)
    assert store.close(10)
    assert errors == [None, None]
    with SqliteReader(tmp_path / "s.db") as reader:
        assert [event.type for event in reader.load(header.id).events] == ["custom/a", "custom/b"]


def test_while_it_fails_a_store_takes_no_more_than_memory_can_bear(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_WAITING_WHILE_FAILING", 1_000_000)
    header = make_header()
    errors: list[BaseException | None] = []
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    _limit_pages(sqlite_store, more=0)
    body = encode("x" * 10_000)
    sqlite_store.append(header.id, "custom/first", body, on_commit=errors.append)
    assert not sqlite_store.flush(10)
    accepted = 1
    refused = None
    while refused is None and accepted < 1000:
        try:
            sqlite_store.append(header.id, "custom/more", body, on_commit=errors.append)
            accepted += 1
        except StoreError as error:
            refused = str(error)
    assert refused is not None
    assert "wait, since it cannot be written" in refused
    assert "the disk is full" in refused
    with pytest.raises(StoreError, match="nothing more is taken"):
        sqlite_store.create(make_header())
    assert 90 <= accepted <= 110
    assert errors == []
    sqlite_store._connection.execute("PRAGMA max_page_count = 1000000")
    assert sqlite_store.flush(10)
    assert errors == [None] * accepted
    assert sqlite_store.append(header.id, "custom/after", body) == accepted
    assert sqlite_store.flush(10)
    assert [e.seq for e in sqlite_store.load(header.id).events] == list(range(accepted + 1))


def test_a_file_that_may_not_grow_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The limit of the process on the size of files stands for a quota."""
    code = """
    import json, resource, sys
    from dsh_actors.codec import encode
    from dsh_actors.sessions import SessionHeader, SqliteStore

    path, session = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    store = SqliteStore(path)
    store.create(SessionHeader(session, "a", "s", session, None, 0, "m:f", 1.0))
    confirmed = []
    failure = ""
    for number in range(400):
        def committed(error, number=number):
            if error is None:
                confirmed.append(number)
        store.append(session, "custom/n", encode([number, "x" * 2000]), on_commit=committed)
        if not store.flush(30):
            failure = str(store.failure)
            break
    with_quota = list(confirmed)
    seen = [event.data[0] for event in store.load(session).events]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    flushed = store.flush(30)
    print(json.dumps([with_quota, seen, failure, flushed, confirmed]))
    sys.stdout.flush()
    store.close()
    """
    with_quota, seen, failure, flushed, confirmed = _run(code, str(tmp_path / "s.db"), "s-1")
    assert 10 < len(with_quota) < 399
    assert with_quota == seen == list(range(len(seen)))
    assert "s.db" in failure
    assert "the disk" in failure
    assert flushed
    assert confirmed == list(range(len(with_quota) + 1))
    with SqliteReader(tmp_path / "s.db") as reader:
        log = reader.load("s-1")
        assert [event.data[0] for event in log.events] == confirmed
        assert log.damage == ()


def test_a_read_only_folder_is_named_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "s.db"
    header = make_header()
    with SqliteStore(path) as store:
        store.create(header)
        store.append(header.id, "custom/a", NOTHING)
    code = """
    import json, os, sys
    import dsh_actors.sessions.opening, dsh_actors.sessions.salvage, sqlite3, dsh_actors.sessions
    from dsh_actors.errors import StoreError
    from dsh_actors.sessions import SqliteReader, SqliteStore

    path = sys.argv[1]
    if os.geteuid() == 0:  # for whom nothing is read-only
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    told = []
    for open_store in (lambda: SqliteStore(path), lambda: SqliteStore(path + "-new")):
        try:
            open_store()
        except StoreError as error:
            told.append(str(error))
    with SqliteReader(path) as reader:
        told.append([info.events for info in reader.list()])
    print(json.dumps(told))
    """
    # Others may come this far, and read.
    above = tmp_path
    while above != above.parent:
        if above.stat().st_uid == os.getuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
        above = above.parent
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        existing, new, events = _run(code, str(path))
    finally:
        folder.chmod(0o700)
        path.chmod(0o600)
    assert str(path) in existing
    assert "writable" in existing
    assert f"{path}-new" in new
    assert "check the rights on its folder" in new
    assert events == [1]
    assert os.listdir(folder) == ["s.db"]


def test_a_large_value_is_on_the_disk_before_the_commit_that_names_it(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = make_header()
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    happened: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        happened.append(f"synced {os.path.relpath(name, sqlite_store.path + '.files')}")

    monkeypatch.setattr(os, "fsync", note)
    sqlite_store._connection.set_trace_callback(happened.append)
    sqlite_store.append(header.id, "custom/large", encode("x" * 300_000))
    assert sqlite_store.flush(10)
    sqlite_store._connection.set_trace_callback(None)
    synced = [number for number, what in enumerate(happened) if what.startswith("synced")]
    commit = happened.index("COMMIT")
    # The folders above, then the file and the folder that it is in.
    assert len(synced) == 4
    assert max(synced) < commit
    assert happened[synced[-2]].endswith(".part")
    folder = f"{sqlite_store.path}.files"
    (sub,) = os.listdir(folder)
    (name,) = os.listdir(os.path.join(folder, sub))
    for path, mode in (
        (folder, 0o700),
        (os.path.join(folder, sub), 0o700),
        (os.path.join(folder, sub, name), 0o600),
    ):
        assert os.stat(path).st_mode & 0o777 == mode
    sqlite_store.set_status(header.id, "completed")
    assert sqlite_store.delete(header.id) == 1
    assert os.listdir(folder) == []


def test_a_large_value_that_is_missing_or_changed_damages_its_event_alone(
    sqlite_store: SqliteStore,
) -> None:
    header = make_header()
    sqlite_store.create(header)
    for letter in "abc":
        sqlite_store.append(header.id, "custom/large", encode(letter * 300_000))
    assert sqlite_store.flush(10)
    folder = f"{sqlite_store.path}.files"
    files = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with open(path, "rb") as file:
                files[chr(file.read()[-1])] = path
    os.unlink(files["a"])
    with open(files["b"], "r+b") as file:
        file.write(b"other")
    log = sqlite_store.load(header.id)
    assert [event.type for event in log.events] == ["damaged", "damaged", "custom/large"]
    assert log.events[2].data == "c" * 300_000
    assert "cannot be read" in log.damage[0]
    assert "has been changed" in log.damage[1]
    with SqliteReader(sqlite_store.path) as reader:
        findings = reader.check()
    assert len(findings) == 2
    assert all(finding.startswith(f"session {header.id}: event ") for finding in findings)
    with pytest.raises(StoreError, match="since event 0 is damaged; fork it at 0"):
        sqlite_store.fork(header.id)
    assert sqlite_store.append(header.id, "custom/next", NOTHING) == 3


def test_a_large_value_that_finds_no_room_is_kept_and_tried_again(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = make_header()
    sqlite_store.create(header)
    assert sqlite_store.flush(10)
    full = True
    rename = os.rename

    def rename_unless_full(old: str, new: str) -> None:
        if full:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", rename_unless_full)
    sqlite_store.append(header.id, "custom/large", encode("x" * 300_000))
    assert not sqlite_store.flush(10)
    assert "a large value cannot be written (No space left on device)" in str(sqlite_store.failure)
    assert sqlite_store.load(header.id).events == []
    full = False
    assert sqlite_store.flush(10)
    assert [event.data for event in sqlite_store.load(header.id).events] == ["x" * 300_000]
    folders = list(os.walk(f"{sqlite_store.path}.files"))
    assert [len(names) for _, _, names in folders] == [0, 1]


def test_what_waits_is_counted_down_again(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    store.create(header)
    for _ in range(20_000):
        store.append(header.id, "custom/n", NOTHING)
    assert store.flush(30)
    assert (store._queue_bytes, store._group_bytes) == (0, 0)
    assert store._room == writer.MAX_WAITING
