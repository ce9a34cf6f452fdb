"""The scope by itself: registration, early take-back, and one end for all callers."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from watching import PATIENCE, Gate, in_threads

import dsh_actors as dsh
from dsh_actors.agents.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def at(gate: Gate) -> Callable[[], Callable[[], None]]:
    """A set-up whose release holds at the gate."""
    return lambda: gate.hold


def registrations(scope: Scope) -> list[Callable[[], Any]]:
    """Each kind of registration, as a call."""
    return [
        lambda: scope.effect(lambda: None),
        lambda: scope.effect(lambda: print),
        lambda: scope.listen("event", print),
        lambda: scope.tool("late", print),
        lambda: scope.section("late", "text"),
        lambda: scope.plugin(lambda below: None),
    ]


@pytest.mark.behaviour(118)
def test_the_raw_disposer_comes_first_and_the_memoised_one_still_waits() -> None:
    scope, gate = Scope("a"), Gate()
    raw = scope.effect(at(gate))
    thread = threading.Thread(target=raw)
    thread.start()
    gate.reached()  # the release is in progress, and the raw disposer is through
    raw()  # single-shot: a second call returns at once
    ended = scope.dispose()
    assert scope.dispose() is ended
    assert not ended.done()
    with pytest.raises(TimeoutError):
        ended.result(0.01)  # a waiter's own time-out holds
    gate.open()
    ended.result(PATIENCE)
    assert scope.state == "disposed"
    thread.join(PATIENCE)


@pytest.mark.behaviour(118)
def test_a_load_in_progress_is_awaited_and_taken_back() -> None:
    scope, gate, undone = Scope("a"), Gate(), threading.Event()

    def setup() -> Callable[[], None]:
        gate.hold()
        return undone.set

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        loading = pool.submit(scope.effect, setup)
        gate.reached()
        ended = scope.dispose()
        assert (scope.state, ended.done()) == ("unloading", False)
        gate.open()
        ended.result(PATIENCE)
        assert undone.is_set()  # what the set-up did is not left, and nobody calls it loaded
        with pytest.raises(dsh.ScopeInactive):
            loading.result(PATIENCE)


@pytest.mark.behaviour(118)
def test_the_load_and_the_unload_of_a_plugin_are_awaited() -> None:
    scope, loading, unloading = Scope("a"), Gate(), Gate()

    def plugin(below: Scope) -> None:
        below.effect(at(unloading))
        loading.hold()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        made = pool.submit(scope.plugin, plugin)
        loading.reached()
        ended = scope.dispose()
        loading.open()
        unloading.reached()
        assert not ended.done()
        unloading.open()
        ended.result(PATIENCE)
        with pytest.raises(dsh.ScopeInactive):
            made.result(PATIENCE)


def test_a_plugin_that_ends_ahead_is_awaited_by_the_scope_around_it() -> None:
    scope, gate = Scope("a"), Gate()
    below = scope.plugin(lambda below: below.effect(at(gate)))
    first = below.dispose()
    gate.reached()
    whole = scope.dispose()
    assert not whole.done()
    gate.open()
    first.result(PATIENCE)
    whole.result(PATIENCE)


@pytest.mark.behaviour(118)
def test_many_callers_of_dispose_run_one_body() -> None:
    released = []
    scope = Scope("a")
    for number in range(3):
        scope.effect(lambda number=number: lambda: released.append(number))
    futures = in_threads(32, lambda _: scope.dispose())
    assert len(set(futures)) == 1
    futures[0].result(PATIENCE)
    assert sorted(released) == [0, 1, 2]


@pytest.mark.behaviour(119)
def test_everything_that_was_registered_is_removed() -> None:
    scope, calls = Scope("a"), []

    def plugin(below: Scope) -> None:
        below.tool("of-plugin", len)
        below.listen("event", lambda: calls.append("of-plugin"))
        below.effect(lambda: lambda: calls.append("plugin undone"))
        below.plugin(lambda deep: deep.section("deep", "text"))

    scope.effect(lambda: lambda: calls.append("effect undone"))
    scope.tool("search", len)
    scope.section("style", lambda: "be brief")
    scope.listen("event", lambda: calls.append("listener"))
    below = scope.plugin(plugin)
    assert set(scope.tools) == {"search", "of-plugin"}
    assert scope.sections == {"style": "be brief", "deep": "text"}
    scope.emit("event")
    assert calls == ["listener", "of-plugin"]
    calls.clear()

    scope.dispose().result(PATIENCE)
    assert sorted(calls) == ["effect undone", "plugin undone"]
    assert (scope.tools, scope.sections, below.tools) == ({}, {}, {})
    scope.emit("event")
    below.emit("event")
    assert len(calls) == 2
    assert (scope.state, below.state) == ("disposed", "disposed")


def test_one_thing_is_taken_back_ahead_of_the_rest() -> None:
    scope, calls = Scope("a"), []
    undo = scope.effect(lambda: lambda: calls.append("undone"))
    tool = scope.tool("search", len)
    listener = scope.listen("event", lambda: calls.append("heard"))
    below = scope.plugin(lambda below: below.tool("other", len))
    for take_back in (undo, tool, listener):
        take_back()
        take_back()
    below.dispose().result(PATIENCE)
    scope.emit("event")
    assert (calls, scope.tools) == (["undone"], {})
    scope.tool("search", max)  # the name is free again
    with pytest.raises(dsh.UsageError, match="has a tool 'search' already"):
        scope.tool("search", min)
    scope.dispose().result(PATIENCE)
    assert calls == ["undone"]


@pytest.mark.behaviour(120)
def test_nothing_can_be_registered_once_it_unloads() -> None:
    scope, gate = Scope("a"), Gate()
    scope.effect(at(gate))
    below = scope.plugin(lambda below: None)
    ended = scope.dispose()
    gate.reached()
    for each in (*registrations(scope), *registrations(below)):  # it is refused from UNLOADING on
        with pytest.raises(dsh.ScopeInactive, match="the scope of a is ending"):
            each()
    gate.open()
    ended.result(PATIENCE)
    for each in registrations(scope):
        with pytest.raises(dsh.ScopeInactive):
            each()


@pytest.mark.behaviour(120)
@pytest.mark.parametrize("attempt", range(20))
def test_what_races_with_the_end_is_removed_or_refused(attempt: int) -> None:
    scope = Scope("a")
    done: list[int] = []
    undone: list[int] = []

    def register(number: int) -> Any:
        if number == 7:
            return scope.dispose()

        def setup() -> Callable[[], None]:
            done.append(number)
            return lambda: undone.append(number)

        for _ in range(20):
            scope.effect(setup)
            scope.plugin(lambda below: below.effect(setup))
            scope.tool(f"{number}-{len(done)}", len)
            scope.listen("event", print)
        return None

    results = in_threads(16, register)
    scope.dispose().result(PATIENCE)
    assert sorted(done) == sorted(undone)
    assert scope.tools == {}
    assert (scope._tables.listeners, scope._entries, scope._unfinished) == ({}, {}, 0)
    refused = [each for each in results if isinstance(each, BaseException)]
    assert all(isinstance(each, dsh.ScopeInactive) for each in refused), refused


@pytest.mark.behaviour(122)
def test_sibling_effects_are_released_at_the_same_time() -> None:
    scope, barrier = Scope("a"), threading.Barrier(3)
    for _ in range(2):
        scope.effect(lambda: lambda: barrier.wait(PATIENCE))
    scope.plugin(lambda below: below.effect(lambda: lambda: barrier.wait(PATIENCE)))
    scope.dispose().result(PATIENCE)  # a broken barrier would be its error


@pytest.mark.behaviour(122)
def test_the_parts_of_one_effect_are_released_last_in_first_out() -> None:
    scope, order = Scope("a"), []

    def parts() -> Iterator[Callable[[], None]]:
        for number in range(5):
            yield lambda number=number: order.append(number)

    scope.effect(parts)
    scope.dispose().result(PATIENCE)
    assert order == [4, 3, 2, 1, 0]


def test_a_set_up_that_fails_half_way_undoes_what_it_did() -> None:
    scope, order = Scope("a"), []

    def setup() -> Iterator[Callable[[], None]]:
        yield lambda: order.append("first")
        yield lambda: order.append("second")
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        scope.effect(setup)
    assert order == ["second", "first"]

    def plugin(below: Scope) -> None:
        below.tool("search", len)
        raise OSError("no plugin")

    with pytest.raises(OSError, match="no plugin"):
        scope.plugin(plugin)
    assert scope.tools == {}
    scope.dispose().result(PATIENCE)


def test_all_that_went_wrong_is_told_in_one_group_after_all_have_run() -> None:
    scope, released = Scope("a"), []

    def broken(name: str) -> None:
        released.append(name)
        raise ValueError(name)

    scope.effect(lambda: [lambda: broken("a"), lambda: broken("b"), lambda: released.append("c")])
    scope.plugin(lambda below: below.effect(lambda: lambda: broken("p")))
    with pytest.raises(ExceptionGroup, match="disposing the scope of a") as caught:
        scope.dispose().result(PATIENCE)
    assert sorted(released) == ["a", "b", "c", "p"]
    plugins = [each for each in caught.value.exceptions if isinstance(each, ExceptionGroup)]
    plain = [each for each in caught.value.exceptions if each not in plugins]
    assert sorted(str(each) for each in plain) == ["a", "b"]
    assert [str(each) for group in plugins for each in group.exceptions] == ["p"]
    assert scope.state == "disposed"


def test_a_raw_disposer_raises_what_goes_wrong() -> None:
    scope = Scope("a")

    def broken() -> None:
        raise ValueError("stuck")

    raw = scope.effect(lambda: broken)
    with pytest.raises(ValueError, match="stuck"):
        raw()
    both = scope.effect(lambda: [broken, broken])
    with pytest.raises(ExceptionGroup, match="taking back an effect of a"):
        both()
    scope.dispose().result(PATIENCE)  # told once, to whoever took it back


@pytest.mark.parametrize("kind", [dsh.Future, concurrent.futures.Future, pykka.ThreadingFuture])
def test_a_release_that_goes_on_in_a_future_is_awaited(kind: Any) -> None:
    scope, future = Scope("a"), kind()
    gate = Gate()
    gate.open()

    def release() -> Any:
        gate.hold()
        return future

    scope.effect(lambda: release)
    ended = scope.dispose()
    gate.reached()
    assert not ended.done()
    (future.set if hasattr(future, "set") else future.set_result)(None)
    ended.result(PATIENCE)


def test_a_release_cannot_be_async() -> None:
    async def release() -> None: ...

    scope = Scope("a")
    scope.effect(lambda: release)
    with pytest.raises(ExceptionGroup) as caught:
        scope.dispose().result(PATIENCE)
    assert "plain function" in str(caught.value.exceptions[0])


@pytest.mark.behaviour(118)
def test_a_release_must_not_wait_for_its_own_scope() -> None:
    scope = Scope("a")
    below = scope.plugin(lambda below: below.effect(lambda: lambda: scope.dispose().result()))
    with pytest.raises(ExceptionGroup) as caught:
        scope.dispose().result(PATIENCE)
    (inner,) = caught.value.exceptions
    assert isinstance(inner, ExceptionGroup)
    assert isinstance(inner.exceptions[0], dsh.UsageError)
    assert below.state == "disposed"
    other = Scope("b")
    with pytest.raises(dsh.UsageError, match="do not wait here"):
        other.effect(lambda: other.dispose().result())
    other.dispose().result(PATIENCE)


def test_a_failing_listener_keeps_the_event_from_nobody() -> None:
    scope, heard = Scope("a"), []

    def broken(word: str) -> None:
        raise ValueError(word)

    scope.listen("event", broken)
    second = scope.listen("event", lambda word: [heard.append(word), second()])
    scope.listen("event", lambda word: heard.append(word.upper()))
    scope.emit("event", "one")
    scope.emit("event", "two")
    scope.emit("nobody")
    assert heard == ["one", "ONE", "TWO"]
    scope.dispose().result(PATIENCE)
