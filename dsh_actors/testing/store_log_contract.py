"""What every store does with the log of one session: order, commits, callbacks, listeners."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING

import pytest

from dsh_actors.codec import encode
from dsh_actors.errors import MessageError, SessionNotFound, StoreError
from dsh_actors.sessions import Event, SessionHeader, SessionStore, new_session_id

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PATIENCE", "LogContract", "make_header"]

PATIENCE = 20.0
"""Seconds after which a store under test counts as hung."""

NOTHING = encode({})


def make_header(session_id: str | None = None, **changes: object) -> SessionHeader:
    """Make a header for a session of which a test needs nothing but that it is there."""
    session_id = session_id or new_session_id()
    fields: dict[str, object] = {
        "id": session_id,
        "agent_id": "census",
        "system_id": "sys-1",
        "root": session_id,
        "parent": None,
        "depth": 0,
        "behaviour": "agents:census",
        "created": 1_000_000.0,
    }
    return SessionHeader(**(fields | changes))  # type: ignore[arg-type]


class LogContract:
    """Appending, committing, confirming and loading."""

    def test_is_a_session_store(self, store: SessionStore) -> None:
        """It has all the methods."""
        assert isinstance(store, SessionStore)

    def test_what_was_appended_is_loaded_in_order(self, store: SessionStore) -> None:
        """Header, numbers, types, data and times come back."""
        header = make_header(policy={"tools": ["read"]}, options={"args": {"depth": 3}})
        store.create(header)
        assert store.append(header.id, "turn/start", encode({"turn": 1})) == 0
        assert store.append(header.id, "turn/end", encode({"turn": 1, "reason": "completed"})) == 1
        assert store.flush(PATIENCE)
        log = store.load(header.id)
        assert log.header == header
        assert log.damage == ()
        assert [(e.seq, e.type, e.data) for e in log.events] == [
            (0, "turn/start", {"turn": 1}),
            (1, "turn/end", {"turn": 1, "reason": "completed"}),
        ]
        assert log.events[0].time <= log.events[1].time

    @pytest.mark.behaviour(96)
    def test_history_is_never_changed(self, store: SessionStore) -> None:
        """Whatever is done, what was there before is a prefix of what is there after."""
        header = make_header()
        store.create(header)
        prefix: list[Event] = []
        operations: list[Callable[[], object]] = [
            lambda: store.append(header.id, "turn/start", encode({"turn": 1})),
            lambda: store.append(header.id, "prompt/discarded", encode({"id": 1, "cause": "user"})),
            lambda: store.append(header.id, "turn/end", encode({"turn": 1, "reason": "aborted"})),
            lambda: store.set_status(header.id, "aborted"),
            lambda: store.set_status(header.id, "active"),
            lambda: store.fork(header.id, at=0),
            lambda: store.append(header.id, "custom/late", encode({"n": 4})),
        ]
        for operation in operations:
            operation()
            assert store.flush(PATIENCE)
            events = store.load(header.id).events
            assert events[: len(prefix)] == prefix
            prefix = events
        assert len(prefix) == 4
        with pytest.raises(FrozenInstanceError):
            prefix[0].data = {"n": 99}  # type: ignore[misc]
        prefix[0].data["n"] = 99  # a reader's copy, not the log
        assert store.load(header.id).events[0].data == {"turn": 1}

    @pytest.mark.behaviour(101)
    def test_a_session_is_visible_from_its_commit_on(self, store: SessionStore) -> None:
        """A callback holds the writer, so that what it creates is accepted, but not committed."""
        seen: dict[str, list[str]] = {}
        told: list[str] = []
        first, second = make_header(created=1.0), make_header(created=2.0)

        def listed() -> list[str]:
            return [info.id for info in store.list()]

        def first_committed(error: BaseException | None) -> None:
            seen["first committed"] = listed()
            store.create(second, on_commit=lambda error: seen.update(second_committed=listed()))
            store.append(second.id, "custom/a", NOTHING)
            seen["second accepted"] = [*listed(), *told]

        store.observe(lambda session_id, event: told.append(session_id))
        seen["first prepared"] = listed()
        store.create(first, on_commit=first_committed)
        assert store.flush(PATIENCE)
        assert store.flush(PATIENCE)
        assert seen == {
            "first prepared": [],
            "first committed": [first.id],
            "second accepted": [first.id],
            "second_committed": [second.id, first.id],
        }
        assert told == [second.id]

    @pytest.mark.behaviour(104)
    def test_numbers_are_contiguous_and_observers_see_commit_order(
        self, store: SessionStore
    ) -> None:
        """Eight threads append to one session: one order, for numbers, callbacks and listeners."""
        header = make_header()
        store.create(header)
        confirmed: list[int] = []
        observed: list[tuple[str, int]] = []
        visible: list[bool] = []
        store.observe(lambda session_id, event: observed.append((session_id, event.seq)))
        store.observe(lambda session_id, event: visible.append(event.seq in range(1600)))
        start = threading.Barrier(8)

        def append_many(name: int) -> None:
            start.wait()
            for _ in range(200):
                box: list[int] = []
                lock = threading.Lock()
                lock.acquire()

                def confirm(
                    error: BaseException | None,
                    box: list[int] = box,
                    lock: threading.Lock = lock,
                ) -> None:
                    assert error is None
                    with lock:
                        confirmed.append(box[0])

                box.append(store.append(header.id, "custom/n", encode(name), on_commit=confirm))
                lock.release()

        threads = [threading.Thread(target=append_many, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.flush(PATIENCE)
        assert [event.seq for event in store.load(header.id).events] == list(range(1600))
        assert confirmed == list(range(1600))
        assert observed == [(header.id, number) for number in range(1600)]
        assert visible == [True] * 1600

    @pytest.mark.behaviour(104)
    def test_a_listener_cannot_append_to_what_it_is_told_of(self, store: SessionStore) -> None:
        """It would change the order under the listeners after it. Elsewhere it may append."""
        header, other = make_header(), make_header()
        refused: list[str] = []

        def append_again(session_id: str, event: Event) -> None:
            if event.type == "custom/first":
                store.append(other.id, "custom/elsewhere", NOTHING)
                try:
                    store.append(session_id, "custom/again", NOTHING)
                except StoreError as error:
                    refused.append(str(error))

        store.observe(append_again)
        store.create(header)
        store.create(other)
        store.append(header.id, "custom/first", NOTHING)
        assert store.flush(PATIENCE)
        assert store.flush(PATIENCE)
        assert len(refused) == 1
        assert header.id in refused[0]
        assert [event.type for event in store.load(header.id).events] == ["custom/first"]
        assert [event.type for event in store.load(other.id).events] == ["custom/elsewhere"]

    @pytest.mark.behaviour(105)
    def test_a_failing_observer_undoes_nothing_and_starves_nobody(
        self, store: SessionStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Neither a callback nor a listener that raises changes anything for the others."""
        header = make_header()
        called: list[str] = []

        def fail(error: BaseException | None) -> None:
            called.append("first callback")
            raise SystemExit("a callback's own trouble")

        def fail_too(session_id: str, event: Event) -> None:
            event.data["n"] = "changed"
            raise KeyError("a listener's own trouble")

        store.create(header)
        store.observe(fail_too)
        remove = store.observe(lambda _, event: called.append(f"listener {event.data['n']}"))
        assert store.append(header.id, "custom/a", encode({"n": 1}), on_commit=fail) == 0
        last = encode({"n": 2})
        store.append(header.id, "custom/b", last, on_commit=lambda error: called.append("second"))
        assert store.flush(PATIENCE)
        assert sorted(called) == ["first callback", "listener 1", "listener 2", "second"]
        assert [event.data for event in store.load(header.id).events] == [{"n": 1}, {"n": 2}]
        assert "a listener's own trouble" in caplog.text
        assert "a callback's own trouble" in caplog.text
        remove()
        store.append(header.id, "custom/c", encode({"n": 3}))
        assert store.flush(PATIENCE)
        assert "listener 3" not in called

    def test_a_callback_may_append_but_not_wait(self, store: SessionStore) -> None:
        """The writer waits for the callback, and could never answer it."""
        header = make_header()
        raised: list[Exception] = []
        done = threading.Event()

        def confirm(error: BaseException | None) -> None:
            store.append(header.id, "custom/second", NOTHING, on_commit=lambda e: done.set())
            waits: tuple[Callable[[], object], ...] = (
                lambda: store.flush(1),
                lambda: store.close(1),
                lambda: store.fork(header.id),
                lambda: store.delete(header.id),
            )
            for wait in waits:
                try:
                    wait()
                except StoreError as refused:
                    raised.append(refused)

        store.create(header)
        store.append(header.id, "custom/first", NOTHING, on_commit=confirm)
        assert done.wait(PATIENCE)
        types = [event.type for event in store.load(header.id).events]
        assert types == ["custom/first", "custom/second"]
        assert len(raised) == 4

    @pytest.mark.behaviour(99)
    def test_a_second_session_of_the_same_id_is_refused(self, store: SessionStore) -> None:
        """The first one is untouched."""
        header = make_header()
        store.create(header)
        with pytest.raises(StoreError, match="exists"):
            store.create(header)
        store.append(header.id, "custom/a", NOTHING)
        assert store.flush(PATIENCE)
        assert len(store.load(header.id).events) == 1

    def test_an_id_that_was_used_before_is_refused_at_the_commit(self, store: SessionStore) -> None:
        """What was appended to the second one goes nowhere; the others are written."""
        header, other = make_header(), make_header()
        store.create(header)
        store.append(header.id, "custom/a", NOTHING)
        store.set_status(header.id, "completed")
        assert store.flush(PATIENCE)
        errors: dict[str, BaseException | None] = {}
        store.create(header, on_commit=lambda error: errors.update(first=error))
        store.create(other, on_commit=lambda error: errors.update(other=error))
        store.flush(PATIENCE)
        assert "exists" in str(errors["first"])
        assert errors["other"] is None
        with pytest.raises(StoreError, match="exists"):
            store.append(header.id, "custom/later", NOTHING)
        assert [e.type for e in store.load(header.id).events] == ["custom/a"]
        assert store.flush(PATIENCE)

    def test_what_can_never_be_written_is_refused_at_once(self, store: SessionStore) -> None:
        """It would hold up everything behind it."""
        header = make_header()
        store.create(header)
        with pytest.raises(StoreError, match="bytes"):
            store.append(header.id, "custom/a", {"n": 1})  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="Unicode"):
            store.append(header.id, "custom/\ud800", NOTHING)
        with pytest.raises(MessageError):
            store.create(make_header(policy={"tool": object()}))
        assert store.append(header.id, "custom/grün", NOTHING) == 0
        assert store.flush(PATIENCE)

    def test_close_writes_what_is_queued_and_refuses_the_rest(self, store: SessionStore) -> None:
        """And may be called again."""
        header = make_header()
        errors: list[BaseException | None] = []
        store.create(header)
        for _ in range(100):
            store.append(header.id, "custom/a", NOTHING, on_commit=errors.append)
        assert store.close(PATIENCE)
        assert errors == [None] * 100
        assert store.close(PATIENCE)
        with pytest.raises(StoreError, match="closed"):
            store.append(header.id, "custom/a", NOTHING)
        with pytest.raises(StoreError, match="closed"):
            store.create(make_header())

    def test_a_store_that_was_never_written_to_closes(self, store: SessionStore) -> None:
        """It may not even have begun to write."""
        assert store.flush(0)
        with store as same:
            assert same is store

    def test_an_unknown_session_is_named(self, store: SessionStore) -> None:
        """Nothing is ever created by asking for it."""
        uses: tuple[Callable[[], object], ...] = (
            lambda: store.load("s-nope"),
            lambda: store.resolve("s-nope"),
            lambda: store.family("s-nope"),
            lambda: store.fork("s-nope"),
            lambda: store.delete("s-nope"),
            lambda: store.holder_of("s-nope"),
            lambda: store.acquire(["s-nope"]),
            lambda: store.append("s-nope", "custom/a", NOTHING),
            lambda: store.set_status("s-nope", "completed"),
        )
        for use in uses:
            with pytest.raises(SessionNotFound, match="s-nope"):
                use()
        assert store.list() == []
