"""Taking sessions and giving them back, as both stores do it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from session_headers import make_header

from dsh_actors.codec import encode
from dsh_actors.errors import SessionNotFound, StoreError

if TYPE_CHECKING:
    from dsh_actors.sessions import MemoryStore, SqliteStore

NOTHING = encode(None)


def test_what_is_created_is_held(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    store.create(header)
    assert store.flush(10)
    holder = store.holder_of(header.id)
    assert holder is not None
    assert (holder.pid, holder.host) == (os.getpid(), os.uname().nodename)
    assert list(store.holders()) == [header.id]


def test_the_end_of_its_agent_gives_a_session_back(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    store.create(header)
    store.append(header.id, "agent/ended", NOTHING)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    assert store.holder_of(header.id) is None
    assert store.holders() == {}


def test_a_late_event_takes_an_ended_session_for_its_commit_alone(
    store: MemoryStore | SqliteStore,
) -> None:
    header = make_header()
    store.create(header)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    assert store.append(header.id, "custom/late", NOTHING) == 0
    assert store.flush(10)
    assert store.holder_of(header.id) is None


def test_becoming_active_again_takes_it(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    store.create(header)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    store.set_status(header.id, "active")
    assert store.flush(10)
    assert store.holder_of(header.id) is not None


def test_acquire_and_release(store: MemoryStore | SqliteStore) -> None:
    headers = [make_header() for _ in range(3)]
    for header in headers:
        store.create(header)
        store.append(header.id, "custom/first", NOTHING)
        store.set_status(header.id, "completed")
    assert store.flush(10)
    ids = [header.id for header in headers]
    store.acquire(ids)
    store.acquire(ids[:1])  # what is held stays as it is
    assert set(store.holders()) == set(ids)
    assert store.append(ids[0], "custom/second", NOTHING) == 1
    released = threading.Event()
    store.release(ids[0], on_commit=lambda error: released.set())
    store.release("never-seen")
    assert released.wait(10)
    assert set(store.holders()) == set(ids[1:])
    assert [event.type for event in store.load(ids[0]).events] == ["custom/first", "custom/second"]


def test_all_or_nothing(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    store.create(header)
    store.set_status(header.id, "completed")
    assert store.flush(10)
    with pytest.raises(SessionNotFound, match="missing"):
        store.acquire([header.id, "missing"])
    assert store.holders() == {}
    with pytest.raises(SessionNotFound):
        store.holder_of("missing")


def test_acquire_in_a_callback_would_wait_for_itself(store: MemoryStore | SqliteStore) -> None:
    header = make_header()
    errors: list[StoreError] = []

    def acquire(_: BaseException | None) -> None:
        try:
            store.acquire([header.id])
        except StoreError as error:
            errors.append(error)

    store.create(header, acquire)
    assert store.flush(10)
    assert "call it from another thread" in str(errors[0])
