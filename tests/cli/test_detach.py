"""Runs in the background: they are up when the command returns, and are left alone or ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from cli_runs import PATIENCE, RUN, assert_nothing_left, dsh, environment, processes_of, tree_file

from dsh_actors.control import running_systems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    yield tmp_path
    left = processes_of(tmp_path)
    for process in left:
        process.kill()
    assert not left
    assert not [path for path in tmp_path.glob("run/*") if path.suffix == ".sock"]


def detach(home: Path, *agents: str) -> dict[str, Any]:
    """Start these agents in the background; return what the command says."""
    done = dsh("run", tree_file(home, *agents), "--detach", "--output-format", "json", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def until(condition: Callable[[], object]) -> None:
    """Look until it is so."""
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)


def gone(told: dict[str, Any]) -> None:
    until(lambda: not psutil.pid_exists(told["pid"]))


def test_a_detached_run_lives_on_and_gives_its_result_to_who_attaches(home: Path) -> None:
    told = detach(home, "id: a, behaviour: '@wait', isolation: pool, prompt: 1")
    assert os.getsid(told["pid"]) == told["pid"]
    (system,) = running_systems()
    assert (system.id, system.pid) == (told["system_id"], told["pid"])
    attached = subprocess.Popen(
        [*RUN[:-1], "attach", "--output-format", "json"],
        env=environment(home), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    looking = psutil.Process(attached.pid)
    until(lambda: any(c.type == 1 for c in looking.net_connections("unix")))
    assert dsh("interrupt", "a", home=home).returncode == 0
    out, err = attached.communicate(timeout=PATIENCE)
    assert out, err
    result = json.loads(out)
    assert (result["type"], result["subtype"]) == ("result", "cancelled")
    assert (result["system_id"], result["session_id"]) == (told["system_id"], told["session_id"])
    assert attached.returncode == 1
    assert "cancelled after" in err
    gone(told)

    again = dsh("attach", told["system_id"], "--output-format", "json", home=home)
    assert (again.returncode, json.loads(again.stdout)) == (1, result)
    for kind in ("log", "json"):
        kept = home / "state" / "runs" / f"{told['system_id']}.{kind}"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_it_ends_when_its_work_is_done_and_keeps_result_and_log(home: Path) -> None:
    told = detach(home, "id: a, behaviour: '@steps', isolation: pool, prompt: 2")
    gone(told)
    done = dsh("attach", told["system_id"], home=home)
    assert (done.returncode, done.stdout) == (0, "all steps\n")
    assert done.stderr.startswith("done in ")
    log = (home / "state" / "runs" / f"{told['system_id']}.log").read_text()
    assert "all steps\n" in log
    assert "nothing left running" in log


@pytest.mark.parametrize("how", ["SIGTERM", "shutdown"])
def test_it_is_ended_in_order(home: Path, how: str) -> None:
    told = detach(
        home,
        "id: a, behaviour: '@wait', isolation: own, prompt: 1",
        "id: b, behaviour: '@wait', prompt: 1",
    )
    if how == "SIGTERM":
        os.kill(told["pid"], signal.SIGTERM)
    else:
        done = dsh("shutdown", "--json", home=home)
        assert done.returncode == 0
        ended = {each["id"]: each["outcome"] for each in json.loads(done.stdout)["agents"]}
        assert ended == {"a": "aborted", "b": "aborted"}
    gone(told)
    done = dsh("attach", told["system_id"], "--output-format", "json", home=home)
    assert done.returncode == 143
    assert json.loads(done.stdout)["agents"]["aborted"] == 2


@pytest.mark.parametrize(
    ("agent", "code", "reason"),
    [
        ("id: a, behaviour: '@nothing', prompt: 1, isolation: pool", 2, "has no 'nothing'"),
        ("id: a, behaviour: '@Unstartable', prompt: 1", 1, "no way"),
        ("id: a, behaviour: '@Unstartable', prompt: 1, isolation: pool", 1, "no way"),
    ],
)
def test_a_run_that_does_not_come_up_says_why_and_leaves_nothing(
    home: Path, agent: str, code: int, reason: str
) -> None:
    tree = tree_file(home, agent)
    done = dsh("run", tree, "--detach", home=home)
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr
    assert not list((home / "state" / "runs").iterdir())


def test_ctrl_c_while_it_starts_leaves_nothing(home: Path) -> None:
    told = home / "told"
    agent = f"id: a, behaviour: '@Slow', isolation: own, prompt: 1, args: {{told: '{told}'}}"
    starter = subprocess.Popen(
        [*RUN, str(tree_file(home, agent, grace="0.1s")), "--detach"],
        env=environment(home), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(told.exists)
    starter.send_signal(signal.SIGINT)
    out, _ = starter.communicate(timeout=PATIENCE / 3)  # long before it would be forced
    assert (starter.returncode, out) == (130, "")
    assert_nothing_left(home)
    assert not list((home / "state" / "runs").iterdir())


def test_a_run_without_its_starter_is_stopped(home: Path) -> None:
    told = home / "told"
    agent = f"id: a, behaviour: '@Gate', prompt: 1, args: {{told: '{told}'}}"
    starter = subprocess.Popen(
        [*RUN, str(tree_file(home, agent)), "--detach"], env=environment(home)
    )
    until(told.exists)
    starter.kill()
    starter.wait()
    told.unlink()
    until(lambda: not processes_of(home))


@pytest.fixture
def foreground(home: Path) -> Iterator[subprocess.Popen[str]]:
    tree = tree_file(
        home, "id: a, behaviour: '@wait', prompt: 1, children: [{id: b, behaviour: '@reply'}]"
    )
    run = subprocess.Popen(
        [*RUN, str(tree)],
        env=environment(home), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    yield run
    run.kill()
    run.communicate()


def test_a_run_in_the_foreground_is_reachable_too(
    home: Path, foreground: subprocess.Popen[str]
) -> None:
    until(running_systems)
    assert dsh("send", "b", "hello", "--wait", home=home).stdout == "hello\n"
    assert dsh("shutdown", home=home).returncode == 0
    out, err = foreground.communicate(timeout=PATIENCE)
    assert (foreground.returncode, out) == (143, "")
    assert "shut down on request: stopping all agents" in err


def test_a_run_that_cannot_be_reachable_goes_on(home: Path) -> None:
    (home / "run").write_text("in the way", encoding="utf-8")
    agent = "id: a, behaviour: '@steps', prompt: 8"
    done = dsh("run", tree_file(home, agent), home=home)
    assert (done.returncode, done.stdout) == (0, "all steps\n")
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "cannot reach this run" in warning
    detached = dsh("run", tree_file(home, agent), "--detach", home=home)
    assert detached.returncode == 0
    assert "cannot reach this run" in detached.stderr
    until(lambda: not processes_of(home))


def test_ctrl_c_in_a_verb_that_waits_leaves_the_run_alone(home: Path) -> None:
    told = detach(home, "id: a, behaviour: '@wait', prompt: 1")
    for words in (["send", "a", "x", "--wait"], ["tree", "--watch"]):
        verb = subprocess.Popen(
            [sys.executable, "-m", "dsh_actors_cli", *words],
            env=environment(home), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        process = psutil.Process(verb.pid)
        until(lambda p=process: any(c.type == 1 for c in p.net_connections("unix")))
        verb.send_signal(signal.SIGINT)
        _, err = verb.communicate(timeout=PATIENCE)
        assert verb.returncode == 130
        assert "Traceback" not in err
    assert [system.id for system in running_systems()] == [told["system_id"]]
    assert dsh("shutdown", home=home).returncode == 0
    gone(told)
