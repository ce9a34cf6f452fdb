"""``config show``, ``schema``, and what ``check`` and ``run`` say of what is laid over a tree."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cli_runs import BEHAVIOURS, dsh
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_actors.config import effective_tree, load_tree
from dsh_actors.observe.display import display_text
from dsh_actors_cli.app import call
from dsh_actors_cli.render.annotated import aligned, yaml_lines
from dsh_actors_cli.render.style import Style

if TYPE_CHECKING:
    from pathlib import Path

TREE = f"""\
version: 1
system: {{workers: 2, stop_grace: 1s}}
agents:
  - id: a
    behaviour: {BEHAVIOURS}:reply
    prompt: {{model: {{provider: one, route: fast}}, text: "say \\x1b[31m"}}
    children:
      - id: b
        behaviour: {BEHAVIOURS}:reply
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a tree file and an overlay of the user and of the project."""
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.setenv("NO_COLOR", "1")
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "home").mkdir()
    (work / "tree.yaml").write_text(TREE, encoding="utf-8")
    (tmp_path / "home" / "config.yaml").write_text(
        "version: 1\nagents:\n  - {id: stranger, isolation: own}\n", encoding="utf-8"
    )
    (work / ".dsh-actors.yaml").write_text(
        "version: 1\nmerge: true\nsystem: {workers: 4}\n", encoding="utf-8"
    )
    (work / "mine.yaml").write_text(
        "version: 1\nagents:\n  - id: a\n    prompt: {model: {provider: two}}\n", encoding="utf-8"
    )
    monkeypatch.chdir(work)
    return work


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(list(arguments)) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    return captured.out


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_what_is_shown_is_a_tree_file_with_all_that_is_in_force(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed(capsys, "config", "show", "tree.yaml", "--config", "mine.yaml")
    again = folder / "again.yaml"
    again.write_text(shown, encoding="utf-8")
    spec = load_tree(again)
    assert (spec.name, spec.system.workers, spec.system.stop_grace) == ("tree", 4, 1.0)
    assert spec.agents[0].prompt == {"model": {"provider": "two"}}
    assert effective_tree(spec) == yaml.safe_load(shown)


def test_the_places_and_what_became_of_them_stand_above(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = printed(
        capsys, "config", "show", "tree.yaml", "--config", "mine.yaml", "--set", "system.workers=9"
    ).split("version:")[0]
    above = folder.parent
    assert rows(head)[:6] == [
        ["#", "tree", f"{folder}/tree.yaml"],
        ["#", "system", f"{above}/xdg/dsh-actors/config.yaml", "(not", "there)"],
        ["#", "user", f"{above}/home/config.yaml", "(used)"],
        ["#", "project", f"{folder}/.dsh-actors.yaml", "(used)"],
        ["#", "config", "mine.yaml", "(used)"],
        ["#", "--set", "system.workers=9", "(used)"],
    ]
    assert "# notice   mine.yaml:4: 'prompt' of agent 'a' replaces" in head
    assert f"# skipped  {above}/home/config.yaml:3: agents: the tree has no agent" in head


def test_each_value_names_its_origin(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(
        capsys, "config", "show", "tree.yaml", "--origins", "--set", "agents.b.args.n=[1, 2]"
    )
    found = {
        tuple(row[: row.index("#")]): row[row.index("#") + 1 :]
        for row in rows(shown)
        if "#" in row[1:]
    }
    assert found[("workers:", "4")] == [".dsh-actors.yaml:3"]
    assert found[("stop_grace:", "1.0")] == ["tree.yaml:2"]
    assert found[("max_turns:", "64")] == ["default"]
    assert found[("name:", "tree")] == ["default"]
    assert found[("-", "id:", "b")] == ["tree.yaml:8"]
    assert found[("provider:", "one")] == ["tree.yaml:6"]
    assert found[("n:", "[1,", "2]")] == ["--set"]
    assert yaml.safe_load(shown)["agents"][0]["prompt"]["text"] == "say \x1b[31m"


def test_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data: dict[str, Any] = json.loads(
        printed(capsys, "config", "show", "tree.yaml", "--config", "mine.yaml", "--json")
    )
    assert data["tree"]["system"]["workers"] == 4
    assert {"path": ["system", "workers"], "file": f"{folder}/.dsh-actors.yaml", "line": 3} in (
        data["origins"]
    )
    assert [(each["level"], each["state"]) for each in data["overlays"]] == [
        ("system", "not there"),
        ("user", "used"),
        ("project", "used"),
        ("config", "used"),
    ]
    assert (len(data["notices"]), len(data["skipped"])) == (1, 1)


@pytest.mark.usefixtures("folder")
def test_without_a_tree_the_overlays_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "config", "show", "--origins", "--config", "mine.yaml")
    user, project, mine = list(yaml.safe_load_all(shown))[-3:]
    assert user["agents"] == [{"id": "stranger", "isolation": "own"}]
    assert project == {"version": 1, "merge": True, "system": {"workers": 4}}
    assert mine["agents"][0]["prompt"] == {"model": {"provider": "two"}}
    assert ["workers:", "4", "#", ".dsh-actors.yaml:3"] in rows(shown)
    data = json.loads(printed(capsys, "config", "show", "--json"))
    assert [each["value"] and each["level"] for each in data["overlays"]] == [
        None,
        "user",
        "project",
    ]
    assert call(["config", "show", "--set", "a=b"]) == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "none.yaml"], "none.yaml: there is no such file; check the path"),
        (["--set", "agents.c.isolation=own"], "the tree has no agent 'c'; it has a, b"),
        (["--set", "x"], "'x' is not KEY=VALUE"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_shown(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    for verb in (["config", "show"], ["check"]):
        assert call([*verb, "tree.yaml", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        assert message in line


def test_check_tells_notices_and_what_was_passed_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["check", "tree.yaml", "--config", "mine.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "tree  workers 4, stop grace 1 s"
    notice, skipped = captured.err.splitlines()
    assert notice.startswith("dsh-actors: notice: mine.yaml:4: 'prompt' of agent 'a' replaces")
    assert skipped.startswith(f"dsh-actors: notice: {folder.parent}/home/config.yaml:3: agents:")
    data = json.loads(printed(capsys, "check", "tree.yaml", "--json"))
    assert [each["level"] for each in data["overlays"]] == ["system", "user", "project"]


def test_a_behaviour_that_an_overlay_misnames_is_named_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = folder / "bad.yaml"
    over.write_text(
        f"version: 1\nagents:\n  - id: b\n    behaviour: {BEHAVIOURS}:nope\n", encoding="utf-8"
    )
    assert call(["check", "tree.yaml", "--config", "bad.yaml"]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if " error: " in each]
    assert line.startswith("dsh-actors: error: bad.yaml:4: agent 'b': behaviour")


def test_a_run_uses_what_is_laid_over_and_tells_what_was_dropped(folder: Path) -> None:
    done = dsh(
        "run", folder / "tree.yaml", "--config", folder / "mine.yaml", "--no-store",
        "--set", "agents.a.prompt.more=yes", "--output-format", "json", home=folder.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == {"model": {"provider": "two"}, "more": True}
    assert f"notice: {folder}/mine.yaml:4: 'prompt' of agent 'a' replaces" in done.stderr
    assert "passed over" not in done.stderr


@pytest.mark.behaviour(183, 184)
def test_the_asked_session_is_bound_whatever_is_set_and_laid_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dsh("run", folder / "tree.yaml", "--output-format", "json", home=folder.parent)
    bound = json.loads(first.stdout)["session_id"]
    for word in ("SESSION", "SESSION_ID", "RESUME", "RESUME_SESSION_ID", "IDENTITY"):
        monkeypatch.setenv(f"DSH_ACTORS_{word}", "s-stale")
    done = dsh(
        "run", folder / "tree.yaml", "again", "--config", folder / "mine.yaml",
        "--resume", bound, "--output-format", "json", home=folder.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["session_id"], told["result"]) == (bound, "again")
    assert f"--resume {bound} --config {folder}/mine.yaml" in done.stderr


def test_the_schemas_describe_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    tree = json.loads(printed(capsys, "schema"))
    overlay = json.loads(printed(capsys, "schema", "--overlay"))
    assert tree["title"] == "dsh-actors tree file"
    assert {"policy", "budget", "interrupted"} <= set(tree["$defs"]["agent"]["properties"])
    assert overlay["required"] == ["version"]
    assert overlay["$defs"]["patch"]["required"] == ["id"]
    for schema in (tree, overlay):
        for definition in (schema, *schema["$defs"].values()):
            assert definition["additionalProperties"] is False
            assert all(field["description"] for field in definition["properties"].values())


keys = st.one_of(
    st.text(max_size=6), st.integers(), st.sampled_from(["yes", "null", "3", "a: b", "# c", "-"])
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.sampled_from(["yes", "~", "a\nb", "\x1b[31m", "\u202e", "x # y", "a\u0085b", " ", "%", "é"]),
    st.binary(max_size=40),
    st.dates(),
    st.datetimes(timezones=st.just(dt.UTC)),
)
plain = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(plain)
def test_what_is_written_is_read_again_and_cannot_act_on_a_terminal(value: Any) -> None:
    rows = [(line.text, "file.yaml:1" if line.path else "") for line in yaml_lines(value)]
    text = "\n".join(aligned(rows, Style(False)))
    assert yaml.safe_load(text) == value
    assert display_text(text, multiline=True) == text
