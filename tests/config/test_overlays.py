"""An overlay replaces whole keys, or merges deeply where it says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dsh_actors.config import MISSING, OverlayFile, SystemSpec
from dsh_actors.errors import ConfigError
from tests.config.layered import Layered, agent

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> Layered:
    return Layered(tmp_path)


@pytest.mark.behaviour(180)
def test_an_inner_key_replaces_the_whole_of_what_is_around_it(files: Layered) -> None:
    spec = files.load("agents:\n  - id: census\n    prompt: {deep: {a: 9}}\n")
    assert agent(spec, "census").prompt == {"deep": {"a": 9}}
    base = files.load()
    kept = replace(agent(spec, "census"), prompt=agent(base, "census").prompt)
    assert kept == agent(base, "census")  # the other top-level keys are as they were
    (notice,) = spec.notices
    assert notice == (
        f"{files.folder}/over0.yaml:4: 'prompt' of agent 'census' replaces that of "
        f"{files.tree}:11 and drops root, deep.b; 'merge: true' keeps what it does not mention"
    )


@pytest.mark.behaviour(180)
def test_the_settings_of_the_system_are_replaced_as_a_whole_too(files: Layered) -> None:
    spec = files.load("system: {workers: 4}")
    assert spec.system == SystemSpec(workers=4)
    (notice,) = spec.notices
    assert "over0.yaml:2: 'system' replaces that of" in notice
    assert "and drops stop_grace;" in notice


def test_what_replaces_all_keys_or_no_mapping_drops_nothing(files: Layered) -> None:
    spec = files.load(
        "system: {workers: 1, stop_grace: 1s, max_turns: 3}\n"
        "agents:\n  - {id: census, restart: permanent, behaviour: 'm:f', isolation: pool}\n"
    )
    assert spec.notices == ()
    census = agent(spec, "census")
    assert (census.restart, census.behaviour, census.isolation) == ("permanent", "m:f", "pool")


def test_a_deep_merge_merges_maps_replaces_lists_and_deletes_with_null(files: Layered) -> None:
    spec = files.load(
        "merge: true\n"
        "system: {workers: null, max_turns: 8}\n"
        "agents:\n"
        "  - id: census\n"
        "    restart: null\n"
        "    prompt: {root: [1], deep: {b: null, c: {d: 3, e: null}}}\n"
        "  - id: helper.one\n"
        "    merge: false\n"
        "    args: {w: 3}\n"
    )
    assert spec.system == SystemSpec(stop_grace=5.0, max_turns=8)
    census = agent(spec, "census")
    assert census.restart == "temporary"
    assert census.prompt == {"root": [1], "deep": {"a": 1, "c": {"d": 3}}}
    assert agent(spec, "helper.one").args == {"w": 3}
    (notice,) = spec.notices
    assert "'args' of agent 'helper.one'" in notice
    assert "drops x, y;" in notice
    assert agent(files.load("agents: [{id: census, merge: true, prompt: null}]"), "census") == (
        replace(agent(files.load(), "census"), prompt=MISSING)
    )


def test_text_over_a_mapping_drops_its_keys_in_a_deep_merge_too(files: Layered) -> None:
    spec = files.load("merge: true\nagents: [{id: census, prompt: {deep: text}}]")
    assert agent(spec, "census").prompt["deep"] == "text"
    (notice,) = spec.notices
    assert notice.endswith("and drops a, b")


def test_the_last_overlay_wins_and_sees_what_the_first_has_made(files: Layered) -> None:
    first = "agents: [{id: census, isolation: pool, prompt: {a: 1}}]"
    second = "agents: [{id: census, isolation: own, merge: true, prompt: {b: 2}}]"
    census = agent(files.load(first, second), "census")
    assert (census.isolation, census.prompt) == ("own", {"a": 1, "b": 2})
    census = agent(files.load(second, first), "census")
    assert (census.isolation, census.prompt) == ("pool", {"a": 1})


def test_paths_count_from_the_file_that_they_stand_in(files: Layered) -> None:
    over = files.overlay(
        "parameters: {root: {default: data}}\n"
        "agents: [{id: helper.one, behaviour: './mine.py:helper', policy: {paths: [out]}}]\n",
        "elsewhere/over.yaml",
    )
    spec = files.load(over)
    elsewhere = files.folder / "elsewhere"
    assert spec.values["root"] == str(elsewhere / "data")
    assert agent(spec, "census").prompt["root"] == str(elsewhere / "data")
    helper = agent(spec, "helper.one")
    assert helper.behaviour == f"{elsewhere}/mine.py:helper"
    assert helper.policy == {"paths": [str(elsewhere / "out")]}
    assert agent(spec, "census").behaviour == f"{files.folder}/agents.py:census"


def test_a_set_parameter_beats_the_default_of_an_overlay(files: Layered) -> None:
    over = "parameters: {limit: {default: 7}}"
    assert files.load(over).values["limit"] == 7
    assert files.load(over, settings=["limit=8"]).values["limit"] == 8


def test_children_are_replaced_as_one_key(files: Layered) -> None:
    spec = files.load(
        "agents:\n"
        "  - id: census\n"
        "    children:\n"
        "      - {id: helper.one, behaviour: 'm:f'}\n"
        "      - {id: other, behaviour: 'm:g'}\n",
        "agents: [{id: other, isolation: pool}]",
    )
    helper, other = agent(spec, "census").children
    assert (helper.id, helper.isolation, helper.args) == ("helper.one", "inline", {})
    assert (other.id, other.isolation) == ("other", "pool")
    (notice,) = spec.notices
    assert notice.endswith("drops helper.one.isolation, helper.one.args")


@pytest.mark.behaviour(183)
def test_another_provider_and_model_leave_all_else_as_it_was(files: Layered) -> None:
    spec = files.load(
        "agents: [{id: census, merge: true, args: {model: {provider: two, route: slow}}}]"
    )
    census, before = agent(spec, "census"), agent(files.load(), "census")
    assert census.args == {"model": {"provider": "two", "route": "slow"}, "limit": 3}
    assert replace(census, args=before.args) == before
    assert [each.id for each in spec.agents] == ["census"]


def test_a_whole_entry_can_be_replaced_except_for_its_id(files: Layered) -> None:
    spec = files.load(
        "agents:\n"
        "  - id: census\n"
        "    behaviour: m:f\n"
        "    isolation: own\n"
        "    restart: permanent\n"
        "    interrupted: retry\n"
        "    prompt: hello\n"
        "    args: {}\n"
        "    policy: {tools: []}\n"
        "    budget: {wall: 5m, tokens: 10, cost: 0.5}\n"
        "    children: []\n"
    )
    (census,) = spec.agents
    assert census.id == "census"
    assert (census.behaviour, census.isolation, census.restart) == ("m:f", "own", "permanent")
    assert (census.prompt, census.args, census.children) == ("hello", {}, ())
    assert (census.policy, census.interrupted) == ({"tools": []}, "retry")
    assert census.budget == {"wall": 300.0, "tokens": 10, "cost": 0.5}


class TestPolicies:
    """They never widen, whatever is laid over them."""

    TREE = (
        "version: 1\n"
        "agents:\n"
        "  - id: a\n"
        "    behaviour: m:f\n"
        "    policy: {tools: [read, write], paths: ['${root}'], network: false, depth: 2}\n"
        "    children: [{id: b, behaviour: 'm:f', policy: {isolation: [inline]}}]\n"
        "parameters: {root: {type: path, default: data}}\n"
    )

    def test_an_overlay_narrows_and_is_told_what_it_does_not_get(self, tmp_path: Path) -> None:
        files = Layered(tmp_path, self.TREE)
        over = "agents:\n  - id: a\n    policy: {tools: [read, exec], network: true, depth: 1}\n"
        spec = files.load(over)
        assert agent(spec, "a").policy == {
            "tools": ["read"],
            "paths": [str(tmp_path / "data")],
            "network": False,
            "max_depth": 1,
        }
        (notice,) = spec.notices
        assert notice == (
            f"{tmp_path}/over0.yaml:4: 'policy' of agent 'a' asks for more than is allowed "
            "without it, and does not get that (tools, network)"
        )

    @pytest.mark.parametrize(
        "over",
        [
            "agents: [{id: b, policy: {isolation: [own, pool]}}]",
            "agents: [{id: b, merge: true, policy: {isolation: [own, pool]}}]",
            "agents: [{id: a, children: [{id: b, behaviour: 'm:g'}]}]",
            "agents: [{id: a, children: [{id: b, behaviour: 'm:g', policy: {network: true}}]}]",
            "merge: true\nagents: [{id: a, children: null}]",
        ],
    )
    def test_no_way_around(self, tmp_path: Path, over: str) -> None:
        files = Layered(tmp_path, self.TREE)
        spec = files.load(over, "agents: [{id: a, children: [{id: b, behaviour: 'm:h'}]}]")
        allowed = agent(spec, "b").policy
        assert allowed is not None
        assert set(allowed["isolation"]) <= {"inline"}
        narrow = agent(files.load(settings=["agents.b.policy.isolation=[own, inline]"]), "b")
        assert narrow.policy == {"isolation": ["inline"]}

    def test_it_cannot_be_deleted(self, tmp_path: Path) -> None:
        files = Layered(tmp_path, self.TREE)
        with pytest.raises(ConfigError, match=r"agents\[0\]\.policy: expected a mapping, got noth"):
            files.load("merge: true\nagents: [{id: a, policy: null}]")

    def test_settings_narrow_as_one_layer(self, tmp_path: Path) -> None:
        files = Layered(tmp_path, self.TREE)
        spec = files.load(
            settings=["agents.a.policy.tools=[read]", "agents.a.policy.depth=1"],
        )
        policy = agent(spec, "a").policy
        assert policy is not None
        assert (policy["tools"], policy["max_depth"], policy["network"]) == (["read"], 1, False)

    def test_a_budget_is_replaced_like_any_other_key(self, tmp_path: Path) -> None:
        files = Layered(tmp_path, self.TREE)
        first = "agents: [{id: a, budget: {tokens: 5, wall: 90s}}]"
        spec = files.load(first, "agents: [{id: a, merge: true, budget: {tokens: 9, turns: 1}}]")
        assert agent(spec, "a").budget == {"tokens": 9, "wall": 90.0, "turns": 1}
        spec = files.load(first, "agents: [{id: a, budget: {tokens: 9}}]")
        assert agent(spec, "a").budget == {"tokens": 9}


BAD = {
    "unknown agent": (
        "agents:\n  - id: cencus\n    isolation: own",
        "3: agents: the tree has no agent 'cencus'; did you mean 'census'?",
    ),
    "far from all agents": (
        "agents: [{id: zzz}]",
        "2: agents: the tree has no agent 'zzz'; it has census, helper.one",
    ),
    "unknown parameter": (
        "parameters:\n  rot: {default: x}",
        "3: parameters: the tree has no parameter 'rot'; did you mean 'root'?",
    ),
    "twice": (
        "agents:\n  - id: census\n  - id: census",
        "4: agent 'census' is patched twice (also on line 3); write one patch for it",
    ),
    "unknown key": (
        "agents:\n  - id: census\n    isolaton: own",
        "4: unknown key 'isolaton' in agents[0]; did you mean 'isolation'?",
    ),
    "unknown key above": (
        "agent: []",
        "2: unknown key 'agent'; did you mean 'agents'?",
    ),
    "unknown key of a budget": (
        "agents: [{id: census, budget: {token: 3}}]",
        "2: unknown key 'token' in agents[0].budget; did you mean 'tokens'?",
    ),
    "unknown key of a policy": (
        "agents: [{id: census, policy: {max_depth: 3}}]",
        "2: unknown key 'max_depth' in agents[0].policy; did you mean 'depth'?",
    ),
    "the type of a parameter": (
        "parameters: {limit: {type: str, default: x}}",
        "2: unknown key 'type' in parameters.limit; the keys are default",
    ),
    "a default of another type": (
        "parameters: {limit: {default: x}}",
        "2: parameters.limit.default: expected a whole number, got 'x'",
    ),
    "null without merge": (
        "agents:\n  - id: census\n    args: null",
        "4: agents[0].args: expected a mapping, got nothing",
    ),
    "a needed key deleted": (
        "merge: true\nagents:\n  - id: census\n    behaviour: null",
        "missing key 'behaviour' in agents[0]; add it",
    ),
    "an id that is there already": (
        "agents:\n  - id: helper.one\n    children:\n      - {id: census, behaviour: 'm:f'}",
        "5: the id 'census' is there twice (also at {tree}:8); "
        "ids are unique in the whole tree; rename one of them",
    ),
    "an unknown reference": (
        "agents:\n  - id: census\n    prompt: '${rot}'",
        "4: ${rot}: the tree has no parameter 'rot'; did you mean 'root'?",
    ),
    "not an overlay": ("agents: [{behaviour: 'm:f'}]", "2: missing key 'id' in agents[0]; add it"),
    "wall": (
        "agents: [{id: census, budget: {wall: soon}}]",
        "2: agents[0].budget.wall: expected a duration such as 5s, 500ms, 2m or a number of "
        "seconds, got 'soon'",
    ),
    "isolation of a policy": (
        "agents: [{id: census, policy: {isolation: [ow]}}]",
        "2: agents[0].policy.isolation[0]: expected 'inline', 'pool' or 'own', got 'ow'; "
        "did you mean 'own'?",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_overlay_names_the_place(files: Layered, name: str) -> None:
    text, expected = BAD[name]
    with pytest.raises(ConfigError) as raised:
        files.load(text)
    message = str(raised.value)
    if name == "a needed key deleted":
        assert message.startswith(f"{files.tree}:8: ")  # the entry is what lacks it
        assert message.endswith(expected)
    else:
        assert message == f"{files.folder}/over0.yaml:{expected.replace('{tree}', str(files.tree))}"


def test_a_tree_file_with_behavior_is_told_how_it_is_spelt(tmp_path: Path) -> None:
    files = Layered(tmp_path, "version: 1\nagents:\n  - id: a\n    behavior: m:f\n")
    with pytest.raises(ConfigError) as raised:
        files.load()
    assert str(raised.value) == (
        f"{files.tree}:4: unknown key 'behavior' in agents[0]; did you mean 'behaviour'?"
    )


@pytest.mark.parametrize("level", ["system", "user", "project"])
def test_an_overlay_for_many_trees_may_speak_of_others(files: Layered, level: str) -> None:
    path = files.overlay(
        "system: {workers: 9}\n"
        "parameters: {other: {default: 1}}\n"
        "agents:\n  - {id: stranger, isolation: own}\n  - {id: census, isolation: pool}\n"
    )
    spec = files.load(OverlayFile(str(path), level))  # type: ignore[arg-type]
    assert (spec.system.workers, agent(spec, "census").isolation) == (9, "pool")
    assert [line.removeprefix(f"{path}:") for line in spec.skipped] == [
        "3: parameters: the tree has no parameter 'other'; it has root, limit",
        "5: agents: the tree has no agent 'stranger'; it has census, helper.one",
    ]
    with pytest.raises(ConfigError, match="no parameter 'other'"):
        files.load(path)


def test_it_is_still_checked_as_strictly(files: Layered) -> None:
    path = files.overlay("agents: [{id: stranger, isolaton: own}]")
    with pytest.raises(ConfigError, match="unknown key 'isolaton'"):
        files.load(OverlayFile(str(path), "user"))


def test_values_shared_by_an_alias_are_patched_apart(tmp_path: Path) -> None:
    files = Layered(
        tmp_path,
        "version: 1\n"
        "agents:\n"
        "  - {id: a, behaviour: 'm:f', args: &args {x: {y: 1}}}\n"
        "  - {id: b, behaviour: 'm:f', args: *args}\n",
    )
    spec = files.load("merge: true\nagents: [{id: a, args: {x: {y: 2}}}]")
    assert agent(spec, "a").args == {"x": {"y": 2}}
    assert agent(spec, "b").args == {"x": {"y": 1}}
