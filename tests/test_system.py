"""The front door: making, looking at and ending a whole system."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch, in_threads

import dsh_actors as dsh


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"stop_grace": -1.0}, "stop_grace must be at least 0, not -1.0"),
        ({"max_turns": 0}, "max_turns must be at least 1, not 0"),
        ({"inbox_limit": 0}, "inbox_limit must be at least 1, not 0"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(dsh.UsageError, match=says):
        dsh.ActorSystem(**options)


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("no_such_module_here:x", "no module 'no_such_module_here'"),
        ("worker_behaviours:ecko", "did you mean 'echo'"),
        ("worker_behaviours", "not of the form module:name"),
        ("./no_such_file.py:x", "there is no file ./no_such_file.py"),
        (5, "is not callable"),
        (int, "no subclass of dsh_actors.Behaviour"),
        (lambda turn: None, "it takes 1 positional parameter"),
    ],
)
def test_a_bad_behaviour_is_refused_and_leaves_nothing(behaviour: Any, says: str) -> None:
    with dsh.ActorSystem() as system:
        with pytest.raises(dsh.BehaviourError, match=says):
            system.create(behaviour)
        assert system.tree() == []


def test_bad_words_are_refused() -> None:
    with dsh.ActorSystem() as system:
        with pytest.raises(dsh.UsageError, match="isolation must be one of"):
            system.create(behaviours.echo, isolation="nowhere")
        restart: Any = "always"
        with pytest.raises(dsh.UsageError, match="restart must be one of"):
            system.create(behaviours.echo, restart=restart)
        bad: Any = 5
        with pytest.raises(dsh.UsageError, match="the id of an agent is a text, not 5"):
            system.create(behaviours.echo, id=bad)


def test_the_tree_shows_everything_that_lives() -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(behaviours.nested, id="n")
        handle.agent.send({"levels": ["pool", "inline"]})
        handle.agent.send({"levels": []})
        watch.see("progress", "n..")
        (root,) = system.tree()
        chain = [root, root.children[0], root.children[0].children[0]]
        assert [node.id for node in chain] == ["n", "n.", "n.."]
        assert [node.isolation for node in chain] == ["inline", "pool", "inline"]
        assert [node.status for node in chain] == ["running"] * 3
        assert chain[0].queued == 1
        assert chain[0].pid == chain[2].pid != chain[1].pid
        assert chain[2].progress == {"done": None, "total": None, "note": "waits"}
        assert all(node.started > 0 for node in chain)


def test_all_events_of_a_life_are_told_in_order() -> None:
    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(behaviours.echo, id="a")
        handle.agent.ask(1).result(PATIENCE)
        handle.dispose().result(PATIENCE)
    assert [event["type"] for event in watch.events if event.get("agent") == "a"] == [
        "agent/started", "turn/start", "turn/end", "agent/ended",
    ]  # fmt: skip


def test_an_observer_that_fails_changes_nothing() -> None:
    def fails(event: Any) -> None:
        raise RuntimeError("no")

    with dsh.ActorSystem(workers=1, on_event=fails) as system:
        for isolation in ("inline", "pool", "own"):
            handle = system.create(behaviours.echo, isolation=isolation)
            assert handle.agent.ask(1).result(PATIENCE) == 1
            assert handle.dispose().result(PATIENCE).complete


def test_all_callers_of_shutdown_share_one_outcome() -> None:
    system = dsh.ActorSystem(workers=1)
    for isolation in ("inline", "pool"):
        system.create(behaviours.echo, isolation=isolation).agent.ask(1).result(PATIENCE)
    futures = in_threads(16, lambda _: system.shutdown())
    receipts = {id(future.result(PATIENCE)) for future in futures}
    assert len(receipts) == 1
    assert system.tree() == []
    assert len(futures[0].result(0).agents) == 2


def test_after_a_shutdown_everything_new_is_refused() -> None:
    system = dsh.ActorSystem(workers=1)
    agent = system.create(behaviours.echo, id="a").agent
    system.shutdown().result(PATIENCE)
    for isolation in ("inline", "pool", "own"):
        with pytest.raises(dsh.SystemClosed):
            system.create(behaviours.echo, isolation=isolation)
    with pytest.raises(dsh.AgentGone):
        agent.send(1)
    with pytest.raises(dsh.AgentGone):
        system.agent("a")


@pytest.mark.parametrize("isolation", ["inline", "pool"])
def test_creations_race_a_shutdown(isolation: str) -> None:
    """Each agent is made and then ended, or refused; none is left."""
    for _ in range(5):
        system = dsh.ActorSystem(workers=1)
        system.create(behaviours.echo, isolation=isolation).agent.ask(1).result(PATIENCE)

        def create(number: int, system: dsh.ActorSystem = system) -> int:
            if number == 0:
                assert system.shutdown().result(PATIENCE).complete
                return 0
            made = 0
            try:
                for _ in range(100):
                    system.create(behaviours.echo, isolation=isolation).agent.send(1)
                    made += 1
            except (dsh.SystemClosed, dsh.AgentGone):
                return made
            return made

        results = in_threads(3, create)
        assert all(isinstance(result, int) for result in results), results
        assert system.tree() == []


def test_a_behaviour_cannot_wait_for_its_own_system() -> None:
    def embedded(turn: dsh.Turn, message: Any) -> None:
        with system:
            pass

    with dsh.ActorSystem() as system:
        reply = system.create(embedded).agent.ask(None)
        with pytest.raises(dsh.AgentFailed, match=r"call shutdown\(\)"):
            reply.result(PATIENCE)


def test_kill_now_ends_workers_whatever_they_do() -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, stop_grace=3600, on_event=watch) as system:
        for isolation in ("pool", "own"):
            agent = system.create(behaviours.spin, id=isolation, isolation=isolation).agent
            agent.send(None)
            watch.see("progress", isolation)
        system.kill_now()
        for isolation in ("pool", "own"):
            watch.see("agent/ended", isolation)
        receipt = system.shutdown().result(PATIENCE)
    assert {process.signal for process in receipt.processes} == {"SIGKILL"}


def test_futures_can_be_awaited_from_any_loop() -> None:
    async def use() -> list[Any]:
        with dsh.ActorSystem(workers=1) as system:
            handles = [system.create(behaviours.echo, isolation=i) for i in ("inline", "pool")]
            answers = await asyncio.gather(*(_ask(handle.agent, 5) for handle in handles))
            receipt = await handles[0].dispose()
            await system.shutdown()
            return [*answers, receipt.complete]

    async def _ask(agent: dsh.Agent, message: Any) -> Any:
        return await agent.ask(message)

    assert asyncio.run(use()) == [5, 5, True]


# -- async turns ---------------------------------------------------------------------------------


def test_a_thousand_async_turns_run_at_once() -> None:
    together = 0
    everybody = asyncio.Event()

    async def meet(turn: dsh.Turn, message: int) -> int:
        nonlocal together
        together += 1
        if together == 1000:
            everybody.set()
        await everybody.wait()
        return message

    with dsh.ActorSystem(max_turns=1) as system:
        replies = [system.create(meet).agent.ask(number) for number in range(1000)]
        assert [reply.result(PATIENCE) for reply in replies] == list(range(1000))


def test_a_swallowed_cancel_is_delivered_again() -> None:
    swallowed = []
    begun = threading.Event()

    async def stubborn(turn: dsh.Turn, message: Any) -> None:
        begun.set()
        for _ in range(3):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed.append(turn.signal.cause)
        await asyncio.sleep(3600)

    with dsh.ActorSystem() as system:
        agent = system.create(stubborn).agent
        reply = agent.ask(None)
        assert begun.wait(PATIENCE)
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)
    assert swallowed == ["user"] * 3


def test_a_cancellation_from_outside_is_a_failure_and_not_an_abort() -> None:
    async def cancels_itself(turn: dsh.Turn, message: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def raises(turn: dsh.Turn, message: Any) -> None:
        raise asyncio.CancelledError

    with dsh.ActorSystem() as system:
        for behaviour in (cancels_itself, raises):
            agent = system.create(behaviour).agent
            for _ in range(2):
                with pytest.raises(dsh.AgentFailed, match="CancelledError"):
                    agent.ask(None).result(PATIENCE)


def test_time_outs_and_task_groups_work_under_a_cancel() -> None:
    watch = Watch()

    async def uses_asyncio(turn: dsh.Turn, message: Any) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(3600)
        if message == "quick":
            return "done"
        turn.progress(note="waits")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(asyncio.sleep(3600))
        return "never"

    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(uses_asyncio, id="a").agent
        assert agent.ask("quick").result(PATIENCE) == "done"
        reply = agent.ask("slow")
        watch.see("progress", "a")
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)


def test_one_blocked_thread_holds_up_no_other_agent() -> None:
    gate = Gate()

    def hold(turn: dsh.Turn, message: Any) -> None:
        gate.hold()

    with dsh.ActorSystem(max_turns=64) as system:
        for _ in range(20):
            system.create(hold).agent.send(None)
        for _ in range(20):
            gate.reached()
        assert system.create(behaviours.echo).agent.ask(1).result(PATIENCE) == 1
        gate.open()
