"""Which session is bound, and the line at the exit, are the launcher's: no configuration has
a say in them, and none can reach what the launcher knows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors import ActorSystem, Turn, behaviour
from dsh_actors.config import effective_tree, find_overlays, json_schema, load_tree
from dsh_actors.config.help import HELP, REMOVED
from dsh_actors.errors import ConfigError
from dsh_actors.sessions import MemoryStore
from dsh_actors.slots import LaunchIdentity, Slots
from tests.config.layered import Layered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.config import TreeSpec

STALE = [
    "resume",
    "resume_id",
    "session",
    "session_id",
    "session-id",
    "sessionId",
    "resume_session_id",
    "resumeSessionId",
    "identity",
    "identities",
    "exit_line",
    "exitLine",
    "resume_command",
]
ROOT = Path(__file__).parents[2]


def keys(value: Any) -> Iterator[str]:
    """Every key of a schema's ``properties``, at any depth."""
    if isinstance(value, dict):
        yield from value.get("properties", ())
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


@pytest.mark.behaviour(164)
@pytest.mark.parametrize("kind", ["tree", "overlay"])
def test_no_schema_has_a_key_for_them(kind: str) -> None:
    found = set(keys(json_schema(kind)))
    assert {"agents", "behaviour", "policy"} <= found  # the scan sees the keys
    assert not {plain(key) for key in found} & REMOVED.keys()
    assert not {plain(key) for keys in HELP.values() for key in keys} & REMOVED.keys()


@pytest.mark.behaviour(164)
def test_no_shipped_configuration_has_them() -> None:
    shipped = [
        path
        for folder in ("dsh_actors", "cli", "examples", "benchmarks")
        for ending in ("*.yaml", "*.yml", "*.json", "*.toml")
        for path in (ROOT / folder).rglob(ending)
    ]
    assert shipped
    for path in shipped:
        text = path.read_text(encoding="utf-8")
        for key in re.findall(r"^[\s{-]*[\"']?([\w-]+)[\"']?\s*[:=]", text, re.MULTILINE):
            assert plain(key) not in REMOVED, f"{path}: {key}"


@pytest.mark.behaviour(182)
@pytest.mark.parametrize("key", STALE)
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{key}: s-1", 2),
        ("system: {workers: 1, {key}: s-1}", 2),
        ("agents:\n  - id: census\n    {key}: s-1", 4),
        ("agents: [{id: census, children: [\n{id: x, behaviour: 'm:f', {key}: {id: s}}]}]", 3),
    ],
)
def test_an_overlay_that_names_a_removed_key_is_refused(
    tmp_path: Path, key: str, text: str, line: int
) -> None:
    files = Layered(tmp_path)
    with pytest.raises(ConfigError) as raised:
        files.load(text.replace("{key}", key))
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}/over0.yaml:{line}: unknown key {key!r}")
    assert "given by the launcher alone" in message
    assert "--resume ID" in message


@pytest.mark.behaviour(182)
@pytest.mark.parametrize("key", STALE)
def test_so_is_a_tree_file_and_a_setting(tmp_path: Path, key: str) -> None:
    files = Layered(tmp_path)
    for setting in (f"agents.census.{key}=s-1", f"system.{key}=s-1"):
        with pytest.raises(ConfigError, match=rf"--set: unknown key '{key}'.* --resume ID"):
            files.load(settings=[setting])
    for level in ("", "    "):
        text = f"version: 1\nagents:\n  - id: a\n    behaviour: m:f\n{level}{key}: s-1\n"
        tree = files.write("stale.yaml", text)
        with pytest.raises(ConfigError, match=rf"stale\.yaml:5: unknown key '{key}'.*--resume"):
            load_tree(tree)


@pytest.mark.behaviour(184)
@pytest.mark.parametrize("wrapper", ["{}", "$({})", "env:{}", "env.{}", "{}:-s-9", "!{}", "$%s"])
def test_an_expression_cannot_ask_for_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapper: str
) -> None:
    monkeypatch.setenv("DSH_ACTORS_SESSION_ID", "s-stale")
    name = wrapper.replace("%s", "{}").format("DSH_ACTORS_SESSION_ID")
    with pytest.raises(ConfigError, match="the tree has no parameter"):
        Layered(tmp_path).load(f"agents: [{{id: census, prompt: '${{{name}}}'}}]")


@pytest.mark.behaviour(184)
def test_a_variable_of_an_old_name_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in what is loaded, nor in which session is bound when it runs."""
    tree = tmp_path / "tree.yaml"
    tree.write_text(
        f"version: 1\nagents: [{{id: a, behaviour: '{__file__}:told'}}]", encoding="utf-8"
    )
    before = load_tree(tree)
    for word in ("SESSION", "SESSION_ID", "RESUME", "RESUME_SESSION_ID", "IDENTITY", "EXIT_LINE"):
        monkeypatch.setenv(f"DSH_ACTORS_{word}", "s-stale")
        monkeypatch.setenv(word, "s-stale")
    spec = load_tree(tree)
    assert spec == before
    assert "s-stale" not in json.dumps(effective_tree(spec))
    bound, heard = run(spec)
    assert (bound, heard) == ("s-asked", ["s-asked", "the line"])


@pytest.mark.behaviour(183, 184)
@pytest.mark.parametrize(
    "over",
    [
        "merge: true\nagents: [{id: a, args: {route: {provider: two, model: large}}}]",
        "agents: [{id: a, args: {provider: two}, isolation: pool, prompt: x, restart: permanent}]",
    ],
)
def test_an_overlay_leaves_the_bound_session_as_it_is(tmp_path: Path, over: str) -> None:
    """One that points to another provider, and one that replaces the whole entry."""
    told_here = f"'{__file__}:told'"
    files = Layered(
        tmp_path,
        f"version: 1\nagents: [{{id: a, behaviour: {told_here}, "
        "args: {route: {provider: one, model: small}}}]",
    )
    spec = files.load(over)
    assert spec.agents[0].args != files.load().agents[0].args
    assert run(spec) == ("s-asked", ["s-asked", "the line"])


def run(spec: TreeSpec) -> tuple[str | None, Any]:
    """Run a tree as a launcher does that was asked for session ``s-asked``.

    Returns:
        The session that its agent is bound to, and what its behaviour was told.
    """
    asked = Slots(identities={"a": LaunchIdentity("s-asked")}, exit_line="the line")
    with MemoryStore() as store, ActorSystem(store=store, slots=asked) as system:
        (handle,) = system.start_tree(spec)
        answer = handle.agent.ask(None).result(timeout=30)
        assert [info.id for info in store.list()] == ["s-asked"]
        return handle.agent.session_id, answer


@behaviour
def told(turn: Turn, _message: Any, **_args: Any) -> list[str | None]:
    """What a mounted behaviour is told of its launch, through the slots."""
    return [turn.slots.identities["a"].id, turn.slots.exit_line]


@pytest.mark.behaviour(185)
@pytest.mark.parametrize(
    "expression",
    [
        "${argv}",
        "${sys.argv[1]}",
        "${0}",
        "${1}",
        "${@}",
        "${slots}",
        "${exit_line}",
        "${options.resume}",
        "${__import__('sys').argv}",
        "${env:PATH}",
        "${HOME}",
    ],
)
def test_an_expression_cannot_read_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr("sys.argv", ["dsh-actors", "run", "--resume", "s-secret"])
    text = json.dumps(expression)
    with pytest.raises(ConfigError, match="the tree has no parameter"):
        Layered(tmp_path).load(f"agents: [{{id: census, args: {{x: {text}}}}}]")


@pytest.mark.behaviour(185)
@pytest.mark.parametrize("text", ["$HOME", "$(id)", "`id`", "${{ argv }}", "{{argv}}", "%(argv)s"])
def test_what_is_an_expression_elsewhere_is_text(tmp_path: Path, text: str) -> None:
    spec = Layered(tmp_path).load(f"agents: [{{id: census, prompt: {json.dumps(text)}}}]")
    assert spec.agents[0].prompt == text


@pytest.mark.behaviour(185)
@pytest.mark.parametrize(
    "tag", ["!!python/name:sys.argv", "!!python/object/apply:os.getenv", "!env"]
)
def test_nor_can_a_tag(tmp_path: Path, tag: str) -> None:
    files = Layered(tmp_path)
    with pytest.raises(ConfigError, match=r"the tag .* is not known here|is not a value"):
        files.load(f"agents: [{{id: census, prompt: {tag} [PATH]}}]")


@pytest.mark.behaviour(185)
def test_a_parameter_has_its_text_from_set_or_a_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["dsh-actors", "run", "--set", "limit=99"])
    monkeypatch.setenv("limit", "98")
    files = Layered(tmp_path)
    assert files.load().values["limit"] == 3
    given = files.load(settings=["limit=4", "root=$HOME/${limit}"]).values
    assert (given["limit"], given["root"].endswith("/$HOME/${limit}")) == (4, True)


def test_the_variables_that_name_folders_only_name_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_ACTORS_HOME", str(tmp_path))
    over = tmp_path / "config.yaml"
    over.write_text("version: 1\nagents: [{id: census, session_id: s-stale}]", encoding="utf-8")
    files = Layered(tmp_path)
    with pytest.raises(ConfigError, match="unknown key 'session_id'"):
        load_tree(files.tree, overlays=find_overlays(files.tree))
