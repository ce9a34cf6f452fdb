"""A good tree file becomes a spec."""

from __future__ import annotations

import datetime as dt
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors.config import MISSING, SystemSpec, json_schema, load_tree
from dsh_actors.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TREE = """\
version: 1
name: census
system: {workers: 2, stop_grace: 500ms, max_turns: 8}
agents:
  - id: census
    behaviour: examples.code_census.agents:census
    restart: transient
    prompt: {root: "${root}", text: "look in ${root}, $${HOME} and ${n}", since: 2024-01-02}
    args: {n: "${n}", deep: ["${flag}", "${flag}!"], extra: "${extra}", none: "${none}"}
    children:
      - id: counter
        behaviour: ./agents.py:count.definitions
        isolation: pool
parameters:
  root: {type: path, default: src, help: what to count}
  n: {type: int, default: 3}
  flag: {type: bool, default: false}
  extra: {type: json, default: {a: [1]}}
  none: {default: null}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_tree(text: str) -> Path:
        path = tmp_path / "tree.yaml"
        path.write_text(text)
        return path

    return write_tree


def test_every_key_arrives(write: Callable[[str], Path], tmp_path: Path) -> None:
    tree = load_tree(write(TREE))
    assert (tree.name, tree.version, tree.path) == ("census", 1, str(tmp_path / "tree.yaml"))
    assert tree.system == SystemSpec(workers=2, stop_grace=0.5, max_turns=8)
    (census,) = tree.agents
    assert (census.id, census.isolation, census.restart) == ("census", "inline", "transient")
    assert census.behaviour == "examples.code_census.agents:census"
    assert census.line == 5
    (counter,) = census.children
    assert counter.behaviour == f"{tmp_path}/agents.py:count.definitions"
    assert (counter.isolation, counter.restart, counter.line) == ("pool", "temporary", 11)
    assert counter.prompt is MISSING
    assert counter.args == {}


def test_parameters_keep_their_type_when_they_stand_alone(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    tree = load_tree(write(TREE))
    (census,) = tree.agents
    root = str(tmp_path / "src")  # a default counts from the folder of the file
    assert census.prompt == {
        "root": root,
        "text": f"look in {root}, ${{HOME}} and 3",
        "since": dt.date(2024, 1, 2),
    }
    assert census.args == {
        "n": 3,
        "deep": [False, "false!"],
        "extra": {"a": [1]},
        "none": None,
    }
    assert tree.values["root"] == root
    assert tree.parameters["root"].help == "what to count"


def test_given_parameters_are_read_by_their_type(write: Callable[[str], Path]) -> None:
    given = {"root": "here", "n": "-7", "flag": "Yes", "extra": '{"b": null}', "none": "some"}
    tree = load_tree(write(TREE), parameters=given)
    assert tree.values == {
        "root": os.path.abspath("here"),  # what was typed counts from where it was typed
        "n": -7,
        "flag": True,
        "extra": {"b": None},
        "none": "some",
    }


def test_a_given_prompt_goes_to_the_first_root_as_it_is(write: Callable[[str], Path]) -> None:
    assert load_tree(write(TREE), prompt="count ${root}").agents[0].prompt == "count ${root}"
    for absent in (MISSING, None):
        assert "root" in load_tree(write(TREE), prompt=absent).agents[0].prompt
    with pytest.raises(MessageError):
        load_tree(write(TREE), prompt=object())


def test_the_file_gives_its_name_to_a_nameless_tree(write: Callable[[str], Path]) -> None:
    tree = load_tree(write("version: 1\nagents: [{id: a, behaviour: 'm:f'}]"))
    assert tree.name == "tree"
    assert tree.system == SystemSpec()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("500ms", 0.5), ("2m", 120.0), ("1.5h", 5400.0), ("7", 7.0), ("0.25", 0.25)],
)
def test_durations(write: Callable[[str], Path], text: str, seconds: float) -> None:
    tree = f"version: 1\nsystem: {{stop_grace: {text}}}\nagents: [{{id: a, behaviour: 'm:f'}}]"
    assert load_tree(write(tree)).system.stop_grace == pytest.approx(seconds)


def test_aliases_and_merges_are_expanded(write: Callable[[str], Path]) -> None:
    tree = load_tree(
        write(
            "version: 1\n"
            "agents:\n"
            "  - {id: a, behaviour: 'm:f', prompt: &p {x: 1, y: 2}}\n"
            "  - {id: b, behaviour: 'm:f', prompt: {<<: *p, y: 3}}\n"
            "  - {id: c, behaviour: 'm:f', prompt: [*p, *p]}\n"
        )
    )
    assert [agent.prompt for agent in tree.agents] == [
        {"x": 1, "y": 2},
        {"x": 1, "y": 3},
        [{"x": 1, "y": 2}, {"x": 1, "y": 2}],
    ]


def test_a_specification_cannot_be_changed(write: Callable[[str], Path]) -> None:
    tree: Any = load_tree(write(TREE))
    with pytest.raises(AttributeError):
        tree.name = "other"


def test_the_json_schema_knows_every_key_and_says_what_it_is_for() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["required"] == ["version", "agents"]
    assert schema["additionalProperties"] is False
    agent = schema["$defs"]["agent"]
    assert agent["properties"]["isolation"]["enum"] == ["inline", "pool", "own"]
    assert agent["required"] == ["id", "behaviour"]
    described = [schema, *schema["$defs"].values()]
    assert all(
        "description" in field for part in described for field in part["properties"].values()
    )
