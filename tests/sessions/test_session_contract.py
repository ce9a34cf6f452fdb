"""What every session store does, whatever it is made of."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING

import pytest
from session_headers import make_header

from dsh_actors.codec import encode
from dsh_actors.errors import MessageError, SessionNotFound, StoreError
from dsh_actors.sessions import Event, SessionStore, new_session_id

if TYPE_CHECKING:
    from dsh_actors.sessions import MemoryStore, SqliteStore

    Store = MemoryStore | SqliteStore

NOTHING = encode({})


def test_is_a_session_store(store: Store) -> None:
    assert isinstance(store, SessionStore)


def test_what_was_appended_is_loaded_in_order(store: Store) -> None:
    header = make_header(policy={"tools": ["read"]}, options={"args": {"depth": 3}})
    store.create(header)
    assert store.append(header.id, "turn/start", encode({"turn": 1})) == 0
    assert store.append(header.id, "turn/end", encode({"turn": 1, "reason": "completed"})) == 1
    assert store.flush(10)
    loaded, events, damage = store.load(header.id)
    assert damage == ()
    assert loaded == header
    assert [(e.seq, e.type, e.data) for e in events] == [
        (0, "turn/start", {"turn": 1}),
        (1, "turn/end", {"turn": 1, "reason": "completed"}),
    ]
    assert events[0].time <= events[1].time


@pytest.mark.behaviour(96)
def test_history_is_never_changed(store: Store) -> None:
    header = make_header()
    store.create(header)
    prefix: list[Event] = []
    for number in range(5):
        store.append(header.id, "custom/step", encode({"n": number}))
        store.set_status(header.id, "aborted" if number % 2 else "active")
        assert store.flush(10)
        events = store.load(header.id)[1]
        assert events[: len(prefix)] == prefix
        prefix = events
    with pytest.raises(FrozenInstanceError):
        prefix[0].data = {"n": 99}  # type: ignore[misc]
    prefix[0].data["n"] = 99  # a reader's copy, not the log
    assert store.load(header.id)[1][0].data == {"n": 0}


@pytest.mark.behaviour(101)
def test_a_session_is_visible_from_its_commit_on(store: Store) -> None:
    """A callback holds the writer, so that what it creates is accepted and not yet committed."""
    seen: dict[str, list[str]] = {}
    first, second = make_header(created=1.0), make_header(created=2.0)

    def listed() -> list[str]:
        return [info.id for info in store.list()]

    def first_committed(error: BaseException | None) -> None:
        seen["first committed"] = listed()
        store.create(second, on_commit=lambda error: seen.update(second_committed=listed()))
        seen["second accepted"] = listed()

    seen["first prepared"] = listed()
    store.create(first, on_commit=first_committed)
    assert store.flush(10)
    assert store.flush(10)
    assert seen == {
        "first prepared": [],
        "first committed": [first.id],
        "second accepted": [first.id],
        "second_committed": [second.id, first.id],
    }


@pytest.mark.behaviour(104)
def test_numbers_are_contiguous_and_confirmed_in_order(store: Store) -> None:
    header = make_header()
    store.create(header)
    confirmed: list[int] = []
    start = threading.Barrier(8)

    def append_many() -> None:
        start.wait()
        for _ in range(200):
            box: list[int] = []
            lock = threading.Lock()
            lock.acquire()

            def confirm(
                error: BaseException | None,
                box: list[int] = box,
                lock: threading.Lock = lock,  # type: ignore[valid-type]
            ) -> None:
                assert error is None
                with lock:
                    confirmed.append(box[0])

            box.append(store.append(header.id, "custom/n", NOTHING, on_commit=confirm))
            lock.release()

    threads = [threading.Thread(target=append_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.flush(20)
    assert [event.seq for event in store.load(header.id)[1]] == list(range(1600))
    assert confirmed == list(range(1600))


@pytest.mark.behaviour(105)
def test_a_raising_callback_stops_neither_the_append_nor_the_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    header = make_header()
    called: list[str] = []

    def fail(error: BaseException | None) -> None:
        called.append("first")
        raise SystemExit("an observer's own trouble")

    store.create(header)
    store.append(header.id, "custom/a", NOTHING, on_commit=fail)
    store.append(header.id, "custom/b", NOTHING, on_commit=lambda error: called.append("second"))
    assert store.flush(10)
    assert called == ["first", "second"]
    assert len(store.load(header.id)[1]) == 2
    assert "on_commit callback" in caplog.text


def test_a_callback_may_append_but_not_wait(store: Store) -> None:
    header = make_header()
    raised: list[Exception] = []
    done = threading.Event()

    def confirm(error: BaseException | None) -> None:
        store.append(header.id, "custom/second", NOTHING, on_commit=lambda e: done.set())
        for wait in (store.flush, store.close):
            try:
                wait(1)
            except StoreError as refused:
                raised.append(refused)

    store.create(header)
    store.append(header.id, "custom/first", NOTHING, on_commit=confirm)
    assert done.wait(10)
    assert [e.type for e in store.load(header.id)[1]] == ["custom/first", "custom/second"]
    assert len(raised) == 2
    assert "on_commit callback" in str(raised[0])


def test_the_list_is_newest_first_and_tells_how_each_ended(store: Store) -> None:
    old, new = make_header(created=100.0), make_header(created=200.0, agent_id="second")
    store.create(new)
    store.create(old)
    store.append(old.id, "custom/a", NOTHING)
    store.append(old.id, "custom/b", NOTHING)
    store.set_status(old.id, "completed")
    assert store.flush(10)
    first, second = store.list()
    assert (first.id, first.status, first.events) == (new.id, "active", 0)
    assert (first.ended, first.last_event, first.agent_id) == (None, None, "second")
    assert (second.id, second.status, second.events) == (old.id, "completed", 2)
    assert second.ended is not None
    assert second.last_event is not None
    assert second.last_event <= second.ended
    assert [info.id for info in store.list(limit=1)] == [new.id]


def test_an_ended_session_is_forgotten_in_memory_and_can_go_on(store: Store) -> None:
    header = make_header()
    store.create(header)
    store.append(header.id, "custom/a", NOTHING)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    assert not store._logs
    assert store.append(header.id, "custom/b", NOTHING) == 1
    store.set_status(header.id, "active")
    assert store.flush(10)
    (info,) = store.list()
    assert (info.status, info.ended, info.events) == ("active", None, 2)


@pytest.mark.behaviour(99)
def test_a_second_session_of_the_same_id_is_refused(store: Store) -> None:
    header = make_header()
    store.create(header)
    with pytest.raises(StoreError, match="exists already; mint a new id"):
        store.create(header)
    store.append(header.id, "custom/a", NOTHING)
    assert store.flush(10)
    assert len(store.load(header.id)[1]) == 1


def test_an_id_that_was_used_before_is_refused_at_the_commit(store: Store) -> None:
    header, other = make_header(), make_header()
    store.create(header)
    store.append(header.id, "custom/a", NOTHING)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    errors: list[BaseException | None] = []
    store.create(header, on_commit=errors.append)
    store.append(header.id, "custom/stray", NOTHING, on_commit=errors.append)
    store.create(other, on_commit=errors.append)
    store.flush(10)
    assert [type(error) for error in errors] == [StoreError, StoreError, type(None)]
    assert "exists already" in str(errors[0])
    with pytest.raises(StoreError, match="exists already"):
        store.append(header.id, "custom/later", NOTHING)
    assert [e.type for e in store.load(header.id)[1]] == ["custom/a"]
    assert store.flush(10)


def test_an_unknown_session_is_named(store: Store) -> None:
    for use in (
        lambda: store.load("s-nope"),
        lambda: store.resolve("s-nope"),
        lambda: store.append("s-nope", "custom/a", NOTHING),
        lambda: store.set_status("s-nope", "completed"),
    ):
        with pytest.raises(SessionNotFound, match="no session 's-nope'"):
            use()
    assert store.list() == []


def test_a_prefix_finds_the_one_session_it_begins(store: Store) -> None:
    for name in ("s-2026-aa", "s-2026-ab", "s-2026-ab-longer"):
        store.create(make_header(name))
    assert store.flush(10)
    assert store.resolve("s-2026-aa") == "s-2026-aa"
    assert store.resolve("s-2026-ab-") == "s-2026-ab-longer"
    assert store.resolve("s-2026-ab") == "s-2026-ab"
    with pytest.raises(StoreError, match=r"could be s-2026-aa, s-2026-ab, .*type more"):
        store.resolve("s-2026-a")


def test_what_can_never_be_written_is_refused_at_once(store: Store) -> None:
    header = make_header()
    store.create(header)
    with pytest.raises(StoreError, match=r"must be bytes from codec\.encode, not dict"):
        store.append(header.id, "custom/a", {"n": 1})  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="not valid Unicode"):
        store.append(header.id, "custom/\ud800", NOTHING)
    with pytest.raises(MessageError):
        store.create(make_header(policy={"tool": object()}))
    assert store.append(header.id, "custom/grün", NOTHING) == 0
    assert store.flush(10)


def test_close_writes_what_is_queued_and_refuses_the_rest(store: Store) -> None:
    header = make_header()
    errors: list[BaseException | None] = []
    store.create(header)
    for _ in range(100):
        store.append(header.id, "custom/a", NOTHING, on_commit=errors.append)
    assert store.close(10)
    assert errors == [None] * 100
    assert store.close(10)
    with pytest.raises(StoreError, match="is closed; open it again"):
        store.append(header.id, "custom/a", NOTHING)
    with pytest.raises(StoreError, match="is closed"):
        store.create(make_header())
    assert store.pending == 0


def test_a_store_that_was_never_written_to_closes(store: Store) -> None:
    assert store.flush(0)
    with store as same:
        assert same is store


def test_ids_sort_by_time_and_never_repeat() -> None:
    ids = [new_session_id() for _ in range(20_000)]
    assert len(set(ids)) == 20_000
    assert ids[0].startswith("s-20")
    assert len(ids[0]) == len("s-20261130-211342-4f7k2a9c")
    assert ids[0][:17] <= ids[-1][:17]
