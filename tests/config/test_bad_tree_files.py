"""A bad tree file gets one line that names the place and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from dsh_actors.config import load_tree
from dsh_actors.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

AGENTS = "version: 1\nagents:\n"
ONE = AGENTS + "  - id: a\n    behaviour: m:f\n"
PARAMETERS = (
    ONE + "parameters:\n  root: {type: path}\n  n: {type: int, default: 3}\n"
    "  flag: {type: bool, default: no}\n  extra: {type: json, default: 1}\n"
)
SYNTAX = "check the indentation, quotes and brackets there"
DURATION = "expected a duration such as 5s, 500ms, 2m or a number of seconds"
ID = "expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
BEHAVIOUR = "expected package.module:name or ./file.py:name"

BAD_FILES = {
    # not YAML, or not a tree at all
    "empty": ("", "1: the file is empty; begin with 'version: 1'"),
    "a list": ("[1]", "1: expected a mapping, got a list; begin with 'version: 1'"),
    "text": ("text", "1: expected a mapping, got 'text'; begin with 'version: 1'"),
    "no version": ("name: x", "1: missing key 'version'; begin with 'version: 1'"),
    "another version": (
        "name: x\nversion: 2",
        "2: version: expected 1, got 2; "
        "write 'version: 1', or update dsh-actors if the file is of a newer one",
    ),
    "open bracket": (
        "version: 1\nagents: [\n",
        f"3: bad YAML: while parsing a flow node: did not find expected node content; {SYNTAX}",
    ),
    "unknown alias": (ONE + "    prompt: *x\n", f"5: bad YAML: found undefined alias; {SYNTAX}"),
    "two documents": (
        "version: 1\n---\nversion: 1",
        "2: bad YAML: expected a single document in the stream: but found another document; "
        + SYNTAX,
    ),
    "control character": (
        ONE + "    prompt: \x00",
        "5: bad YAML: control characters are not allowed; remove the character",
    ),
    "foreign tag": (
        ONE + "    prompt: !!python/object:os.system {}",
        "5: the tag 'tag:yaml.org,2002:python/object:os.system' is not known here; remove the tag",
    ),
    "key twice": (
        "version: 1\nname: a\nname: b",
        "3: the key 'name' is there twice (also on line 2); keep one of them",
    ),
    "list as a key": (
        ONE + "    prompt: {[1]: 2}",
        "5: a key is a list or a mapping; use plain text",
    ),
    "impossible date": (
        ONE + "    prompt: 2024-13-45",
        "5: '2024-13-45' is not a value (month must be in 1..12); quote it if it is text",
    ),
    "bad merge": (
        ONE + "    prompt: {<<: 3}",
        "5: '<<' merges only mappings; give it a mapping",
    ),
    "cycle": (
        AGENTS + "  - &x\n    id: a\n    behaviour: m:f\n    children: [*x]",
        "3: an alias (*) leads back to this anchor (&); write the value out",
    ),
    # keys and types
    "unknown key": (ONE + "nam: x", "5: unknown key 'nam'; did you mean 'name'?"),
    "unknown key of an agent": (
        ONE + "    isolaton: pool",
        "5: unknown key 'isolaton' in agents[0]; did you mean 'isolation'?",
    ),
    "unknown key far from all": (
        ONE + "system:\n  zzz: 1",
        "6: unknown key 'zzz' in system; the keys are workers, stop_grace, inbox_limit, "
        "max_turns, worker_limits",
    ),
    "unknown key of a parameter": (
        ONE + "parameters:\n  system: {typ: int}",
        "6: unknown key 'typ' in parameters.system; did you mean 'type'?",
    ),
    "no agents": ("version: 1\nname: x", "1: missing key 'agents'; add it"),
    "empty agents": (
        "version: 1\nagents: []",
        "2: agents: the list is empty; add an id and a behaviour",
    ),
    "agent is text": (AGENTS + "  - a", "3: agents[0]: expected a mapping, got 'a'"),
    "no behaviour": (AGENTS + "  - id: a", "3: missing key 'behaviour' in agents[0]; add it"),
    "number as id": (AGENTS + "  - id: 5\n    behaviour: m:f", f"3: agents[0].id: {ID}, got 5"),
    "blank in id": (
        AGENTS + "  - id: a b\n    behaviour: m:f",
        f"3: agents[0].id: {ID}, got 'a b'",
    ),
    "behaviour without name": (
        AGENTS + "  - id: a\n    behaviour: m.f",
        f"4: agents[0].behaviour: {BEHAVIOUR}, got 'm.f'",
    ),
    "wrong choice": (
        ONE + "    isolation: pol",
        "5: agents[0].isolation: expected 'inline', 'pool' or 'own', got 'pol'; "
        "did you mean 'pool'?",
    ),
    "args not a mapping": (ONE + "    args: 3", "5: agents[0].args: expected a mapping, got 3"),
    "args with a number as key": (
        ONE + "    args:\n      3: x",
        "6: agents[0].args: the key 3 is not text; quote it",
    ),
    "no workers": (ONE + "system: {workers: 0}", "5: system.workers: expected at least 1, got 0"),
    "true workers": (
        ONE + "system: {workers: true}",
        "5: system.workers: expected a whole number, got true",
    ),
    "empty system": (ONE + "system:", "5: system: expected a mapping, got nothing"),
    "bad duration": (
        ONE + "system:\n  stop_grace: 5 s",
        f"6: system.stop_grace: {DURATION}, got '5 s'",
    ),
    "negative duration": (
        ONE + "system: {stop_grace: -1}",
        f"5: system.stop_grace: {DURATION}, got -1",
    ),
    "the first of two": (
        ONE + "    restart: x\n    isolation: 5",
        "5: agents[0].restart: expected 'permanent', 'transient' or 'temporary', got 'x'",
    ),
    # the tree as a whole
    "id twice": (
        ONE + "    children:\n      - id: b\n        behaviour: m:g\n"
        "      - behaviour: m:g\n        id: a",
        "9: the id 'a' is there twice (also on line 3); "
        "ids are unique in the whole tree; rename one of them",
    ),
    "value beyond msgpack": (
        ONE + "    prompt:\n      a:\n        - 1\n        - 99999999999999999999",
        "8: agents[0].prompt.a[1]: an integer beyond 64 bits; send it as a string",
    ),
    # parameters
    "unknown reference": (
        ONE + "    prompt:\n      - in ${rot}\nparameters:\n  root: {default: x}",
        "6: ${rot}: the tree has no parameter 'rot'; did you mean 'root'?",
    ),
    "reference without parameters": (
        ONE + "    args: {x: '${HOME}'}",
        "5: ${HOME}: the tree has no parameter 'HOME'; "
        "declare it under 'parameters', or write $${ for plain text",
    ),
    "default of another type": (
        ONE + "parameters:\n  n:\n    type: int\n    default: x",
        "8: parameters.n.default: expected a whole number, got 'x'",
    ),
    "number as text": (
        ONE + "parameters:\n  n: {default: 5}",
        "6: parameters.n.default: expected text, got 5; quote it",
    ),
    "bool as number": (
        ONE + "parameters:\n  n: {type: float, default: yes}",
        "6: parameters.n.default: expected a number, got true",
    ),
    "unknown type": (
        ONE + "parameters:\n  n: {type: integer}",
        "6: parameters.n.type: expected 'str', 'int', 'float', 'bool', 'path' or 'json', "
        "got 'integer'; did you mean 'int'?",
    ),
    "bad name": (
        ONE + "parameters: {9x: {}}",
        "5: parameters: the key '9x' is not a name of letters, digits, '_' and '-'; rename it",
    ),
    "missing value": (
        ONE + "parameters:\n  root: {help: what to count}",
        "6: parameter 'root' needs a value; add --set root=VALUE (what to count)",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_names_the_place(tmp_path: Path, name: str) -> None:
    text, expected = BAD_FILES[name]
    path = tmp_path / "tree.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_tree(path)
    assert str(raised.value) == f"{path}:{expected}"
    assert raised.value.line == int(expected.split(":", 1)[0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rot": "x"}, "5: --set rot: the tree has no parameter 'rot'; did you mean 'root'?"),
        (
            {"a.b": "x"},
            "5: --set a.b: the tree has no parameter 'a.b'; it has root, n, flag, extra",
        ),
        (
            {"root": ".", "n": "x"},
            "7: --set n: expected a whole number, got 'x'; the parameter is declared here",
        ),
        (
            {"root": ".", "flag": "maybe"},
            "8: --set flag: expected true or false, got 'maybe'; the parameter is declared here",
        ),
        (
            {"root": ".", "extra": "{"},
            "9: --set extra: expected JSON, got '{'; the parameter is declared here",
        ),
        ({}, "6: parameter 'root' needs a value; add --set root=VALUE"),
    ],
)
def test_a_bad_parameter_names_its_declaration(
    tmp_path: Path, given: Mapping[str, str], expected: str
) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text(PARAMETERS)
    with pytest.raises(ConfigError) as raised:
        load_tree(path, parameters=given)
    assert str(raised.value) == f"{path}:{expected}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such file; check the path"):
        load_tree(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read \\(Is a directory\\)"):
        load_tree(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"version: 1\nname: \xff\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: the file is not UTF-8; save it as"):
        load_tree(path)


def test_aliases_that_explode_are_refused_without_expanding_them(tmp_path: Path) -> None:
    lines = ["    prompt:", "      a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [
        f"      a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]"
        for level in range(1, 12)
    ]
    path = tmp_path / "tree.yaml"
    path.write_text(ONE + "\n".join(lines))
    with pytest.raises(ConfigError, match="aliases expand to more than 1000000 values"):
        load_tree(path)


@pytest.mark.parametrize("opened", ["[", "{a: ", "- "])
def test_a_file_nested_too_deep_is_refused(tmp_path: Path, opened: str) -> None:
    """Some releases of PyYAML overflow the stack of the process on such a file.

    Others have a limit of their own, and words of their own for it.
    """
    path = tmp_path / "tree.yaml"
    path.write_text(ONE + "    prompt:\n      " + opened * 100_000)
    with pytest.raises(ConfigError) as raised:
        load_tree(path)
    assert re.fullmatch(
        r"6: .*(nested deeper|maximum nesting).*", str(raised.value)[len(f"{path}:") :]
    )


def test_the_depth_is_counted_in_lists_and_mappings(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text(ONE + "    prompt: " + "[" * 97 + "]" * 97)
    load_tree(path)
    path.write_text(ONE + "    prompt: " + "[" * 98 + "]" * 98)
    with pytest.raises(ConfigError, match="5: nested deeper than 100 levels; flatten it"):
        load_tree(path)


def test_a_message_stays_on_one_line_whatever_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text(ONE + '    prompt: {"a\\nb": {"c d": 99999999999999999999}}')
    with pytest.raises(ConfigError) as raised:
        load_tree(path)
    assert r"agents[0].prompt['a\nb']['c d']: an integer beyond" in str(raised.value)
