"""What a message may hold, how it arrives, and what the refusals say."""

from __future__ import annotations

import datetime as dt
import enum
import math
import pathlib
import threading
import uuid
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_actors import codec
from dsh_actors.errors import MessageError, UsageError

CODEC_LIMIT_OF_TESTS = 1000


@codec.register
@dataclass
class Point:
    x: int
    y: int = 0
    derived: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.derived = self.x + self.y


@codec.register(name="tests.node")
@dataclass
class Node:
    value: Any
    next: Node | None = None


@codec.register
@dataclass(frozen=True)
class Frozen:
    parts: Any


@dataclass
class Unregistered:
    x: int


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


Pair = namedtuple("Pair", "left right")

zones = st.timedeltas(min_value=dt.timedelta(hours=-23), max_value=dt.timedelta(hours=23)).map(
    dt.timezone
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes()
    | st.datetimes(timezones=zones)
    | st.builds(Point, st.integers(-9, 9))
)
keys = st.text() | st.integers(-9, 9) | st.binary() | st.none() | st.dates()
plain_values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.builds(Node, inner)
)


@given(plain_values)
def test_plain_data_survives_the_round_trip(value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


def test_nan_and_infinity_are_carried() -> None:
    assert math.isnan(codec.decode(codec.encode(math.nan)))
    assert codec.decode(codec.encode(-math.inf)) == -math.inf


def test_tuples_arrive_as_lists_and_subclasses_as_the_plain_type() -> None:
    sent = {
        "tuple": (1, (2,)),
        "named": Pair(1, 2),
        "text": Text("t"),
        "counter": Counter("aab"),
        "ordered": OrderedDict(a=1),
        "default": defaultdict(list, a=[1]),
        "view": memoryview(b"v"),
        "array": bytearray(b"a"),
    }

    arrived = codec.decode(codec.encode(sent))

    assert arrived == {
        "tuple": [1, [2]],
        "named": [1, 2],
        "text": "t",
        "counter": {"a": 2, "b": 1},
        "ordered": {"a": 1},
        "default": {"a": [1]},
        "view": b"v",
        "array": b"a",
    }
    assert [type(arrived[name]) for name in ("text", "counter", "view")] == [str, dict, bytes]


def test_aware_datetimes_keep_their_offset_and_naive_ones_stay_naive() -> None:
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
    aware = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=zone)

    arrived_aware = codec.decode(codec.encode(aware))
    arrived_naive = codec.decode(codec.encode(aware.replace(tzinfo=None)))

    assert arrived_aware == aware
    assert arrived_aware.utcoffset() == dt.timedelta(hours=5, minutes=30)
    assert arrived_naive.tzinfo is None


def test_registered_dataclasses_are_made_by_their_constructor() -> None:
    arrived = codec.decode(codec.encode([Point(1, 2), Node(Node(Point(3)))]))

    assert arrived == [Point(1, 2), Node(Node(Point(3)))]
    assert arrived[0].derived == 3


def test_a_field_added_since_takes_its_default() -> None:
    data = codec.encode(Point(7)).replace(b"\xa1y\x00", b"")  # the field y
    older = data.replace(b"\x82\xa1x", b"\x81\xa1x")
    header_size = 3  # ext 8: type byte, length, code
    older = older[:1] + bytes([len(older) - header_size]) + older[2:]

    assert codec.decode(older) == Point(7, 0)


def cycle() -> dict[str, Any]:
    value: dict[str, Any] = {"a": [1]}
    value["a"].append(value)
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def chain(length: int) -> Node:
    node = Node(0)
    for _ in range(length):
        node = Node(0, node)
    return node


REFUSED = [
    ({"jobs": [0, 0, 0, {"callback": print}]}, "$.jobs[3].callback", "send its name"),
    ([lambda: 1], "$[0]", "send its name"),
    ([Point], "$[0]", "send its name"),
    ({"s": {1, 2}}, "$.s", "send list(value)"),
    ((1, frozenset()), "$[1]", "send list(value)"),
    ({"n": 2**64}, "$.n", "beyond 64 bits"),
    ({"n": (1, -(2**63) - 1)}, "$.n[1]", "beyond 64 bits"),
    (Unregistered(1), "$", "@register"),
    ({"c": Color.RED}, "$.c", ".value"),
    ([Level.LOW], "$[0]", ".value"),
    ({"p": pathlib.Path("/x")}, "$.p", "send str(value)"),
    ({"u": uuid.UUID(int=0)}, "$.u", "send str(value)"),
    ({"g": (n for n in ())}, "$.g", "send list(value)"),
    ([threading.Lock()], "$[0]", "send plain data"),
    ([ValueError("x")], "$[0]", "send str(error)"),
    ({"t": "\ud800"}, "$.t", "surrogate"),
    ({"two words": {"\ud800": 1}}, "$['two words']", "surrogate"),
    ({"d": {(1, 2): 3}}, "$.d", "the key (1, 2) is a tuple"),
    ([1, {Frozen((1,)): 3}], "$[1]", "is a Frozen"),
    (Node({"x": {(1,): 0}}), "$.value.x", "is a tuple"),
    ({Color.RED: 1}, "$", "enum"),
    ({frozenset(): 1}, "$", "frozenset"),
    (Node(1, Node({2})), "$.next.value", "set"),
    ([memoryview(b"abcd")[::2]], "$[0]", "tobytes"),
    (cycle(), "$.a[1]", "contains itself"),
    (nested(100_000), "$[0][0]", "nested too deep"),
    (chain(200), "$.next.next", "nested too deep"),
    (complex(1, 2), "$", "type builtins.complex"),
]


@pytest.mark.parametrize(("value", "path", "advice"), REFUSED)
def test_a_value_that_cannot_be_carried_is_refused_with_its_place(
    value: Any, path: str, advice: str
) -> None:
    with pytest.raises(MessageError) as caught:
        codec.encode(value)

    assert caught.value.path.startswith(path)
    assert advice in caught.value.problem
    if "deep" not in advice:
        assert caught.value.path == path


def test_a_dataclass_cycle_is_found() -> None:
    node = Node(0)
    node.next = Node(1, node)

    with pytest.raises(MessageError, match=r"^\$\.next\.next: it contains itself"):
        codec.encode(node)


def test_the_same_object_twice_is_not_a_cycle() -> None:
    shared = [(1, 2)]

    assert codec.decode(codec.encode([shared, shared])) == [[[1, 2]], [[1, 2]]]


def test_a_value_over_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(MessageError, match=r"1,003 bytes and the limit is 1,000"):
        codec.encode(b"x" * 1000, limit=CODEC_LIMIT_OF_TESTS)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01\x02", b"\xdd\xff\xff\xff\xff", b"\xd9\x05a"])
def test_bytes_that_are_not_one_value_raise_a_message_error(data: bytes) -> None:
    with pytest.raises(MessageError, match="not one encoded value"):
        codec.decode(data)


def test_an_unknown_extension_type_is_refused() -> None:
    with pytest.raises(MessageError, match="unknown extension type 99"):
        codec.decode(b"\xd4\x63\x00")


def test_a_dataclass_unknown_to_the_receiver_is_named() -> None:
    data = codec.encode(Node(1)).replace(b"tests.node", b"tests.gone")

    with pytest.raises(MessageError, match=r"'tests.gone' is not registered"):
        codec.decode(data)


def test_a_dataclass_that_lost_a_field_is_named() -> None:
    data = codec.encode(Point(1)).replace(b"\xa1y", b"\xa1z")

    with pytest.raises(MessageError, match=r"Point' cannot be made"):
        codec.decode(data)


def test_only_dataclasses_can_be_registered() -> None:
    with pytest.raises(UsageError, match="not a dataclass"):
        codec.register(Color)


def test_a_subclass_of_a_dataclass_must_be_a_dataclass_itself() -> None:
    class Derived(Point):
        pass

    with pytest.raises(UsageError, match="not a dataclass"):
        codec.register(Derived)


def test_a_name_belongs_to_one_class_but_a_reload_replaces_it() -> None:
    def make() -> type:
        @dataclass
        class Reloaded:
            x: int

        return codec.register(Reloaded, name="tests.reloaded")

    first, second = make(), make()

    assert type(codec.decode(codec.encode(first(1)))) is second
    with pytest.raises(UsageError, match="is registered for"):
        codec.register(Unregistered, name="tests.reloaded")


def test_the_alias_of_the_main_script_in_workers_is_the_same_home() -> None:
    def make(module: str) -> type:
        cls = dataclass(type("InMain", (), {"__annotations__": {"x": int}, "__module__": module}))
        return codec.register(cls)

    in_parent = make("__main__")
    data = codec.encode(in_parent(1))
    in_worker = make("__mp_main__")

    assert type(codec.decode(data)) is in_worker


@pytest.mark.parametrize("offset", [1, -1, 999_999, -999_999, 1_000_000, 60_000_000])
def test_an_offset_below_a_second_is_kept(offset: int) -> None:
    """CPython's ``fromisoformat`` takes such an offset for UTC; hypothesis found it."""
    zone = dt.timezone(dt.timedelta(microseconds=offset))
    for value in (dt.datetime(2000, 1, 1, tzinfo=zone), dt.time(12, 30, tzinfo=zone)):
        back = codec.decode(codec.encode(value))
        assert back == value
        assert back.utcoffset() == value.utcoffset()
