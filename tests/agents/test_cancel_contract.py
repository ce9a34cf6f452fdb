"""What a cancel is and is not: the one way to stop work, no roll-back, no kill, no lost wake."""

from __future__ import annotations

import subprocess
import threading
from typing import Any

import psutil
import pytest

import dsh_actors as dsh
from tests.watching import PATIENCE, Watch


@pytest.mark.behaviour(1)
def test_cancel_is_the_only_verb_that_stops_work() -> None:
    verbs = {name for name in vars(dsh.Agent) if not name.startswith("_")}
    stopping = {
        name
        for name in verbs
        if any(word in name for word in ("cancel", "stop", "abort", "kill", "interrupt", "dispose"))
    }
    assert stopping == {"cancel", "interrupt"}

    class Post:
        calls: list[dict[str, Any]] = []  # noqa: RUF012

        def cancel(self, target: Any, **how: Any) -> None:
            self.calls.append(how)

    post: Any = Post()
    agent = dsh.Agent(post, None, "a", None)
    agent.interrupt()
    agent.cancel(keep_inbox=True)
    assert post.calls[0] == post.calls[1] == {"tree": False, "keep_inbox": True}


@pytest.mark.behaviour(14)
def test_after_the_signal_nothing_new_starts_though_what_has_started_may_finish() -> None:
    ran: list[int] = []
    first, opened = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def tool(turn: dsh.Turn, number: int) -> int:
        first.set()
        assert opened.wait(PATIENCE)  # started already, and it does not look at its signal
        ran.append(number)
        return number

    def model(turn: dsh.Turn, message: Any) -> None:
        turn.run(tool, 0)
        assert first.wait(PATIENCE)
        agent.cancel()  # from within the turn, as an observer of its answer would
        for number in range(1, 5):
            try:
                turn.run(tool, number)
            except dsh.Cancelled:
                outcomes.append("refused")
        opened.set()
        turn.check()

    watch = Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(model, id="model").agent
        with pytest.raises(dsh.TurnAborted):
            agent.ask(None).result(PATIENCE)
        agent.when_idle().result(PATIENCE)
    assert outcomes == ["refused"] * 4
    assert ran == [0]
    assert len(watch.of("agent/started")) == 2


@pytest.mark.behaviour(15, 16)
def test_a_cancel_undoes_nothing_and_kills_no_process_that_was_started(tmp_path: Any) -> None:
    written = tmp_path / "written"
    started: list[subprocess.Popen[bytes]] = []
    reached = threading.Event()

    def behaviour(turn: dsh.Turn, message: Any) -> None:
        written.write_text("kept")
        started.append(subprocess.Popen(["sleep", "60"]))
        reached.set()
        turn.sleep(PATIENCE)

    with dsh.ActorSystem() as system:
        agent = system.create(behaviour).agent
        reply = agent.ask(None)
        assert reached.wait(PATIENCE)
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            reply.result(PATIENCE)
        process = psutil.Process(started[0].pid)
        assert process.is_running()
        assert process.status() != psutil.STATUS_ZOMBIE
        assert written.read_text() == "kept"
    started[0].kill()  # its owner's own clean-up
    started[0].wait(PATIENCE)


class Slow:
    """A behaviour whose first turn notices its cancel only when it is told to."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.seen: list[Any] = []

    def __call__(self, turn: dsh.Turn, message: Any) -> Any:
        self.seen.append(message)
        if message == "slow":
            self.reached.set()
            assert self.opened.wait(PATIENCE)
            turn.check()
        return message


@pytest.mark.behaviour(7, 29, 30)
def test_a_wake_between_the_abort_and_the_idle_is_replayed_once() -> None:
    slow, watch = Slow(), Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(slow, id="slow").agent
        agent.send("slow")
        assert slow.reached.wait(PATIENCE)
        agent.cancel()
        after = agent.ask("after")
        slow.opened.set()
        assert after.result(PATIENCE) == "after"
        agent.when_idle().result(PATIENCE)
    assert slow.seen == ["slow", "after"]
    assert len(watch.of("turn/start")) == 2


@pytest.mark.behaviour(29, 30)
def test_a_message_that_was_taken_back_starts_no_turn() -> None:
    slow, watch = Slow(), Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        agent = system.create(slow, id="slow").agent
        agent.send("slow")
        assert slow.reached.wait(PATIENCE)
        agent.interrupt()
        after = agent.ask("after")
        agent.cancel()
        with pytest.raises(dsh.TurnAborted):
            after.result(PATIENCE)
        slow.opened.set()
        agent.when_idle().result(PATIENCE)
        assert slow.seen == ["slow"]
        assert agent.ask("then").result(PATIENCE) == "then"  # and it is none the worse
    assert slow.seen == ["slow", "then"]


@pytest.mark.behaviour(30)
def test_a_disposal_never_starts_another_turn() -> None:
    slow, watch = Slow(), Watch()
    with dsh.ActorSystem(on_event=watch) as system:
        handle = system.create(slow, id="slow")
        handle.agent.send("slow")
        assert slow.reached.wait(PATIENCE)
        queued = handle.agent.ask("queued")
        end = handle.dispose()
        with pytest.raises(dsh.AgentGone):
            handle.agent.ask("late")
        slow.opened.set()
        end.result(PATIENCE)
        with pytest.raises(dsh.TurnAborted):
            queued.result(PATIENCE)
    assert slow.seen == ["slow"]
    assert len(watch.of("turn/start")) == 1
