"""The contract of a session store, as tests that any store can run.

For a store of your own, derive a class from ``StoreContract`` in a test module, and say how an
empty store is made::

    from dsh_actors.testing.store_contract import StoreContract


    class TestMyStore(StoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "sessions")

The tests carry the marker ``behaviour``, so load the plugin (``-p
dsh_actors.testing.pytest_plugin``).
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from dsh_actors.codec import encode, register
from dsh_actors.errors import SessionNotFound, StoreError
from dsh_actors.testing.store_log_contract import NOTHING, PATIENCE, LogContract, make_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh_actors.sessions import SessionHeader, SessionStore

__all__ = ["StoreContract", "make_header"]


class StoreContract(LogContract):
    """All that a session store promises; a subclass overrides the fixture ``make_store``."""

    @pytest.fixture
    def make_store(self) -> Callable[[], SessionStore]:
        """Return a function that opens an empty store. To be overridden."""
        raise NotImplementedError("override the fixture make_store in your test class")

    @pytest.fixture
    def store(self, make_store: Callable[[], SessionStore]) -> Iterator[SessionStore]:
        """Open a store for a test, and close it after it."""
        store = make_store()
        yield store
        store.close(PATIENCE)

    # -- whole sessions -----------------------------------------------------------------------

    def test_the_list_is_newest_first_and_tells_how_each_ended(self, store: SessionStore) -> None:
        """And how many events there are, and when the last was."""
        old, new = make_header(created=100.0), make_header(created=200.0, agent_id="second")
        store.create(new)
        store.create(old)
        store.append(old.id, "custom/a", NOTHING)
        store.append(old.id, "custom/b", NOTHING)
        store.set_status(old.id, "completed")
        assert store.flush(PATIENCE)
        first, second = store.list()
        assert (first.id, first.status, first.events) == (new.id, "active", 0)
        assert (first.ended, first.last_event, first.agent_id) == (None, None, "second")
        assert (second.id, second.status, second.events) == (old.id, "completed", 2)
        assert second.ended is not None
        assert second.last_event is not None
        assert second.last_event <= second.ended
        assert not first.damaged
        assert not second.damaged
        assert [info.id for info in store.list(limit=1)] == [new.id]

    def test_an_ended_session_can_go_on(self, store: SessionStore) -> None:
        """Its numbers go on, too."""
        header = make_header()
        store.create(header)
        store.append(header.id, "custom/a", NOTHING)
        store.set_status(header.id, "completed")
        assert store.flush(PATIENCE)
        assert store.append(header.id, "custom/b", NOTHING) == 1
        store.set_status(header.id, "active")
        assert store.flush(PATIENCE)
        (info,) = store.list()
        assert (info.status, info.ended, info.events) == ("active", None, 2)

    def test_a_prefix_finds_the_one_session_it_begins(self, store: SessionStore) -> None:
        """Several of them are an error, unless it is an id itself."""
        for name in ("s-2026-aa", "s-2026-ab", "s-2026-ab-longer"):
            store.create(make_header(name))
        assert store.flush(PATIENCE)
        assert store.resolve("s-2026-aa") == "s-2026-aa"
        assert store.resolve("s-2026-ab-") == "s-2026-ab-longer"
        assert store.resolve("s-2026-ab") == "s-2026-ab"
        with pytest.raises(StoreError, match="s-2026-aa, s-2026-ab"):
            store.resolve("s-2026-a")

    def test_a_family_is_a_session_and_all_below_it_parents_first(
        self, store: SessionStore
    ) -> None:
        """Not its siblings, nor what is above it."""
        _make_tree(store)
        assert [info.id for info in store.family("root")] == ["root", "left", "right", "leaf"]
        assert [info.id for info in store.family("left")] == ["left", "leaf"]
        assert [info.id for info in store.family("right")] == ["right"]

    def test_large_values_come_back_whole(self, store: SessionStore) -> None:
        """Also in a fork, after the first one is gone; and they may be empty as well."""
        header = make_header()
        store.create(header)
        bodies = ["", "x" * 300_000, os.urandom(1_000_000), ["y" * 262_144]]
        for body in bodies:
            store.append(header.id, "custom/large", encode(body))
        store.set_status(header.id, "completed")
        assert store.flush(PATIENCE)
        assert [event.data for event in store.load(header.id).events] == bodies
        fork = store.fork(header.id)
        assert store.delete(header.id) == 1
        log = store.load(fork)
        assert [event.data for event in log.events] == bodies
        assert log.damage == ()

    def test_a_dataclass_that_is_not_known_here_is_read_as_its_fields(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A log outlives the program that wrote it."""
        from dsh_actors.codec import wire

        @register(name="store-contract-finding")
        @dataclass
        class Finding:
            path: str
            line: int

        header = make_header(options={"args": {"first": Finding("a.py", 1)}})
        store.create(header)
        store.append(header.id, "custom/finding", encode([Finding("b.py", 2)]))
        assert store.flush(PATIENCE)
        assert store.load(header.id).events[0].data == [Finding("b.py", 2)]
        monkeypatch.delitem(wire._by_name, "store-contract-finding")
        log = store.load(header.id)
        assert log.damage == ()
        assert log.events[0].data == [{"path": "b.py", "line": 2}]
        assert log.header.options == {"args": {"first": {"path": "a.py", "line": 1}}}

    # -- fork and delete ----------------------------------------------------------------------

    def test_a_fork_is_a_new_root_with_the_first_events(self, store: SessionStore) -> None:
        """With their numbers and times; what follows in either is not seen in the other."""
        _make_tree(store)
        header = store.load("leaf").header
        for type in ("prompt/accepted", "turn/start", "turn/end", "custom/after"):
            store.append("leaf", type, encode({"turn": 1}))
        fork_id = store.fork("leaf", at=3)
        log = store.load(fork_id)
        assert (log.header.forked_from, log.header.forked_at) == ("leaf", 3)
        assert (log.header.root, log.header.parent) == (fork_id, None)
        assert (log.header.agent_id, log.header.depth) == (header.agent_id, header.depth)
        assert log.header.behaviour == header.behaviour
        assert log.events == store.load("leaf").events[:3]
        assert next(info for info in store.list() if info.id == fork_id).status != "active"
        assert store.append(fork_id, "custom/own", NOTHING) == 3
        assert store.append("leaf", "custom/own", NOTHING) == 4
        assert store.flush(PATIENCE)
        assert [info.id for info in store.family("root")] == ["root", "left", "right", "leaf"]
        assert store.fork("leaf", at=0, new_id="s-empty") == "s-empty"
        assert store.load("s-empty").events == []
        with pytest.raises(StoreError, match="exists"):
            store.fork("leaf", new_id="s-empty")

    def test_a_fork_may_not_end_inside_an_open_turn(self, store: SessionStore) -> None:
        """The error names the nearest numbers that are possible, and nothing is created."""
        header = make_header()
        store.create(header)
        types = ["prompt/accepted", "turn/start", "custom/a", "turn/end", "turn/start", "custom/b"]
        for type in types:
            store.append(header.id, type, encode({"turn": 1}))
        for at, near in ((2, "at 1 or at 4"), (3, "at 1 or at 4"), (5, "at 4"), (None, "at 4")):
            with pytest.raises(StoreError, match=near):
                store.fork(header.id, at=at)
        with pytest.raises(StoreError, match="6 events"):
            store.fork(header.id, at=7)
        assert len(store.list()) == 1
        assert len(store.load(store.fork(header.id, at=4)).events) == 4

    def test_delete_removes_a_session_and_all_below_it(self, store: SessionStore) -> None:
        """Their ids can be used anew."""
        _make_tree(store)
        for name in ("root", "left", "right", "leaf"):
            store.append(name, "custom/a", NOTHING)
            store.set_status(name, "completed")
        assert store.delete("left") == 2
        assert {info.id for info in store.list()} == {"root", "right"}
        for name in ("left", "leaf"):
            with pytest.raises(SessionNotFound):
                store.load(name)
            with pytest.raises(SessionNotFound):
                store.append(name, "custom/b", NOTHING)
        assert store.delete("root") == 2
        assert store.list() == []
        store.create(make_header("leaf"))
        assert store.append("leaf", "custom/new", NOTHING) == 0
        assert store.flush(PATIENCE)
        assert [event.type for event in store.load("leaf").events] == ["custom/new"]

    def test_what_is_live_is_not_deleted(self, store: SessionStore) -> None:
        """Nor is anything above it, and nothing is lost in the attempt."""
        _make_tree(store)
        for name in ("root", "left", "right"):
            store.set_status(name, "completed")
        with pytest.raises(StoreError, match="leaf"):
            store.delete("root")
        assert len(store.family("root")) == 4
        assert store.append("leaf", "custom/still-there", NOTHING) == 0
        assert store.flush(PATIENCE)

    # -- leases -------------------------------------------------------------------------------

    def test_what_is_created_is_held(self, store: SessionStore) -> None:
        """Until the end of its agent."""
        header = make_header()
        store.create(header)
        assert store.flush(PATIENCE)
        holder = store.holder_of(header.id)
        assert holder is not None
        assert (holder.pid, holder.host) == (os.getpid(), os.uname().nodename)
        assert list(store.holders()) == [header.id]
        store.append(header.id, "agent/ended", NOTHING)
        store.set_status(header.id, "completed")
        assert store.flush(PATIENCE)
        assert store.holder_of(header.id) is None
        assert store.holders() == {}
        assert store.append(header.id, "custom/late", NOTHING) == 1
        assert store.flush(PATIENCE)
        assert store.holder_of(header.id) is None
        store.set_status(header.id, "active")
        assert store.flush(PATIENCE)
        assert store.holder_of(header.id) is not None

    def test_acquire_and_release(self, store: SessionStore) -> None:
        """What is held already stays as it is, and what is not can be released."""
        headers = [_ended(store) for _ in range(3)]
        ids = [header.id for header in headers]
        store.acquire(ids)
        store.acquire(ids[:1])
        assert set(store.holders()) == set(ids)
        assert store.append(ids[0], "custom/second", NOTHING) == 1
        released = threading.Event()
        store.release(ids[0], on_commit=lambda error: released.set())
        store.release("never-seen")
        assert released.wait(PATIENCE)
        assert set(store.holders()) == set(ids[1:])
        types = [event.type for event in store.load(ids[0]).events]
        assert types == ["custom/first", "custom/second"]

    def test_acquire_is_all_or_nothing(self, store: SessionStore) -> None:
        """One that is not there leaves the others free."""
        header = _ended(store)
        with pytest.raises(SessionNotFound, match="missing"):
            store.acquire([header.id, "missing"])
        assert store.holders() == {}

    def test_acquire_in_a_callback_would_wait_for_itself(self, store: SessionStore) -> None:
        """So it is refused."""
        header = make_header()
        errors: list[StoreError] = []

        def acquire(_: BaseException | None) -> None:
            try:
                store.acquire([header.id])
            except StoreError as error:
                errors.append(error)

        store.create(header, acquire)
        assert store.flush(PATIENCE)
        assert len(errors) == 1


def _ended(store: SessionStore) -> SessionHeader:
    header = make_header()
    store.create(header)
    store.append(header.id, "custom/first", NOTHING)
    store.set_status(header.id, "completed")
    assert store.flush(PATIENCE)
    return header


def _make_tree(store: SessionStore) -> None:
    """Create ``root`` with ``left`` and ``right`` below it, and ``leaf`` below ``left``."""
    for name, parent, depth in (
        ("root", None, 0),
        ("left", "root", 1),
        ("right", "root", 1),
        ("leaf", "left", 2),
    ):
        store.create(make_header(name, root="root", parent=parent, depth=depth, agent_id=name))
    store.create(make_header("another"))
    store.set_status("another", "completed")
    assert store.flush(PATIENCE)
    assert store.delete("another") == 1
