"""turn.call and turn.checkpoint: nothing is done without a durable record of what led to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors import codec
from dsh_actors.agents import calls
from dsh_actors.agents.behaviour import behaviour
from dsh_actors.sessions import MemoryStore
from dsh_actors.sessions.recovery import repair
from dsh_actors.supervisor.lives import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dsh_actors.sessions import Event

KINDS = pytest.mark.parametrize("kind", ["plain", "async"])


class Store(MemoryStore):
    """A store whose commits can be held up, and that can refuse, by the type of the event."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: str | None = None
        self.fails: str | None = None
        self.hangs: str | None = None
        self.hanging: list[Callable[[], None]] = []
        self.hung = threading.Event()

    def append(self, session_id: str, type: str, data: bytes, *, on_commit: Any = None) -> int:
        if type == self.refuses:
            raise dsh.StoreError("the disk is full")
        if type == self.fails and on_commit is not None:
            inner = on_commit
            on_commit = lambda _: inner(dsh.StoreError("the disk is full"))  # noqa: E731
        if type == self.hangs and on_commit is not None:
            self.hanging.append(lambda then=on_commit: then(None))  # type: ignore[misc]
            on_commit = lambda _: self.hung.set()  # noqa: E731
        return super().append(session_id, type, data, on_commit=on_commit)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        yield made


def both(kind: str, do: Callable[[dsh.Turn, Any], Any]) -> Any:
    """A behaviour that does something and awaits what comes of it, if it is the async one."""
    if kind == "plain":

        def plain(turn: dsh.Turn, message: Any) -> Any:
            return do(turn, message)

        return plain

    async def is_async(turn: dsh.Turn, message: Any) -> Any:
        return await do(turn, message)

    return is_async


def log(store: MemoryStore, agent: dsh.Agent) -> list[Event]:
    assert store.flush(PATIENCE)
    assert agent.session_id is not None
    return store.load(agent.session_id)[1]


def of(events: list[Event], prefix: str) -> list[tuple[str, Any]]:
    return [(event.type, event.data) for event in events if event.type.startswith(prefix)]


# -- on the record -----------------------------------------------------------------------------


@KINDS
def test_a_call_is_recorded_before_it_is_made_and_its_result_after_it(
    store: Store, kind: str
) -> None:
    seen: list[list[str]] = []

    def pay(sum: int, *, to: str) -> dict[str, Any]:
        """All that led to this is durable by now, and can be read."""
        (info,) = store.list()
        seen.append([event.type for event in store.load(info.id)[1]])
        return {"paid": sum, "to": to}

    do = both(kind, lambda turn, message: turn.call("pay", pay, 3, to="me", idempotent=True))
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        assert agent.ask(None).result(PATIENCE) == {"paid": 3, "to": "me"}
        events = log(store, agent)
    assert seen == [["prompt/accepted", "turn/start", "tool/call", "tool/dispatch"]]
    message = events[0].data["id"]
    assert of(events, "tool/") == [
        ("tool/call", {
            "call": "1.1", "message": message, "name": "pay", "key": "pay#1",
            "args": {"args": [3], "kwargs": {"to": "me"}}, "idempotent": True,
        }),
        ("tool/dispatch", {"call": "1.1"}),
        ("tool/result", {
            "call": "1.1", "ok": True, "result": codec.encode({"paid": 3, "to": "me"}),
        }),
    ]  # fmt: skip
    assert [event.type for event in events][-1] == "turn/end"


@KINDS
def test_a_call_that_raises_is_recorded_and_raises(store: Store, kind: str) -> None:
    def fail() -> None:
        raise ValueError("no such account")

    do = both(kind, lambda turn, message: turn.call("pay", fail))
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        with pytest.raises(dsh.AgentFailed, match="ValueError: no such account"):
            agent.ask(None).result(PATIENCE)
        (_, _, (type, data)) = of(log(store, agent), "tool/")
    assert type == "tool/result"
    assert (data["ok"], data["error"]["type"]) == (False, "ValueError")
    assert "no such account" in data["error"]["traceback"]


def test_an_async_body_is_awaited(store: Store) -> None:
    async def fetch(what: str) -> str:
        return what.upper()

    async def do(turn: dsh.Turn, message: Any) -> Any:
        return await turn.call("fetch", fetch, message)

    with dsh.ActorSystem(store=store) as system:
        assert system.create(do).agent.ask("page").result(PATIENCE) == "PAGE"


def test_an_async_body_has_no_place_in_a_plain_behaviour(store: Store) -> None:
    async def fetch() -> None: ...

    def do(turn: dsh.Turn, message: Any) -> Any:
        return turn.call("fetch", fetch)

    with (
        dsh.ActorSystem(store=store) as system,
        pytest.raises(dsh.AgentFailed, match="make the behaviour async"),
    ):
        system.create(do).agent.ask(None).result(PATIENCE)


@KINDS
def test_without_a_store_it_is_just_called(kind: str) -> None:
    async def checked(turn: dsh.Turn, message: Any) -> Any:
        await turn.checkpoint()
        return await turn.call("add", lambda a, b: a + b, 2, b=3)

    def plain(turn: dsh.Turn, message: Any) -> Any:
        turn.checkpoint()
        return turn.call("add", lambda a, b: a + b, 2, b=3)

    with dsh.ActorSystem() as system:
        agent = system.create(plain if kind == "plain" else checked).agent
        assert agent.ask(None).result(PATIENCE) == 5


def test_a_result_that_cannot_be_recorded_is_an_error_with_a_store_and_without() -> None:
    def do(turn: dsh.Turn, message: Any) -> Any:
        turn.call("open", object)

    with Store() as made:
        for store in (None, made):
            with (
                dsh.ActorSystem(store=store) as system,
                pytest.raises(dsh.AgentFailed, match="in the result of call 'open'"),
            ):
                system.create(do).agent.ask(None).result(PATIENCE)


def test_arguments_that_are_no_plain_data_are_named_by_their_type(store: Store) -> None:
    def do(turn: dsh.Turn, message: Any) -> Any:
        return turn.call("len", lambda client, text: len(text), store, "abc")

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        assert agent.ask(None).result(PATIENCE) == 3
        intent = of(log(store, agent), "tool/")[0][1]
    assert intent["args"]["args"] == ["<Store>", "abc"]


@pytest.mark.parametrize(
    ("do", "problem"),
    [
        (lambda turn: turn.call("", print), "the name of a call is a text"),
        (lambda turn: turn.call("x", print, key=3), "the key of a call is a text"),
        (lambda turn: turn.call("x", 3), "there is nothing to call in 3"),
    ],
)
def test_a_wrong_use_is_told(do: Callable[[dsh.Turn], Any], problem: str) -> None:
    with dsh.ActorSystem() as system, pytest.raises(dsh.AgentFailed, match=problem):
        system.create(lambda turn, message: do(turn)).agent.ask(None).result(PATIENCE)


def test_a_hook_has_no_calls() -> None:
    class Eager(dsh.Behaviour):
        def on_start(self, turn: dsh.Turn) -> None:
            turn.checkpoint()
            turn.call("x", print)

        def on_message(self, turn: dsh.Turn, message: Any) -> None: ...

    with Store() as store, dsh.ActorSystem(store=store) as system:
        handle = system.create(Eager)
        handle.agent.when_idle().result(PATIENCE)
        receipt = handle.dispose().result(PATIENCE)
    assert "a start or stop hook works on no message" in str(receipt.agents[0].detail)


def test_calls_are_counted_by_name_and_by_message(store: Store) -> None:
    async def do(turn: dsh.Turn, message: Any) -> Any:
        first = turn.call("a", str, 1)
        second = turn.call("a", str, 2)
        assert await second == "2"  # in whatever order they are awaited
        assert await first == "1"
        return await turn.call("b", str, 3)

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        for _ in range(2):
            agent.ask(None).result(PATIENCE)
        intents = [data for type, data in of(log(store, agent), "tool/") if type == "tool/call"]
    keys = [(data["call"], data["key"]) for data in intents]
    assert keys == [
        ("1.2", "a#2"), ("1.1", "a#1"), ("1.3", "b#1"),
        ("2.2", "a#2"), ("2.1", "a#1"), ("2.3", "b#1"),
    ]  # fmt: skip


def test_a_second_call_with_the_same_key_gets_the_result_of_the_first(store: Store) -> None:
    made: list[int] = []

    def do(turn: dsh.Turn, message: Any) -> list[Any]:
        return [turn.call("pay", lambda n: made.append(n) or n, n, key="k") for n in (1, 2)]

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        assert agent.ask(None).result(PATIENCE) == [1, 1]
        assert agent.ask(None).result(PATIENCE) == [1, 1]  # another message, another call
    assert made == [1, 1]


# -- it fails closed ---------------------------------------------------------------------------

WHERE = pytest.mark.parametrize("event", ["tool/call", "tool/dispatch"])


@WHERE
@KINDS
def test_a_body_whose_intent_is_refused_does_not_run(store: Store, kind: str, event: str) -> None:
    ran: list[int] = []
    do = both(kind, lambda turn, message: turn.call("pay", ran.append, 1))
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        store.refuses = event
        with pytest.raises(dsh.AgentFailed, match=r"StoreError: call 'pay' was not made.*full"):
            agent.ask(None).result(PATIENCE)
        store.refuses = None
        closed = repair(log(store, agent), {})
    assert ran == []
    assert closed.closers == []  # what was recorded of it is closed as well


@KINDS
def test_a_body_whose_intent_is_not_committed_does_not_run(store: Store, kind: str) -> None:
    ran: list[int] = []
    do = both(kind, lambda turn, message: turn.call("pay", ran.append, 1))
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        store.fails = "tool/dispatch"
        with pytest.raises(dsh.AgentFailed, match=r"StoreError: call 'pay' was not made.*full"):
            agent.ask(None).result(PATIENCE)
    assert ran == []


@KINDS
def test_a_body_does_not_run_if_the_store_hangs(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "DEADLINE", 0.05)
    ran: list[int] = []
    do = both(kind, lambda turn, message: turn.call("pay", ran.append, 1))
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        store.hangs = "tool/dispatch"
        with pytest.raises(dsh.AgentFailed, match=r"not confirmed its intent within 0\.05 s"):
            agent.ask(None).result(PATIENCE)
        for late in store.hanging:  # too late: it has been given up, and is recorded as such
            late()
        results = of(log(store, agent), "tool/result")
    assert ran == []
    assert [data["error"] for _, data in results] == ["aborted before dispatch"]


@KINDS
def test_a_cancel_while_the_intent_is_recorded_comes_before_the_body(
    store: Store, kind: str
) -> None:
    ran: list[int] = []
    do = both(kind, lambda turn, message: turn.call("pay", ran.append, 1))
    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do).agent
        store.hangs = "tool/dispatch"
        answer = agent.ask(None)
        assert store.hung.wait(PATIENCE)
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            answer.result(PATIENCE)
        results = of(log(store, agent), "tool/result")
        assert agent.when_idle().result(PATIENCE) is None
    assert ran == []
    assert [data["error"] for _, data in results] == ["aborted before dispatch"]


@KINDS
def test_a_body_that_a_cancel_cuts_off_has_an_unknown_outcome(store: Store, kind: str) -> None:
    watch = Watch()

    async def slow(turn: dsh.Turn) -> None:
        turn.progress(note="slow")
        await turn.sleep(3600)

    def slow_plain(turn: dsh.Turn) -> None:
        turn.progress(note="slow")
        turn.sleep(3600)

    body: Any = slow if kind == "async" else slow_plain
    do = both(kind, lambda turn, message: turn.call("pay", body, turn))
    with dsh.ActorSystem(store=store, on_event=watch) as system:
        agent = system.create(do, id="a").agent
        answer = agent.ask(None)
        watch.see("progress", "a")
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            answer.result(PATIENCE)
        results = of(log(store, agent), "tool/result")
    assert [data["error"] for _, data in results] == ["outcome unknown"]


@KINDS
def test_a_checkpoint_returns_once_all_before_it_is_durable(store: Store, kind: str) -> None:
    passed = threading.Event()

    async def do_async(turn: dsh.Turn, message: Any) -> None:
        turn.remember("before", 1)
        await turn.checkpoint()
        passed.set()

    def do(turn: dsh.Turn, message: Any) -> None:
        turn.remember("before", 1)
        turn.checkpoint()
        passed.set()

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do if kind == "plain" else do_async).agent
        store.hangs = "turn/checkpoint"
        answer = agent.ask(None)
        assert store.hung.wait(PATIENCE)
        (info,) = store.list()
        assert "custom/before" in [event.type for event in store.load(info.id)[1]]
        assert not passed.is_set()
        (late,) = store.hanging
        late()
        answer.result(PATIENCE)
    assert passed.is_set()


@pytest.mark.parametrize("how", ["refuses", "fails", "hangs"])
@KINDS
def test_a_checkpoint_that_cannot_be_made_fails(
    store: Store, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "DEADLINE", 0.05)
    passed: list[int] = []

    async def do_async(turn: dsh.Turn, message: Any) -> None:
        await turn.checkpoint()
        passed.append(1)

    def do(turn: dsh.Turn, message: Any) -> None:
        turn.checkpoint()
        passed.append(1)

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do if kind == "plain" else do_async, id="a").agent
        setattr(store, how, "turn/checkpoint")
        with pytest.raises(dsh.AgentFailed, match=r"turn 1 of agent 'a' has done.* not durable"):
            agent.ask(None).result(PATIENCE)
    assert passed == []


def test_waiting_for_the_store_holds_up_no_other_async_turn(store: Store) -> None:
    async def do(turn: dsh.Turn, message: Any) -> Any:
        if message == "calls":
            await turn.call("x", str, 1)
        return message

    with dsh.ActorSystem(store=store) as system:
        waits, goes_on = system.create(do).agent, system.create(do).agent
        store.hangs = "tool/dispatch"
        answer = waits.ask("calls")
        assert store.hung.wait(PATIENCE)
        assert goes_on.ask("other").result(PATIENCE) == "other"
        store.hanging[0]()
        assert answer.result(PATIENCE) == "calls"


# -- a turn that is tried again ----------------------------------------------------------------


def crashed(store: Store, do: Any, gate: Gate, message: Any = None) -> list[Event]:
    """Run a behaviour up to a gate, and return the log as a crash there would leave it."""
    with dsh.ActorSystem(store=store, stop_grace=PATIENCE) as system:
        agent = system.create(do).agent
        agent.send(message)
        gate.reached()
        events = log(store, agent)
        gate.open()
    return events


def next_life(system: dsh.ActorSystem, do: Any, events: list[Event], policy: str) -> Any:
    """Start the next life of an agent from its log, with what is in its inbox."""
    found = repair(events, {"interrupted": policy}).recovered
    supervisor = system._supervisor
    spec = supervisor.factory.spec(do, None, "temporary", None)
    life = Life(spec, settles=False)
    life.turns, life.calls = found.turns, found.carried()
    node = supervisor.factory.create(spec, life=life)
    return node, found.inbox


def again(store: Store, do: Any, events: list[Event]) -> Any:
    """Try the interrupted message again in a new system; its answer."""
    with dsh.ActorSystem(store=store) as system:
        node, (prompt,) = next_life(system, do, events, "retry")
        system._core.next_message = lambda: prompt.id
        return system._supervisor.agent(node).ask(codec.decode(prompt.body)).result(PATIENCE)


@KINDS
def test_a_retried_turn_gets_the_results_that_are_on_the_record(store: Store, kind: str) -> None:
    gate, made = Gate(), []

    def pay(sum: int) -> dict[str, int]:
        made.append(sum)
        return {"paid": sum}

    def plain(turn: dsh.Turn, message: Any) -> Any:
        paid = [turn.call("pay", pay, 1), turn.call("pay", pay, 2, key="k")]
        gate.hold()
        return [*paid, turn.call("pay", pay, 3)]

    async def is_async(turn: dsh.Turn, message: Any) -> Any:
        paid = [await turn.call("pay", pay, 1), await turn.call("pay", pay, 2, key="k")]
        gate.hold()
        return [*paid, await turn.call("pay", pay, 3)]

    do = plain if kind == "plain" else is_async
    events = crashed(store, do, gate)
    made.clear()
    assert again(store, do, events) == [{"paid": 1}, {"paid": 2}, {"paid": 3}]
    assert made == [3]


def test_what_had_failed_is_told_and_not_made_again(store: Store) -> None:
    gate, made = Gate(), []

    def pay() -> None:
        made.append(1)
        raise ValueError("no such account")

    def do(turn: dsh.Turn, message: Any) -> Any:
        try:
            turn.call("pay", pay)
        except (ValueError, dsh.CallFailed) as error:
            gate.hold()
            return str(error)

    events = crashed(store, do, gate)
    assert again(store, do, events) == "ValueError: no such account"
    assert made == [1]


@KINDS
def test_an_unknown_outcome_is_told_and_the_call_not_made_again(store: Store, kind: str) -> None:
    gate, made = Gate(), []

    def pay(sum: int) -> None:
        made.append(sum)
        gate.hold()

    def told(error: dsh.OutcomeUnknown, turn: dsh.Turn) -> list[Any]:
        (unknown,) = turn.unknown_calls
        return [error.name, error.key, error.call_args, unknown.call_args == error.call_args]

    def plain(turn: dsh.Turn, message: Any) -> Any:
        try:
            turn.call("pay", pay, 3)
        except dsh.OutcomeUnknown as error:
            return told(error, turn)

    async def is_async(turn: dsh.Turn, message: Any) -> Any:
        try:
            await turn.call("pay", pay, 3)
        except dsh.OutcomeUnknown as error:
            return told(error, turn)

    do = plain if kind == "plain" else is_async
    events = crashed(store, do, gate)
    made.clear()
    assert again(store, do, events) == ["pay", "pay#1", {"args": [3], "kwargs": {}}, True]
    assert made == []


def test_an_idempotent_call_is_made_again(store: Store) -> None:
    gate, made = Gate(), []

    def put() -> str:
        made.append(1)
        gate.hold()
        return "there"

    def do(turn: dsh.Turn, message: Any) -> Any:
        return turn.call("put", put, idempotent=True)

    events = crashed(store, do, gate)
    made.clear()
    assert again(store, do, events) == "there"
    assert made == [1]


def test_a_call_that_was_recorded_and_not_dispatched_is_simply_made(store: Store) -> None:
    gate, made = Gate(), []

    def do(turn: dsh.Turn, message: Any) -> Any:
        turn.call("pay", lambda: gate.hold() or made.append(1))
        return "done"

    events = crashed(store, do, gate)
    made.clear()
    cut = [event for event in events if event.type != "tool/dispatch"]
    assert again(store, do, cut) == "done"
    assert made == [1]


def test_an_agent_whose_message_was_failed_hears_of_the_unknown_outcome_as_well(
    store: Store,
) -> None:
    gate = Gate()

    def do(turn: dsh.Turn, message: Any) -> Any:
        if message is None:
            turn.call("pay", gate.hold)
        return [list(call) for call in turn.unknown_calls]

    events = crashed(store, do, gate)
    with dsh.ActorSystem(store=store) as system:
        node, inbox = next_life(system, do, events, "fail")
        assert inbox == ()
        (unknown,) = system._supervisor.agent(node).ask("next").result(PATIENCE)
        assert unknown[1:] == ["pay", "pay#1", {"args": [], "kwargs": {}}, False]


def test_a_key_that_belongs_to_another_call_is_told(store: Store) -> None:
    gate = Gate()

    def first(turn: dsh.Turn, message: Any) -> Any:
        turn.call("pay", str, 1, key="k")
        gate.hold()

    def second(turn: dsh.Turn, message: Any) -> Any:
        turn.call("mail", str, 1, key="k")

    events = crashed(store, first, gate)
    with pytest.raises(dsh.AgentFailed, match="the key 'k' belongs to a call of 'pay'"):
        again(store, second, events)


# -- what becomes of an interrupted message ----------------------------------------------------


@behaviour(interrupted="retry")
def retried(turn: dsh.Turn, message: Any) -> Any:
    return message


class Retried(dsh.Behaviour):
    interrupted = "retry"

    def on_message(self, turn: dsh.Turn, message: Any) -> Any:
        return message


def untold(turn: dsh.Turn, message: Any) -> Any:
    return message


@pytest.mark.parametrize("isolation", ["inline", "pool"])
@pytest.mark.parametrize(
    ("do", "asked", "policy"),
    [
        (untold, None, None),
        (untold, "retry", "retry"),
        (retried, None, "retry"),
        (Retried, None, "retry"),
        (retried, "fail", "fail"),
    ],
)
def test_the_policy_is_in_the_header(
    store: Store, isolation: str, do: Any, asked: Any, policy: str | None
) -> None:
    with dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(do, isolation=isolation, interrupted=asked).agent
        assert agent.session_id is not None
        assert store.flush(PATIENCE)
        assert store.load(agent.session_id)[0].options["interrupted"] == policy


def test_a_wrong_policy_is_told() -> None:
    with dsh.ActorSystem() as system, pytest.raises(dsh.UsageError, match="one of fail, retry"):
        system.create(untold, interrupted="ignore")  # type: ignore[arg-type]
    with pytest.raises(dsh.UsageError, match="one of fail, retry"):
        behaviour(interrupted="ignore")  # type: ignore[call-overload]


def test_a_class_with_a_wrong_policy_is_told() -> None:
    class Wrong(dsh.Behaviour):
        interrupted = "ignore"  # type: ignore[assignment]

        def on_message(self, turn: dsh.Turn, message: Any) -> None: ...

    with dsh.ActorSystem() as system, pytest.raises(dsh.BehaviourError, match="one of fail, retry"):
        system.create(Wrong)


def test_what_turns_spend_is_on_the_record(store: Store) -> None:
    def do(turn: dsh.Turn, message: Any) -> None:
        turn.spend(tokens=5, cost=0.25)
        turn.spend(tokens=2)

    with dsh.ActorSystem(store=store) as system:
        agent = system.create(do, budget=dsh.Budget(tokens=100, cost=9.0)).agent
        agent.ask(None).result(PATIENCE)
        found = repair(log(store, agent), {}).recovered
    assert (found.tokens, found.cost, found.begun) == (7, 0.25, 1)
