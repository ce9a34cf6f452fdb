"""The example of a child that crashes its process, through the real command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commands import run_tree_json, worker_pids

if TYPE_CHECKING:
    from pathlib import Path

DECODED = {"dawn", "dusk", "haze", "moon", "stripes", "valley"}


def check_survey(survey: dict[str, Any]) -> None:
    assert set(survey["images"]) == DECODED
    assert survey["images"]["stripes"]["brightness"] == 0.5
    assert survey["damaged"] == {"torn": "24 pixels expected, 9 found"}
    assert set(survey["quarantined"]) == {"bomb", "overflow"}


def killed(report: dict[str, Any]) -> set[int]:
    processes = report["receipt"]["processes"]
    return {process["pid"] for process in processes if process["signal"] in (9, "SIGKILL")}


def test_the_policy_starts_the_decoder_again_and_the_run_succeeds(tmp_path: Path) -> None:
    code, report = run_tree_json("supervised_crash/tree.yaml", home=tmp_path)
    check_survey(report["result"])
    assert (code, report["error"]) == (0, None)
    assert report["agents"] == {"completed": 2, "aborted": 0, "failed": 0, "lost": 0}
    # One process died of "bomb", the next answered until it died of "overflow", and a third
    # answered the rest.
    pids = report["result"]["decoder_pids"]
    assert len(pids) == 2
    assert len(worker_pids(report)) == 3
    assert set(pids) < worker_pids(report)
    assert len(killed(report)) == 2
    assert pids[0] in killed(report)
    assert pids[1] not in killed(report)


def test_the_loss_of_a_one_shot_child_is_a_value_and_the_run_says_so(tmp_path: Path) -> None:
    code, report = run_tree_json("supervised_crash/one_shot.yaml", home=tmp_path)
    check_survey(report["result"])
    assert (code, report["subtype"], report["error"]["type"]) == (1, "failed", "AgentLost")
    assert report["agents"] == {"completed": 7, "aborted": 0, "failed": 1, "lost": 2}
    assert len(worker_pids(report)) == 9
    assert len(killed(report)) == 2
