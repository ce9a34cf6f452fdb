"""What holds for all overlays: the merge is determined by its input, order counts as it is
documented, and an origin names the file that has the value.
"""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_actors.config import effective_tree, load_tree
from dsh_actors.errors import ConfigError
from dsh_actors.lifecycle.policy import Policy
from tests.config.layered import agent

if TYPE_CHECKING:
    from dsh_actors.config import TreeSpec

IDS = ("a", "b", "c.d")
names = st.sampled_from(["x", "y", "z"])
scalars = st.one_of(st.integers(-5, 5), st.booleans(), st.sampled_from(["s", "${p}", "$${p}"]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
arguments = st.dictionaries(names, values, max_size=3)
subsets = st.lists(st.sampled_from(["inline", "pool", "own"]), unique=True)
policies: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.lists(st.sampled_from(["read", "write", "exec"]), unique=True),
        "paths": st.lists(st.sampled_from(["/a", "/a/b", "/c", "d"]), unique=True),
        "network": st.booleans(),
        "isolation": subsets,
        "depth": st.integers(0, 5),
    },
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "isolation": st.sampled_from(["inline", "pool", "own"]),
    "restart": st.sampled_from(["permanent", "transient", "temporary"]),
    "interrupted": st.sampled_from(["fail", "retry"]),
    "prompt": values,
    "args": arguments,
    "policy": policies,
    "budget": st.fixed_dictionaries(
        {}, optional={"tokens": st.integers(0, 9), "wall": st.sampled_from(["5s", 3, "1.5m"])}
    ),
}
systems: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "workers": st.integers(1, 9),
        "stop_grace": st.sampled_from(["5s", "100ms", 2]),
        "max_turns": st.integers(1, 9),
    },
)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    def entry(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "behaviour": "./file.py:f",
            **draw(st.fixed_dictionaries({}, optional=fields)),
        }

    a, b, c = (entry(name) for name in IDS)
    b["children"] = [c]
    a["children"] = [b]
    tree: dict[str, Any] = {
        "version": 1,
        "agents": [a],
        "parameters": {"p": {"default": "value"}},
    }
    if draw(st.booleans()):
        tree["system"] = draw(systems)
    return tree


overlays: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"version": st.just(1)},
    optional={
        "merge": st.booleans(),
        "name": st.sampled_from(["one", "two"]),
        "system": systems,
        "parameters": st.just({"p": {"default": "other"}}),
        "agents": st.lists(
            st.fixed_dictionaries(
                {"id": st.sampled_from(IDS)}, optional={**fields, "merge": st.booleans()}
            ),
            unique_by=lambda patch: str(patch["id"]),
        ),
    },
)


class Folder:
    """A folder with a tree and overlays, each in a file of its own."""

    def __init__(self, tree: Any, layers: list[Any]) -> None:
        self._holder = tempfile.TemporaryDirectory()
        folder = Path(self._holder.name)
        self.tree = self._write(folder / "tree.yaml", tree)
        self.overlays = [
            self._write(folder / f"over{number}.yaml", layer) for number, layer in enumerate(layers)
        ]

    @staticmethod
    def _write(path: Path, value: Any) -> Path:
        path.write_text(yaml.safe_dump(value), encoding="utf-8")
        return path

    def load(self) -> TreeSpec:
        return load_tree(self.tree, overlays=self.overlays)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.cleanup()


def merged(old: Any, new: Any) -> Any:
    """RFC 7386, as it is written there."""
    if not isinstance(new, dict):
        return new
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def laid_over(tree: dict[str, Any], layer: dict[str, Any]) -> None:
    """What an overlay does, in the fewest words; policies are left to the runtime's own meet."""

    def put(holder: dict[str, Any], key: str, value: Any, deep: bool) -> None:
        holder[key] = merged(holder.get(key), value) if deep else value

    a = tree["agents"][0]
    entries = dict(zip(IDS, (a, a["children"][0], a["children"][0]["children"][0]), strict=True))
    deep = layer.get("merge", False)
    for key in ("name", "system"):
        if key in layer:
            put(tree, key, layer[key], deep)
    for name, parameter in layer.get("parameters", {}).items():
        tree["parameters"][name] = parameter
    for patch in layer.get("agents", []):
        for key, value in patch.items():
            if key not in ("id", "merge", "policy"):
                put(entries[patch["id"]], key, value, patch.get("merge", deep))


def met(stated: list[Any], folder: str) -> dict[str, Any] | None:
    """The meet of all stated policies, by the type that the runtime has for them."""
    result = None
    for each in stated:
        plain = {("max_depth" if key == "depth" else key): value for key, value in each.items()}
        if "paths" in plain:
            plain["paths"] = [str(Path(folder, path)) for path in plain["paths"]]
        asked = Policy.from_plain(plain)
        result = asked if result is None else result.meet(asked)
    return None if result is None else result.to_plain()


def policies_in(tree: Any, layers: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in IDS}
    waiting = list(tree["agents"])
    for entry in waiting:
        found[entry["id"]] += [entry["policy"]] if "policy" in entry else []
        waiting += entry.get("children", [])
    for layer in layers:
        for patch in layer.get("agents", []):
            found[patch["id"]] += [patch["policy"]] if "policy" in patch else []
    return found


@settings(max_examples=60, deadline=None)
@given(trees(), st.lists(overlays, max_size=3))
def test_layers_are_laid_one_after_the_other(tree: Any, layers: list[Any]) -> None:
    with Folder(tree, layers) as files:
        spec = files.load()
        expected = copy.deepcopy(tree)
        for layer in layers:
            laid_over(expected, copy.deepcopy(layer))
        with Folder(expected, []) as single:
            alone = single.load()
        for name, stated in policies_in(tree, layers).items():
            found = agent(spec, name)
            simple = agent(alone, name)
            assert (found.isolation, found.restart) == (simple.isolation, simple.restart)
            assert (found.prompt, found.args) == (simple.prompt, simple.args)
            assert (found.budget, found.interrupted) == (simple.budget, simple.interrupted)
            assert found.policy == met(stated, str(files.tree.parent))
        assert (spec.system, spec.values) == (alone.system, alone.values)


@settings(max_examples=25, deadline=None)
@given(trees(), st.lists(overlays, max_size=3))
def test_the_same_input_gives_the_same_tree_and_notices(tree: Any, layers: list[Any]) -> None:
    with Folder(tree, layers) as files:
        first, second = files.load(), files.load()
        assert first == second
        assert first.notices == second.notices


@settings(max_examples=25, deadline=None)
@given(trees(), overlays)
def test_an_overlay_that_is_used_twice_changes_nothing_more(tree: Any, layer: Any) -> None:
    with Folder(tree, [layer]) as once, Folder(tree, [layer, layer]) as twice:
        one, two = effective_tree(once.load()), effective_tree(twice.load())
        assert json.dumps(one).replace(str(once.tree.parent), "") == json.dumps(two).replace(
            str(twice.tree.parent), ""
        )


@settings(max_examples=25, deadline=None)
@given(trees(), st.lists(overlays, max_size=2))
def test_the_effective_tree_is_a_tree_file_that_gives_the_same_tree(
    tree: Any, layers: list[Any]
) -> None:
    with Folder(tree, layers) as files:
        spec = files.load()
        written = effective_tree(spec)
        with Folder(written, []) as again:
            assert effective_tree(again.load()) == written


wild_keys = st.one_of(
    st.sampled_from(
        [
            "id",
            "merge",
            "system",
            "agents",
            "name",
            "parameters",
            "policy",
            "budget",
            "args",
            "children",
            "behaviour",
            "restart",
            "workers",
            "paths",
            "wall",
            "default",
            "p",
        ]
    ),
    st.integers(0, 1),
    st.none(),
    st.text(max_size=2),
)
wild_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-1, 2),
        st.floats(),
        st.sampled_from(["a", "c.d", "own", "m:f", "5s", "${p}", "${", "", "\x00", "a\nb"]),
        st.binary(max_size=2),
        st.dates(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(wild_keys, inner, max_size=4)
    ),
    max_leaves=8,
)
wild_patches = st.builds(
    lambda patch, name: {**patch, "id": name},
    st.dictionaries(wild_keys, wild_values, max_size=3),
    st.sampled_from(IDS),
)
wild_overlays = st.one_of(
    wild_values,
    st.fixed_dictionaries(
        {"version": st.just(1)},
        optional={
            "merge": st.booleans(),
            "system": wild_values,
            "parameters": wild_values,
            "agents": st.lists(wild_patches, max_size=2),
        },
    ),
)


@settings(max_examples=80, deadline=None)
@given(trees(), wild_overlays)
def test_whatever_an_overlay_holds_it_is_used_or_refused_in_one_line(tree: Any, layer: Any) -> None:
    with Folder(tree, [layer]) as files:
        try:
            files.load()
        except ConfigError as error:
            refusal = str(error)
        else:
            refusal = ""
        assert "\n" not in refusal


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


@settings(max_examples=40, deadline=None)
@given(trees(), st.lists(overlays, max_size=3))
def test_an_origin_names_the_file_and_the_line_that_have_the_value(
    tree: Any, layers: list[Any]
) -> None:
    with Folder(tree, layers) as files:
        spec = files.load()
        assert spec.origins is not None
        for name in IDS:
            found = agent(spec, name)
            for key in ("prompt", "args"):
                for path, value in leaves(getattr(found, key)):
                    origin = spec.origins.of("agents", name, key, *path)
                    if origin is None:
                        assert value in ({}, found.prompt)  # nobody has written it
                        continue
                    line = (
                        Path(origin.file).read_text(encoding="utf-8").splitlines()[origin.line - 1]
                    )
                    wanted = {"value": "${p}", "other": "${p}", "${p}": "$${p}"}.get(
                        value if isinstance(value, str) else "", value
                    )
                    assert line.rstrip().endswith(yaml.safe_dump(wanted).split("\n")[0]), line
            origin = spec.origins.of("agents", name, "isolation")
            stating = [
                path
                for path, layer in zip(files.overlays, layers, strict=True)
                for patch in layer.get("agents", [])
                if patch["id"] == name and "isolation" in patch
            ]
            if stating:
                assert origin is not None
                assert origin.file == str(stating[-1])  # the last one that says it
