"""Policies only become narrower on the way down."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors import codec
from dsh_actors.errors import PolicyError, UsageError
from dsh_actors.lifecycle.policy import ISOLATIONS, UNBOUNDED, Policy, normal_path

names = st.sampled_from(["read", "write", "bash", "search"])
parts = st.sampled_from(["a", "b", "ab", ".", "..", ""])
paths = st.lists(parts, max_size=5).map(lambda found: "/" + "/".join(found))
policies = st.builds(
    Policy,
    tools=st.none() | st.frozensets(names),
    paths=st.none() | st.lists(paths, max_size=4),
    network=st.booleans(),
    isolation=st.frozensets(st.sampled_from(ISOLATIONS)),
    max_depth=st.none() | st.integers(0, 5),
)


@pytest.mark.behaviour(146)
@given(st.lists(policies, min_size=2, max_size=6))
def test_no_request_ever_widens(requests: list[Policy]) -> None:
    effective = UNBOUNDED
    for request in requests:
        parent, effective = effective, effective.meet(request)
        assert effective <= parent
        assert effective <= request


@pytest.mark.behaviour(146)
@given(policies, policies, names, paths, st.sampled_from(ISOLATIONS))
def test_a_child_may_exactly_what_both_allow(
    parent: Policy, asked: Policy, tool: str, path: str, isolation: str
) -> None:
    child = parent.meet(asked)
    assert child.allows_tool(tool) == (parent.allows_tool(tool) and asked.allows_tool(tool))
    assert child.allows_path(path) == (parent.allows_path(path) and asked.allows_path(path))
    assert child.network == (parent.network and asked.network)
    assert (isolation in child.isolation) == (
        isolation in parent.isolation and isolation in asked.isolation
    )


@given(policies, policies, policies)
def test_it_is_a_meet(one: Policy, two: Policy, three: Policy) -> None:
    assert one.meet(two) == two.meet(one)
    assert one.meet(two.meet(three)) == one.meet(two).meet(three)
    assert one.meet(one) == one
    assert (one <= two) == (one.meet(two) == one)
    assert one.meet(UNBOUNDED) == one == UNBOUNDED.meet(one)


@given(policies)
def test_it_survives_the_session_header(policy: Policy) -> None:
    assert Policy.from_plain(codec.decode(codec.encode(policy.to_plain()))) == policy


def test_what_is_not_restricted_takes_no_room() -> None:
    assert UNBOUNDED.to_plain() == {}


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        UNBOUNDED.network = False  # type: ignore[misc]
    assert dataclasses.replace(UNBOUNDED, network=False) == Policy(network=False)


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/", "/"), ("//", "/"), ("/a/", "/a"), ("/a//b/./c", "/a/b/c"), ("/a/../b", "/b"),
        ("/../../a", "/a"), ("/a/b/../..", "/"),
    ],
)  # fmt: skip
def test_paths_are_normalised(path: str, normal: str) -> None:
    assert normal_path(path) == normal


def test_a_prefix_ends_between_names() -> None:
    policy = Policy(paths=["/srv"])
    assert policy.allows_path("/srv/x/y")
    assert policy.allows_path("/srv")
    assert not policy.allows_path("/srvshop")
    assert not policy.allows_path("/srv/../etc/passwd")


def test_equal_policies_are_equal() -> None:
    assert Policy(paths=["/a/b", "/a", "/c/"]) == Policy(paths=["/c", "/a"])
    assert hash(Policy(tools=["a", "b", "a"])) == hash(Policy(tools=("b", "a")))


def test_nothing_is_less_than_everything() -> None:
    nothing = Policy(tools=[], paths=[], network=False, isolation=[], max_depth=0)
    assert nothing <= UNBOUNDED
    assert not nothing >= UNBOUNDED
    assert not nothing.allows_tool("read")
    assert not nothing.allows_path("/")


def test_an_isolation_that_is_not_allowed_is_named_with_those_that_are() -> None:
    with pytest.raises(PolicyError, match="no child with isolation 'own'; it allows inline, pool"):
        Policy(isolation=["pool", "inline"]).check_isolation("own")
    with pytest.raises(PolicyError, match="no children at all"):
        Policy(isolation=[]).check_isolation("inline")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tools": "read"}, r"policy\.tools is a collection of texts, not 'read'"),
        ({"tools": [1]}, r"policy\.tools is a collection of texts; 1 is none"),
        ({"tools": [""]}, r"policy\.tools has an empty name"),
        ({"paths": ["work"]}, "an absolute one, not 'work'"),
        ({"paths": ["/a\0b"]}, "an absolute one"),
        ({"paths": 3}, r"policy\.paths is a collection of texts, not 3"),
        ({"network": 1}, r"policy\.network is True or False, not 1"),
        ({"isolation": ["thread"]}, "of inline, pool, own, not 'thread'"),
        ({"max_depth": -1}, r"policy\.max_depth is a whole number from 0 or None, not -1"),
        ({"max_depth": True}, r"policy\.max_depth"),
        ({"tool": []}, "a policy has no 'tool'; it has tools, paths"),
        ({"tools": None}, r"policy\.tools is a list of texts; leave it out"),
        ([], "a policy is a mapping of tools"),
        (None, "a policy is a mapping of tools"),
    ],
)
def test_what_is_wrong_is_named(wrong: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Policy.from_plain(wrong)  # type: ignore[arg-type]
