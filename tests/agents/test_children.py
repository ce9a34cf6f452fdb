"""Children of a turn: they follow its signal, end with it, and what becomes of them is a value."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh

EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])


@EVERYWHERE
def test_a_childs_failure_is_a_value(isolation: str) -> None:
    def parent(turn: dsh.Turn, message: Any) -> Any:
        return list(turn.run(behaviours.fail, "no", isolation=isolation).result(PATIENCE))

    with dsh.ActorSystem(workers=1) as system:
        outcome = system.create(parent).agent.ask(None).result(PATIENCE)
    assert outcome[:4] == ["failed", None, "ValueError", "no"]
    assert "Traceback" in outcome[4]


@EVERYWHERE
def test_as_settled_gives_what_is_finished_though_one_hangs(isolation: str) -> None:
    """The hanging one is cancelled by then, and its outcome comes last, as a value too."""

    def parent(turn: dsh.Turn, message: Any) -> list[Any]:
        jobs = [turn.run(behaviours.echo, n, isolation=isolation) for n in range(5)]
        jobs.append(turn.run(behaviours.wait, None, id="hangs", isolation=isolation))
        seen = []
        for job in dsh.as_settled(jobs):
            seen.append(job.outcome.value if job.outcome.ok else job.outcome.kind)
            if len(seen) == 5:
                turn.child("hangs").cancel()
        return seen

    async def parent_async(turn: dsh.Turn, message: Any) -> list[Any]:
        jobs = [turn.run(behaviours.echo, n, isolation=isolation) for n in range(5)]
        jobs.append(turn.run(behaviours.wait, None, id="hangs", isolation=isolation))
        seen = []
        async for job in dsh.as_settled(jobs):
            seen.append(job.outcome.value if job.outcome.ok else job.outcome.kind)
            if len(seen) == 5:
                turn.child("hangs").cancel()
        return seen

    with dsh.ActorSystem(workers=1) as system:
        for behaviour in (parent, parent_async):
            seen = system.create(behaviour).agent.ask(None).result(PATIENCE)
            assert sorted(seen[:5]) == [0, 1, 2, 3, 4]
            assert seen[5] == "aborted"


@EVERYWHERE
def test_one_shots_end_with_the_turn_that_started_them(isolation: str) -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.run(behaviours.wait, None, id="child", isolation=isolation)
        watch.see("progress", "child")

    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        agent = system.create(parent, id="parent").agent
        agent.ask(None).result(PATIENCE)
        assert watch.see("agent/ended", "child")["outcome"] == "aborted"
        assert agent.status == "idle"


@EVERYWHERE
def test_one_shots_follow_a_plain_cancel_and_continuable_children_do_not(isolation: str) -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(behaviours.wait, None, id="kept", isolation=isolation)
        turn.run(behaviours.wait, None, id="shot", isolation=isolation)
        watch.see("progress", "kept")
        watch.see("progress", "shot")
        turn.progress(note="ready")
        turn.sleep(3600)

    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        agent = system.create(parent, id="parent").agent
        reply = agent.ask(None)
        watch.see("progress", "parent")
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)
        assert watch.see("agent/ended", "shot")["outcome"] == "aborted"
        kept = system.agent("kept")
        assert kept.status == "running"
        agent.cancel(tree=True)
        assert kept.when_idle().result(PATIENCE) is None


@pytest.mark.behaviour(148)
@EVERYWHERE
def test_an_interrupted_child_keeps_its_inbox_and_the_cause_is_parent(isolation: str) -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> list[Any]:
        child = turn.spawn(behaviours.wait_or_echo, "hello", id="child", isolation=isolation)
        running = child.ask("wait")
        watch.see("progress", "child")
        queued = child.ask("queued")
        child.interrupt()
        error = running.exception(PATIENCE)
        assert isinstance(error, dsh.TurnAborted)
        child.send("wake")
        return [error.cause, queued.result(PATIENCE)]

    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        assert system.create(parent).agent.ask(None).result(PATIENCE) == ["parent", "queued"]


@EVERYWHERE
def test_a_turn_that_is_over_starts_no_children(isolation: str) -> None:
    """A task that outlived its turn could; in a worker its agent never came to rest again."""
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        handle = system.create(behaviours.leaves_a_task, id="p", isolation=isolation)
        handle.agent.ask(None).result(PATIENCE)
        note = watch.see("progress", "p")["note"]
        assert note.startswith("UsageError: turn 1 of agent 'p' is over")
        assert handle.agent.ask(None).result(PATIENCE) is None
        assert handle.dispose().result(PATIENCE).complete
        assert not [e for e in watch.of("worker/ended") if not e["expected"]]


def test_a_request_that_fails_in_an_unknown_way_ends_no_worker() -> None:
    """An id that is no text ended the link of the worker, and all agents in it."""
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviours.runs_with_bad_id, isolation="pool").agent
        kind, error_type, error = agent.ask(None).result(PATIENCE)
        assert (kind, error_type) == ("failed", "UsageError")
        assert "the id of an agent is a text, not ['x']" in error
        assert agent.ask(None).result(PATIENCE)


@EVERYWHERE
def test_ids_are_unique_and_free_again_at_the_end(isolation: str) -> None:
    def parent(turn: dsh.Turn, message: Any) -> list[Any]:
        return [
            turn.run(behaviours.echo, n, id="x", isolation=isolation).result().value
            for n in range(3)
        ]

    with dsh.ActorSystem(workers=1) as system:
        assert system.create(parent).agent.ask(None).result(PATIENCE) == [0, 1, 2]
        system.create(behaviours.echo, id="x")
        with pytest.raises(dsh.DuplicateId, match="'x' is alive"):
            system.create(behaviours.echo, id="x", isolation=isolation)


def test_a_left_over_task_is_cancelled_with_its_loop() -> None:
    tasks = []

    async def leaves(turn: dsh.Turn, message: Any) -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(3600)))

    with dsh.ActorSystem() as system:
        system.create(leaves).agent.ask(None).result(PATIENCE)
    assert tasks[0].cancelled()


def test_a_cancelled_turn_starts_nothing_more() -> None:
    gate, refused = Gate(), []

    def parent(turn: dsh.Turn, message: Any) -> None:
        gate.hold()
        for start in (turn.run, turn.spawn):
            with pytest.raises(dsh.Cancelled) as caught:
                start(behaviours.echo, 1)
            refused.append(caught.value.cause)
        turn.check()

    with dsh.ActorSystem() as system:
        agent = system.create(parent).agent
        reply = agent.ask(None)
        gate.reached()
        agent.cancel()
        gate.open()
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)
    assert refused == ["user", "user"]
