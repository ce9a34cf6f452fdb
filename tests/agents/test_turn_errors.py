"""What becomes of exceptions in behaviours: they answer who asked and stay with their agent."""

from __future__ import annotations

from typing import Any

import pytest
import worker_behaviours as behaviours

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def wordless(turn: dsh.Turn, message: Any) -> None:
    raise Wordless


def undecodable(turn: dsh.Turn, message: Any) -> None:
    raise FileNotFoundError(2, "No such file", "caf\udce9.txt")


def endless(turn: dsh.Turn, message: Any) -> None:
    raise ValueError("x" * 5_000_000)


EVERYWHERE = pytest.mark.parametrize("isolation", ["inline", "pool"])


@EVERYWHERE
@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (behaviours.fail, "ValueError: hello"),
        (wordless, "<no text: its __str__ raised RuntimeError>"),
        (undecodable, "FileNotFoundError: [Errno 2] No such file: 'caf\\udce9.txt'"),
        (endless, "ValueError: xxx"),
    ],
)
def test_any_exception_answers_who_asked(behaviour: Any, text: str, isolation: str) -> None:
    """One without a text, or with one that cannot be encoded, left the agent running for ever."""
    with MemoryStore() as store, dsh.ActorSystem(workers=1, store=store) as system:
        agent = system.create(behaviour, isolation=isolation).agent
        with pytest.raises(dsh.AgentFailed) as failed:
            agent.ask("hello").result(20)
        assert text in str(failed.value)
        assert len(str(failed.value)) < 200_000
        assert agent.when_idle().result(20) is None


@EVERYWHERE
def test_the_error_carries_the_traceback_from_where_it_happened(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        reply = system.create(behaviours.fail, isolation=isolation).agent.ask("no")
        with pytest.raises(dsh.AgentFailed) as failed:
            reply.result(20)
    assert failed.value.type_name == "ValueError"
    assert failed.value.message == "no"
    assert "raise ValueError(message)" in failed.value.traceback_text


@EVERYWHERE
@pytest.mark.parametrize("behaviour", [behaviours.exits, behaviours.exits_async])
def test_an_exit_is_a_failure_of_that_turn_alone(behaviour: Any, isolation: str) -> None:
    """In an async turn it ended the event loop, and with it all other async turns."""
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviour, isolation=isolation).agent
        with pytest.raises(dsh.AgentFailed, match="SystemExit: 3"):
            agent.ask(3).result(20)
        assert agent.ask(0).result(20) == "still there"


@EVERYWHERE
def test_a_result_that_cannot_be_carried_is_named_by_its_path(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        reply = system.create(behaviours.uncarried, id="u", isolation=isolation).agent.ask(None)
        with pytest.raises(dsh.AgentFailed, match=r"\$\.jobs\[1\]\.callback.*result of agent 'u'"):
            reply.result(20)


@EVERYWHERE
def test_a_message_that_cannot_be_carried_is_refused_to_its_sender(isolation: str) -> None:
    with dsh.ActorSystem(workers=1) as system:
        agent = system.create(behaviours.echo, isolation=isolation).agent
        for send in (agent.send, agent.ask, agent.steer, agent.inject):
            with pytest.raises(dsh.MessageError) as refused:
                send({"jobs": [1, {"callback": print}]})
            assert refused.value.path == "$.jobs[1].callback"
        assert agent.ask("still there").result(20) == "still there"
