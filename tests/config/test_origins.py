"""Each value is said to come from where it stands, and each error too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dsh_actors.errors import ConfigError
from tests.config.layered import Layered

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_actors.config import TreeSpec

DEEP = "agents:\n  - id: census\n    merge: true\n    args: {model: {provider: two}}\n"
WHOLE = "agents:\n  - id: census\n    args:\n      model: {provider: three}\n"


@pytest.fixture
def files(tmp_path: Path) -> Layered:
    return Layered(tmp_path)


def origin(spec: TreeSpec, *path: str) -> str | None:
    assert spec.origins is not None
    found = spec.origins.of(*path)
    return found and str(found).rpartition("/")[2]


def test_what_merges_is_the_origin_of_what_it_says_only(files: Layered) -> None:
    spec = files.load(DEEP)
    assert origin(spec, "agents", "census", "args", "model", "provider") == "over0.yaml:5"
    assert origin(spec, "agents", "census", "args", "model", "route") == "tree.yaml:12"
    assert origin(spec, "agents", "census", "args") == "tree.yaml:12"


@pytest.mark.parametrize(("first", "second"), [(DEEP, WHOLE), (WHOLE, DEEP)])
def test_the_last_that_says_it_is_the_origin(files: Layered, first: str, second: str) -> None:
    spec = files.load(first, second)
    place = ("agents", "census", "args", "model", "provider")
    assert origin(spec, *place) == "over1.yaml:5"
    assert origin(files.load(first, second, settings=[".".join(place) + "=four"]), *place) == (
        "--set"
    )


def test_a_default_has_none(files: Layered) -> None:
    spec = files.load("agents: [{id: census, merge: true, restart: null}]")
    for path in (
        ("system", "max_turns"),
        ("agents", "census", "isolation"),
        ("agents", "census", "restart"),
        ("agents", "census", "prompt", "nothing"),
    ):
        assert origin(spec, *path) is None


def test_parameters_and_the_name(files: Layered) -> None:
    spec = files.load("parameters:\n  root: {default: x}\n", "name: other", settings=["limit=9"])
    assert origin(spec, "parameters", "root", "value") == "over0.yaml:3"
    assert origin(spec, "parameters", "root", "type") == "tree.yaml:5"
    assert origin(spec, "parameters", "limit", "value") == "--set"
    assert origin(spec, "parameters", "limit", "default") == "tree.yaml:6"
    assert origin(spec, "name") == "over1.yaml:2"


def test_each_key_of_a_policy_comes_from_what_narrowed_it_last(files: Layered) -> None:
    spec = files.load(
        "agents:\n  - id: census\n    policy:\n      tools: [a, b]\n      network: false\n",
        "agents:\n  - id: census\n    policy:\n      tools: [b, c]\n      network: false\n",
    )
    assert origin(spec, "agents", "census", "policy", "tools") == "over1.yaml:5"
    assert origin(spec, "agents", "census", "policy", "network") == "over0.yaml:6"
    assert origin(spec, "agents", "census", "policy", "depth") is None


def test_an_agent_that_an_overlay_brings_stands_there(files: Layered) -> None:
    text = "agents:\n  - id: census\n    children:\n      - {id: new, behaviour: 'm:f'}\n"
    spec = files.load(text)
    assert origin(spec, "agents", "new", "behaviour") == "over0.yaml:5"
    with pytest.raises(
        ConfigError, match=r"over1\.yaml:3: the id 'new' is there twice \(also at .*over0"
    ):
        files.load(
            text,
            "agents:\n  - {id: new, children: [{id: new, behaviour: 'm:f'}]}\n",
        )


def test_an_error_that_only_the_whole_shows_names_the_layer_that_made_it(files: Layered) -> None:
    with pytest.raises(ConfigError, match=r"over1\.yaml:4: agents\[0\]\.prompt\.big: an integer"):
        files.load(DEEP, "agents:\n  - id: helper.one\n    prompt: {big: 99999999999999999999}\n")
