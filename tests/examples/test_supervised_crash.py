"""The example of a child that crashes its process, through the real command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commands import run_tree_json, worker_pids

if TYPE_CHECKING:
    from pathlib import Path

DECODED = ["dawn", "dusk", "haze", "moon", "stripes", "valley"]


def check_survey(survey: dict[str, Any]) -> None:
    images, quarantined = survey["images"], survey["quarantined"]
    assert [image["image"] for image in images] == DECODED
    assert images[4] | {"decoder_pid": 0} == {
        "image": "stripes",
        "width": 10,
        "height": 6,
        "brightness": 0.5,
        "decoder_pid": 0,
    }
    assert survey["damaged"] == [{"image": "torn", "reason": "24 pixels expected, 9 found"}]
    assert [problem["image"] for problem in quarantined] == ["bomb", "overflow"]
    assert all("SIGKILL" in problem["reason"] for problem in quarantined)


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
    second, third = dict.fromkeys(i["decoder_pid"] for i in report["result"]["images"])
    assert {second, third} < worker_pids(report)
    assert len(worker_pids(report)) == 3
    assert len(killed(report)) == 2
    assert second in killed(report)
    assert third not in killed(report)


def test_the_loss_of_a_one_shot_child_is_a_value_and_the_run_says_so(tmp_path: Path) -> None:
    code, report = run_tree_json("supervised_crash/one_shot.yaml", home=tmp_path)
    check_survey(report["result"])
    assert (code, report["subtype"], report["error"]["type"]) == (1, "failed", "AgentLost")
    assert report["agents"] == {"completed": 7, "aborted": 0, "failed": 1, "lost": 2}
    assert len(worker_pids(report)) == 9
    assert len(killed(report)) == 2
