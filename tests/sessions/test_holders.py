"""Whether the process behind a store still lives: nothing but the facts, no processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dsh_actors.sessions.holders import Place, Row, Standing, describe, here, judge, new_row

if TYPE_CHECKING:
    from dsh_actors.processes.identity import ProcessId

HERE = Place(host="vm", boot="boot-1 pid:[1] time:[1]", pid=10, image="mine")
THERE = Row(
    key=1,
    name="other",
    host="vm",
    boot=HERE.boot,
    pid=20,
    pid_started=5.0,
    image="theirs",
    started=900.0,
    heartbeat=1000.0,
    uptime=100.0,
    ttl=30.0,
    fence=0,
)


def verdict(*, runs: bool = True, uptime: float = 101.0, now: float = 1001.0, **row: object) -> str:
    return judge(
        THERE._replace(**row),  # type: ignore[arg-type]
        HERE,
        uptime=uptime,
        now=now,
        running=lambda process: runs,
    )


def test_a_process_that_runs_and_beats_is_alive() -> None:
    assert verdict() == Standing.ALIVE
    assert verdict(uptime=130.0) == Standing.ALIVE


def test_one_that_is_gone_is_dead_however_fresh_its_heartbeat() -> None:
    assert verdict(runs=False) == Standing.DEAD


def test_one_that_runs_without_a_heartbeat_is_hung() -> None:
    assert verdict(uptime=130.1) == Standing.HUNG


def test_the_probe_asks_for_the_start_time_too() -> None:
    asked: list[ProcessId] = []

    def running(process: ProcessId) -> bool:
        asked.append(process)
        return True

    judge(THERE, HERE, uptime=101.0, now=0.0, running=running)
    assert asked == [(20, 5.0)]


def test_a_former_process_with_our_pid_is_dead_though_that_pid_runs() -> None:
    """Its pid was given to us, or we are what it became by an exec, with pid and start time."""
    assert verdict(pid=HERE.pid) == Standing.DEAD
    assert verdict(pid=HERE.pid, image=HERE.image) == Standing.ALIVE


@pytest.mark.parametrize("now", [0.0, 1e6])
def test_no_change_of_the_clock_matters_within_a_boot(now: float) -> None:
    assert verdict(now=now) == Standing.ALIVE


def test_another_boot_of_this_machine_is_over() -> None:
    assert verdict(boot="boot-0 pid:[1] time:[1]") == Standing.DEAD


@pytest.mark.parametrize("boot", ["boot-1 pid:[2] time:[1]", "boot-1 pid:[1] time:[2]"])
def test_a_pid_of_another_namespace_is_not_probed(boot: str) -> None:
    """There only the wall clock can tell, and a heartbeat from the future is no better."""
    assert verdict(boot=boot, runs=False) == Standing.ALIVE
    assert verdict(boot=boot, now=1031.0) == Standing.HUNG
    assert verdict(boot=boot, now=969.0) == Standing.HUNG


def test_another_machine_is_not_probed() -> None:
    assert verdict(host="else", boot="boot-2 x y", runs=False) == Standing.ALIVE


def test_a_process_that_may_not_be_looked_at_is_judged_by_its_heartbeat() -> None:
    def running(process: ProcessId) -> bool:
        raise PermissionError

    assert judge(THERE, HERE, uptime=101.0, now=0.0, running=running) == Standing.ALIVE
    assert judge(THERE, HERE, uptime=200.0, now=0.0, running=running) == Standing.HUNG


def test_this_process_is_alive_in_its_own_eyes() -> None:
    row = new_row("me", 30.0)
    assert row.pid == os.getpid()
    assert judge(row, here(), uptime=row.uptime, now=row.heartbeat) == Standing.ALIVE
    assert describe(row.public).startswith(f"me (pid {os.getpid()} on {row.host}, since 20")
