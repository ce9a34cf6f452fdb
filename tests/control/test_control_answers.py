"""What a client can have done, and how errors come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import dsh_actors as dsh
from dsh_actors.control import ControlClient, ControlError, ControlServer
from dsh_actors.control.verbs import MAX_TREE_DEPTH, _plain
from dsh_actors.sessions import MemoryStore
from dsh_actors.system import TreeNode
from tests.control.raw import PATIENCE, Gate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def refused(client: ControlClient, verb: str, **fields: Any) -> ControlError:
    with pytest.raises(ControlError) as error:
        client.call(verb, **fields)
    return error.value


def test_hello_says_who_it_is(client: ControlClient, system: dsh.ActorSystem) -> None:
    hello = client.hello
    assert (hello["system"], hello["name"]) == (system.id, "dsh")
    assert hello["version"] == dsh.__version__
    assert hello["protocol"] == 1
    assert hello["store"] is False
    assert hello["peers_checked"] is True
    assert {"tree", "send", "watch"} < set(hello["verbs"])
    assert time.time() - PATIENCE < hello["started"] <= time.time()
    assert client.call("hello") == hello


def test_tree_shows_all_agents_nested(
    client: ControlClient, system: dsh.ActorSystem, gate: Gate
) -> None:
    def parent(turn: dsh.Turn, message: Any) -> Any:
        turn.run(gate.behaviour, message, id="below").result(PATIENCE)
        return message

    top = system.create(parent, id="top")
    answer = top.agent.ask("x")
    assert gate.entered.wait(PATIENCE)
    shown = client.call("tree")
    assert (shown["system"], shown["name"]) == (system.id, "dsh")
    assert shown["started"] == client.hello["started"]
    (root,) = shown["agents"]
    assert (root["id"], root["status"], root["session"]) == ("top", "running", None)
    assert [child["id"] for child in root["children"]] == ["below"]
    assert root["children"][0]["children"] == []
    gate.opened.set()
    assert answer.result(PATIENCE) == "x"


def test_a_tree_too_deep_for_an_answer_is_cut_with_a_count() -> None:
    node = TreeNode("leaf", "idle", "inline", 1, None, 0, 0.0)
    for _ in range(MAX_TREE_DEPTH + 50):
        node = TreeNode("x", "idle", "inline", 1, None, 0, 0.0, [node, node])
        node.children.pop()
    shown = _plain([node])
    for _ in range(MAX_TREE_DEPTH - 1):
        assert "cut" not in shown[0]
        shown = shown[0]["children"]
    assert (shown[0]["cut"], shown[0]["children"]) == (1, [])


def test_a_message_is_sent_and_answered(client: ControlClient, echo: dsh.Agent) -> None:
    message = {"n": [1, None, "ü", b"\0", 1.5], "deep": {"er": [[]]}}
    assert client.call("send", agent="echo", body=message, wait=True) == {
        "message": 1,
        "result": message,
    }
    assert client.call("send", agent="echo", body=None) == {"message": 2}
    for kind in ("follow-up", "steer", "inject"):
        assert set(client.call("send", agent="echo", body=1, kind=kind, wait=False)) == {"message"}


def test_the_kind_of_a_message_counts(
    client: ControlClient, system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    client.call("send", agent="echo", body="quiet", kind="inject")
    client.call("idle", agent="echo")
    assert client.call("agent", agent="echo") == {
        "agent": "echo", "status": "idle", "session": None,
    }  # fmt: skip
    assert client.call("tree")["agents"][0]["queued"] == 1  # it waits, and has woken nobody
    assert client.call("send", agent="echo", body="loud", kind="steer", wait=True)["result"]


def test_a_large_answer_arrives_whole(client: ControlClient, system: dsh.ActorSystem) -> None:
    system.create(lambda turn, message: "x" * message, id="large")
    answer = client.call("send", agent="large", body=3_000_000, wait=True)
    assert answer["result"] == "x" * 3_000_000


def test_errors_of_the_runtime_come_back_by_name(
    client: ControlClient, system: dsh.ActorSystem, gate: Gate
) -> None:
    def fail(turn: dsh.Turn, message: Any) -> Any:
        raise LookupError("not here")

    system.create(fail, id="fails")
    gone = refused(client, "send", agent="nobody", body=1)
    assert (gone.type_name, str(gone)) == (
        "AgentGone",
        f"there is no live agent 'nobody' in system {system.id}",
    )
    failed = refused(client, "send", agent="fails", body=1, wait=True)
    assert (failed.type_name, str(failed)) == ("AgentFailed", "LookupError: not here")
    assert isinstance(failed.details, dict)
    assert "not here" in failed.details["traceback"]


def test_a_full_inbox_is_told(folder: Path, gate: Gate) -> None:
    with (
        dsh.ActorSystem(workers=1, inbox_limit=1) as system,
        ControlServer(system),
        ControlClient.connect() as client,
    ):
        system.create(gate.behaviour, id="a")
        client.call("send", agent="a", body=1)
        assert gate.entered.wait(PATIENCE)
        while client.call("tree")["agents"][0]["queued"] < 1:
            client.call("send", agent="a", body=2)
        assert refused(client, "send", agent="a", body=3).type_name == "InboxFull"
        gate.opened.set()


def test_an_interrupt_ends_the_turn_with_the_cause_user(
    client: ControlClient, system: dsh.ActorSystem, gate: Gate
) -> None:
    agent = system.create(gate.behaviour, id="a").agent
    answer = agent.ask(1)
    assert gate.entered.wait(PATIENCE)
    assert client.call("interrupt", agent="a") is None
    error = answer.exception(timeout=PATIENCE)
    assert isinstance(error, dsh.TurnAborted)
    assert error.cause == "user"


def test_a_cancel_covers_the_tree_unless_told_otherwise(
    client: ControlClient, system: dsh.ActorSystem, gate: Gate
) -> None:
    def parent(turn: dsh.Turn, message: Any) -> Any:
        turn.spawn(gate.behaviour, "work", id="below")
        return None

    system.create(parent, id="top").agent.ask(1).result(PATIENCE)
    assert gate.entered.wait(PATIENCE)
    client.call("cancel", agent="top", tree=False)
    assert client.call("agent", agent="below")["status"] == "running"
    client.call("cancel", agent="top")
    client.call("idle", agent="top")


def test_a_stop_gives_its_receipt(client: ControlClient, echo: dsh.Agent) -> None:
    receipt = client.call("stop", agent="echo", grace=1)
    assert receipt["agents"][0]["id"] == "echo"
    assert receipt["survivors"] == []
    assert client.call("receipt") == receipt
    assert refused(client, "stop", agent="echo").type_name == "AgentGone"
    assert client.call("tree")["agents"] == []


def test_a_drain_and_a_shutdown_give_theirs(
    client: ControlClient, system: dsh.ActorSystem, echo: dsh.Agent
) -> None:
    assert client.call("drain")["agents"][0]["id"] == "echo"
    with pytest.raises(dsh.SystemClosed):
        system.create(lambda turn, message: message)
    assert client.call("shutdown", grace=0.5)["survivors"] == []
    assert system.shutdown().result(PATIENCE).complete


def test_a_program_may_do_its_own_shutdown(system: dsh.ActorSystem, folder: Path) -> None:
    asked: list[float | None] = []

    def shutdown(grace: float | None) -> Any:
        asked.append(grace)
        return system.shutdown(grace)

    with ControlServer(system, shutdown=shutdown), ControlClient.connect() as client:
        assert client.call("shutdown", grace=2)["agents"] == []
    assert asked == [2]


def test_the_result_of_a_run_is_there_for_all_who_ask(server: ControlServer) -> None:
    with ControlClient.connect() as early, ControlClient.connect() as late:
        with pytest.raises(ControlError, match="has not answered within"):
            early.call("result", timeout=0.01)
        server.publish_result({"type": "result", "is_error": False})
        assert early.call("result") == {"type": "result", "is_error": False}
        assert late.call("result", timeout=PATIENCE) == {"type": "result", "is_error": False}
    with pytest.raises(dsh.UsageError, match="published before"):
        server.publish_result({})


@pytest.mark.parametrize(
    ("verb", "fields", "message"),
    [
        ("nothing", {}, "there is no verb 'nothing'; there are: tree"),
        ("tree", {"deep": 1}, "tree has no field 'deep'; its fields are: none"),
        ("stop", {"grace": 1}, "stop needs the field 'agent' (str)"),
        ("stop", {"agent": 3}, "stop: the field 'agent' must be str, not 3"),
        ("stop", {"agent": "a", "grace": -1}, "the grace period must be a number of seconds"),
        ("stop", {"agent": "a", "grace": float("nan")}, "the grace period must be"),
        ("stop", {"agent": "a", "grace": float("inf")}, "the grace period must be"),
        ("drain", {"grace": True}, "drain: the field 'grace' must be int or float, not True"),
        ("send", {"agent": "a"}, "send needs the field 'body'"),
        ("send", {"agent": "a", "body": 1, "kind": "loud"}, "there is no kind 'loud' of message"),
        ("send", {"agent": "a", "body": 1, "wait": 1}, "the field 'wait' must be bool, not 1"),
        ("watch", {"agent": "a", "session": "b"}, "an agent or a session, not both"),
        ("watch", {"session": "b"}, "this system has no store"),
        ("watch", {"agent": "a"}, "there is no live agent 'a'"),
        ("unwatch", {"stream": 99}, "there is no stream 99"),
    ],
)
def test_what_is_asked_wrongly_is_explained(
    client: ControlClient, verb: str, fields: dict[str, Any], message: str
) -> None:
    assert message in str(refused(client, verb, **fields))
    assert client.call("tree")["agents"] == []  # and the connection goes on


@pytest.fixture
def recorded(folder: Path) -> Iterator[ControlClient]:
    store = MemoryStore()
    with dsh.ActorSystem(workers=1, store=store) as system, ControlServer(system):
        system.create(lambda turn, message: message, id="a")
        with ControlClient.connect() as client:
            yield client
    store.close()


def test_with_a_store_a_send_is_answered_once_it_is_committed(recorded: ControlClient) -> None:
    assert recorded.hello["store"] is True
    assert recorded.call("send", agent="a", body=1) == {"message": 1}
    assert recorded.call("send", agent="a", body=2, wait=True) == {"message": 2, "result": 2}
    session = recorded.call("agent", agent="a")["session"]
    assert session == recorded.call("tree")["agents"][0]["session"]
    assert session


def test_a_send_that_is_not_stored_is_refused(
    recorded: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise dsh.StoreError("the disk is full")

    monkeypatch.setattr(MemoryStore, "append", fail)
    assert refused(recorded, "send", agent="a", body=1).type_name == "StoreError"
    assert refused(recorded, "send", agent="a", body=1, wait=True).type_name == "StoreError"
    monkeypatch.undo()
