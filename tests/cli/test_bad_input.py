"""What bad input gets: one line that names the place and what to do, and nothing left running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cli_runs import BEHAVIOURS, assert_nothing_left, dsh

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "version: 1\nagents:\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("  - {id: a, behaviour: '@nope', prompt: 1}", ":3: agent 'a': behaviour '@nope'"),
        (
            "  - {id: a, behaviour: '@nope', isolation: pool, prompt: 1}",
            ":3: agent 'a': behaviour '@nope'",
        ),
        ("  - {id: a, behaviour: 'no.such.module:f', prompt: 1}", "no module 'no'"),
        ("  - {id: a, behaviour: './gone.py:f', prompt: 1}", "there is no file"),
        ("  - {id: a, behaviour: '@not_callable', prompt: 1}", "is not callable"),
        ("  - {id: a, behaviour: '@echo', prompt: 1\n  - b: 1", "tree.yaml:4: bad YAML"),
        ("  - {id: a, behaviour: '@echo', promt: 1}", "tree.yaml:3: "),
        ("  - {id: a, behaviour: '@echo', prompt: 1}\nsystem: {workers: two}", "tree.yaml:4: "),
        (
            "  - {id: a, behaviour: '@echo', prompt: 1}\n  - {id: a, behaviour: '@echo'}",
            "tree.yaml:4: the id 'a' is there twice (also on line 3)",
        ),
        (
            "  - &a {id: a, behaviour: '@echo', prompt: 1, children: [*a]}",
            "tree.yaml:3: an alias (*) leads back",
        ),
        (
            "  - {id: a, behaviour: '@echo', prompt: {jobs: [1, 99999999999999999999]}}",
            "tree.yaml:3: agents[0].prompt.jobs[1]: an integer beyond 64 bits",
        ),
        ("  - {id: a, behaviour: '@echo'}", "no agent at the root has a prompt; add"),
    ],
    ids=[
        *("unknown name", "unknown name in a worker", "unknown module", "missing file"),
        *("not callable", "bad YAML", "unknown key", "wrong type", "duplicate id", "cycle"),
        *("not plain", "no prompt"),
    ],
)
def test_a_wrong_tree_gets_one_line(tmp_path: Path, text: str, told: str) -> None:
    tree = HEAD + text.replace("@", f"{BEHAVIOURS}:") + "\n"
    (tmp_path / "tree.yaml").write_text(tree, encoding="utf-8")
    done = dsh("run", "tree.yaml", home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dsh-actors: error: ")
    assert told.replace("@", f"{BEHAVIOURS}:") in line
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rum", "tree.yaml"], "there is no verb 'rum'; did you mean run?"),
        (["run"], "missing argument 'TREE'; see dsh-actors run --help"),
        (["run", "x", "--timout", "5s"], "'--timout'. Did you mean '--timeout'?"),
        (["run", "gone.yaml"], "gone.yaml: there is no such file"),
        (["run", "x", "--set", "key"], "'key' is not KEY=VALUE"),
        (["run", "x", "--timeout", "5 parsecs"], "write it like 500ms, 5s, 2m or 1h30m"),
        (["run", "x", "--workers", "0"], "0 is not in the range x>=1"),
        (["run", "x", "a", "--prompt-file", "b"], "give PROMPT or --prompt-file, not both"),
        (["run", "x", "--store", "a", "--no-store"], "give --store or --no-store, not both"),
        (["run", "x", "--prompt-file", "gone"], "--prompt-file gone: No such file"),
        (["sessions", "show", "nope", "--store", "gone"], "there is no session store"),
        (["sessions", "lst"], "Did you mean 'list'?"),
        (["check", "gone.yaml"], "gone.yaml: there is no such file"),
    ],
)
def test_a_wrong_call_gets_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    from dsh_actors_cli import launch
    from dsh_actors_cli.app import call

    # The command's own signal handling is left out here, in the process of the tests.
    monkeypatch.setattr(launch, "run_tree", launch._load)
    monkeypatch.chdir(tmp_path)
    assert call(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("dsh-actors: error: ")
    assert told in line
