"""A worker that dies takes its own agents with it, and nobody else; and what restarts."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import worker_behaviours as behaviours
from watching import PATIENCE, Gate, Watch

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path


def pid_of(system: dsh.ActorSystem, id: str) -> int:
    return next(node.pid for node in system.tree() if node.id == id)


@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_the_asks_in_flight_fail_at_once_and_later_ones_too(isolation: str) -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        agent = system.create(behaviours.wait, id="w", isolation=isolation).agent
        replies = [agent.ask(number) for number in range(3)]
        watch.see("progress", "w")
        pid = pid_of(system, "w")
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        for reply in replies:
            with pytest.raises(dsh.AgentLost, match=f"worker process {pid} was killed by SIGKILL"):
                reply.result(PATIENCE)
        assert time.monotonic() - killed < 1.0
        with pytest.raises(dsh.AgentGone):
            agent.ask("later")
        assert watch.see("agent/ended", "w")["outcome"] == "lost"
        assert agent.status == "lost"
        with pytest.raises(dsh.AgentGone, match=r"has ended \(lost\)"):
            agent.send("much later")
    assert not watch.see("worker/ended", pid=pid)["expected"]
    ended = next(process for process in system.receipt().processes if process.pid == pid)
    assert (ended.ended, ended.signal) == ("killed", "SIGKILL")


def test_only_the_agents_of_the_dead_worker_are_lost() -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=2, on_event=watch) as system:
        dying = system.create(behaviours.die_on, id="dying", isolation="own")
        others = {
            isolation: system.create(behaviours.wait_or_echo, id=isolation, isolation=isolation)
            for isolation in ("inline", "pool", "own")
        }
        waiting = [other.agent.ask("wait") for other in others.values()]
        for isolation in others:
            watch.see("progress", isolation)
        assert isinstance(dying.agent.ask("die").exception(PATIENCE), dsh.AgentLost)
        watch.see("agent/ended", "dying")
        assert not any(reply.done() for reply in waiting)
        for other in others.values():
            other.agent.interrupt()
            assert other.agent.ask("still here").result(PATIENCE) == "still here"


def test_a_lost_child_is_a_value_for_its_parent() -> None:
    def parent(turn: dsh.Turn, isolation: str) -> Any:
        outcome = turn.run(behaviours.die, None, isolation=isolation).result(PATIENCE)
        with pytest.raises(dsh.AgentLost):
            outcome.unwrap()
        return [outcome.kind, outcome.error]

    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(parent).agent
        for isolation in ("pool", "own"):
            kind, error = agent.ask(isolation).result(PATIENCE)
            assert kind == "lost"
            assert "was killed by SIGKILL" in error


def test_the_children_of_a_lost_agent_end_with_it() -> None:
    watch = Watch()
    with dsh.ActorSystem(workers=2, on_event=watch) as system:
        system.create(behaviours.parent_of_waiting, id="p", isolation="own").agent.send(
            ["inline", "pool"]
        )
        watch.see("progress", count=2)
        os.kill(pid_of(system, "p"), signal.SIGKILL)
        watch.see("agent/ended", "p", outcome="lost")
        ended = [event["agent"] for event in watch.of("agent/ended")]
        assert ended[-1] == "p"
        assert len(ended) == 3
        assert system.tree() == []


# -- restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("isolation", ["pool", "own"])
def test_a_transient_agent_starts_again_and_goes_on_with_what_it_had_not_begun(
    isolation: str, stored: bool
) -> None:
    watch = Watch()
    with MemoryStore() as store:
        system = dsh.ActorSystem(workers=1, on_event=watch, store=store if stored else None)
        with system:
            agent = system.create(
                behaviours.wait_or_echo, id="a", isolation=isolation, restart="transient"
            ).agent
            begun = agent.ask("wait")
            watch.see("progress", "a")
            order: list[int] = []
            waiting = [agent.ask(number) for number in range(20)]
            for number, reply in enumerate(waiting):
                reply.add_done_callback(lambda _, number=number: order.append(number))
            first = pid_of(system, "a")
            os.kill(first, signal.SIGKILL)
            with pytest.raises(dsh.AgentLost):
                begun.result(PATIENCE)
            assert [reply.result(PATIENCE) for reply in waiting] == list(range(20))
            assert order == list(range(20))
            assert pid_of(system, "a") != first
            assert agent.ask("the same agent").result(PATIENCE) == "the same agent"
            assert len(watch.of("agent/restarted", "a")) == 1


def test_a_one_shot_runs_again_with_its_message(tmp_path: Path) -> None:
    def parent(turn: dsh.Turn, message: Any) -> Any:
        job = turn.run(behaviours.die_once, message, isolation="own", restart="transient")
        return list(job.result(PATIENCE))[:2]

    with dsh.ActorSystem() as system:
        agent = system.create(parent).agent
        assert agent.ask(str(tmp_path / "m")).result(PATIENCE) == ["completed", "survived"]


def test_too_many_restarts_are_the_end() -> None:
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> Any:
        job = turn.run(behaviours.die, None, id="d", isolation="own", restart="transient")
        return list(job.result(PATIENCE))

    with dsh.ActorSystem(on_event=watch) as system:
        outcome = system.create(parent).agent.ask(None).result(PATIENCE)
        assert outcome[0] == "lost"
        assert "restarted too often" in outcome[3]
        assert len(watch.of("agent/restarted", "d")) == 3
    (end,) = [end for end in system.receipt().agents if end.id == "d"]
    assert end.outcome == "lost"


def test_a_stop_of_an_agent_whose_worker_has_just_died_is_the_end_of_it() -> None:
    """It was started again after the receipt of its stop."""
    watch = Watch()
    with dsh.ActorSystem(workers=1, on_event=watch) as system:
        for number in range(5):
            id = f"s{number}"
            handle = system.create(behaviours.spin, id=id, isolation="own", restart="transient")
            handle.agent.send(None)
            watch.see("progress", id)
            pid = pid_of(system, id)
            if number % 2:
                stopped = handle.dispose()
                os.kill(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
                stopped = handle.dispose()
            assert stopped.result(PATIENCE).complete
            assert system.tree() == []
    assert not watch.of("agent/restarted")


def test_a_one_shot_that_was_through_is_not_run_again() -> None:
    """Its process died in its stop hook: it was reported lost, and run again."""
    watch = Watch()

    def parent(turn: dsh.Turn, message: Any) -> Any:
        job = turn.run(behaviours.DiesInStop, message, id="d", isolation="own", restart="transient")
        return list(job.result(PATIENCE))[:2]

    with dsh.ActorSystem(on_event=watch) as system:
        assert system.create(parent).agent.ask(5).result(PATIENCE) == ["completed", 5]
        assert len(watch.of("turn/start", "d")) == 1


def test_a_new_agent_never_goes_to_a_worker_that_is_dead() -> None:
    """Whatever the moment at which the worker dies, what is created then is answered."""
    with dsh.ActorSystem(workers=1) as system:
        pid = system.create(behaviours.pid, isolation="pool").agent.ask(None).result(PATIENCE)
        for _ in range(5):
            killer = threading.Thread(target=os.kill, args=(pid, signal.SIGKILL))
            killer.start()
            lost = 0
            while True:
                try:
                    agent = system.create(behaviours.pid, isolation="pool").agent
                    after = agent.ask(None).result(PATIENCE)
                except (dsh.AgentLost, dsh.AgentGone):
                    lost += 1
                    continue
                if after != pid:
                    break
            killer.join(PATIENCE)
            pid = after


def test_a_worker_that_ends_between_the_mark_and_the_disposal_is_not_forgotten() -> None:
    """Its end was told to a disposal that had not begun, which then waited for it for ever."""
    gate, watch = Gate(), Watch()

    def parent(turn: dsh.Turn, message: Any) -> None:
        turn.spawn(behaviours.wait, None, id="child", isolation="own")
        watch.see("progress", "child")
        turn.signal.add_callback(gate.hold)  # in the notify phase of the stop
        turn.progress(note="ready")
        turn.sleep(3600)

    with dsh.ActorSystem(on_event=watch) as system:
        system.create(parent, id="parent").agent.send(None)
        watch.see("progress", "parent")
        pid = system.tree()[0].children[0].pid
        stopping = threading.Thread(target=lambda: system.stop("parent").result(PATIENCE))
        stopping.start()
        gate.reached()
        swept, sweep = threading.Event(), system._supervisor.teardown._swept

        def sweep_and_tell(nodes: Any) -> None:
            sweep(nodes)
            swept.set()

        system._supervisor.teardown._swept = sweep_and_tell  # type: ignore[method-assign]
        os.kill(pid, signal.SIGKILL)
        assert swept.wait(PATIENCE)
        gate.open()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        assert system.tree() == []
