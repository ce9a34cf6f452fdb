"""``--set`` gives a parameter its value, or sets one value of the tree by its dotted path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.errors import ConfigError
from tests.config.layered import TREE, Layered, agent

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> Layered:
    return Layered(tmp_path)


def test_a_name_is_a_parameter_and_a_path_a_value(files: Layered) -> None:
    spec = files.load(settings=["limit=5", "system.workers=3", "agents.census.isolation=own"])
    assert spec.values["limit"] == 5
    assert (spec.system.workers, spec.system.stop_grace) == (3, 5.0)
    assert agent(spec, "census").isolation == "own"
    assert spec.notices == ()


def test_an_inner_key_leaves_what_stands_beside_it(files: Layered) -> None:
    spec = files.load(
        settings=["agents.census.prompt.deep.a=9", "agents.census.prompt.new.deeper=x"]
    )
    census = agent(spec, "census")
    assert census.prompt["deep"] == {"a": 9, "b": 2}
    assert census.prompt["new"] == {"deeper": "x"}


def test_an_id_may_have_dots(files: Layered) -> None:
    assert agent(files.load(settings=["agents.helper.one.args.x=2"]), "helper.one").args["x"] == 2
    tree = TREE.replace("id: helper.one", "id: census.args")
    both = Layered(files.folder, tree).load(settings=["agents.census.args.args.x=7"])
    assert agent(both, "census.args").args["x"] == 7  # the longest id that is there


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3.5", 3.5),
        ("true", True),
        ("null", None),
        ("text", "text"),
        ("'3'", "3"),
        ("", ""),
        ("#fff", "#fff"),
        ("a=b", "a=b"),
        ("[1, {a: 2}]", [1, {"a": 2}]),
        ("${limit}", 3),
        ("at ${limit}", "at 3"),
    ],
)
def test_a_value_is_yaml(files: Layered, text: str, value: Any) -> None:
    spec = files.load(settings=[f"agents.census.args.it={text}"])
    assert agent(spec, "census").args["it"] == value


def test_settings_come_last_and_in_their_order(files: Layered) -> None:
    over = "agents: [{id: census, isolation: pool, args: {a: 1}}]"
    spec = files.load(
        over, settings=["agents.census.args.a=2", "agents.census.args.a=3", "system.workers=1"]
    )
    assert agent(spec, "census").args == {"a": 3}
    whole = files.load(settings=["agents.census.args.a=2", "agents.census.args={b: 1}"])
    assert agent(whole, "census").args == {"b": 1}


def test_a_system_that_no_file_has_can_be_set(tmp_path: Path) -> None:
    files = Layered(tmp_path, "version: 1\nagents: [{id: a, behaviour: 'm:f'}]")
    spec = files.load(settings=["system.max_turns=2", "agents.a.budget.wall=2m"])
    assert spec.system.max_turns == 2
    assert agent(spec, "a").budget == {"wall": 120.0}


def test_relative_paths_count_from_where_they_are_typed(
    files: Layered, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = files.folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    spec = files.load(
        settings=[
            "agents.census.behaviour=./mine.py:f",
            "agents.census.policy.paths=[out]",
            "root=data",
        ]
    )
    census = agent(spec, "census")
    assert census.behaviour == f"{here}/mine.py:f"
    assert census.policy == {"paths": [f"{here}/out"]}
    assert spec.values["root"] == f"{here}/data"


BAD = {
    "limit": "--set: 'limit' is not KEY=VALUE",
    "=3": "--set: '=3' is not KEY=VALUE",
    "system.workers=0": "--set: system.workers: expected at least 1, got 0",
    "system.worker=1": "--set: unknown key 'worker' in system; did you mean 'workers'?",
    "sytem.workers=1": (
        "--set: sytem.workers: a path begins with 'system' or 'agents'; did you mean 'system'?"
    ),
    "parameters.limit=1": "--set: parameters.limit: a path begins with 'system' or 'agents'",
    "agents.cencus.isolation=own": (
        "--set: agents.cencus.isolation: the tree has no agent 'cencus'; did you mean 'census'?"
    ),
    "agents.census=1": (
        "--set: agents.census: the path ends too early; write agents.census.KEY=VALUE"
    ),
    "system.=1": "--set: system.: the path ends too early; write system.KEY=VALUE",
    "agents.census.id=x": (
        "--set: agents.census.id: 'id' cannot be set; "
        "give a file that replaces what is there, with --config"
    ),
    "agents.census.isolation=ow": (
        "--set: agents.census.isolation: expected 'inline', 'pool' or 'own', got 'ow'; "
        "did you mean 'own'?"
    ),
    "agents.census.args.limit.x=1": (
        "--set: agents.census.args.limit.x: agents.census.args.limit is '${limit}', no mapping"
    ),
    "agents.census.args={": (
        "--set agents.census.args: bad YAML: while parsing a flow node: did not find expected "
        "node content; check the indentation, quotes and brackets there"
    ),
    "agents.census.args.f=!!python/name:os.system x": (
        "--set agents.census.args.f: the tag 'tag:yaml.org,2002:python/name:os.system' is not "
        "known here; remove the tag"
    ),
    "agents.census.args.f=!!timestamp x": (
        "--set agents.census.args.f: 'x' is not a value of the tag !!timestamp; remove the tag"
    ),
    "agents.census.args.f=!!bool perhaps": (
        "--set agents.census.args.f: 'perhaps' is not a value of the tag !!bool; remove the tag"
    ),
    "agents.census.prompt=${rot}": (
        "--set: ${rot}: the tree has no parameter 'rot'; did you mean 'root'?"
    ),
    "agents.census.policy=own": "--set: agents.census.policy: expected a mapping, got 'own'",
    "agents.census.policy.tools=read": "--set: agents.census.policy.tools: expected a list, got 'r",
    "agents.census.merge=true": "--set: unknown key 'merge' in agents[0]; the keys are id, behav",
}


@pytest.mark.parametrize("setting", BAD)
def test_a_bad_setting_is_named_as_it_was_typed(files: Layered, setting: str) -> None:
    with pytest.raises(ConfigError) as raised:
        files.load(settings=[setting])
    assert str(raised.value).startswith(BAD[setting])
