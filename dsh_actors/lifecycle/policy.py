"""What an agent and everything below it may do. A child's policy is the meet of its parent's and
of what was asked for it, fixed when it is started: it can be narrower, never wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dsh_actors.errors import PolicyError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Self

ISOLATIONS: Final = ("inline", "pool", "own")
FIELDS: Final = ("tools", "paths", "network", "isolation", "max_depth")


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """What an agent may do. ``Policy()`` allows everything.

    Policies are in normal form, so that two that allow the same are equal.

    Parameters:
        tools: the names of the tools that it may use; None allows all, an empty collection none.
        paths: the absolute paths that it may touch, each with everything below it; None allows
            all, an empty collection none. They are normalised as text: whoever enforces them
            resolves symbolic links first.
        network: whether it may use the network.
        isolation: where its children may live, of ``inline``, ``pool`` and ``own``.
        max_depth: the greatest depth that an agent below it may have, where a root has 0; None
            leaves it to the system.

    Raises:
        UsageError: a value that is none of the possible ones.
    """

    tools: frozenset[str] | None = None
    paths: tuple[str, ...] | None = None
    network: bool = True
    isolation: frozenset[str] = frozenset(ISOLATIONS)
    max_depth: int | None = None

    def __init__(
        self,
        tools: Collection[str] | None = None,
        paths: Collection[str] | None = None,
        network: bool = True,
        isolation: Collection[str] = ISOLATIONS,
        max_depth: int | None = None,
    ) -> None:
        if not isinstance(network, bool):
            raise UsageError(f"policy.network is True or False, not {network!r}")
        where = _names("isolation", isolation)
        if not where <= frozenset(ISOLATIONS):
            wrong = min(where - frozenset(ISOLATIONS))
            raise UsageError(f"policy.isolation is of {', '.join(ISOLATIONS)}, not {wrong!r}")
        if max_depth is not None and (
            not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < 0
        ):
            raise UsageError(
                f"policy.max_depth is a whole number from 0 or None, not {max_depth!r}"
            )
        put = object.__setattr__
        put(self, "tools", None if tools is None else _names("tools", tools))
        put(self, "paths", None if paths is None else _outermost(map(normal_path, _texts(paths))))
        put(self, "network", network)
        put(self, "isolation", where)
        put(self, "max_depth", max_depth)

    # -- comparing -----------------------------------------------------------------------------

    def meet(self, requested: Policy) -> Policy:
        """What both allow: the policy of a child of whoever has this one."""
        if requested is self or requested == UNBOUNDED:
            return self
        return Policy(
            tools=_meet_names(self.tools, requested.tools),
            paths=_meet_paths(self.paths, requested.paths),
            network=self.network and requested.network,
            isolation=self.isolation & requested.isolation,
            max_depth=_least(self.max_depth, requested.max_depth),
        )

    def __le__(self, other: Policy) -> bool:
        """Whether everything that this one allows is allowed by the other."""
        return (
            (other.tools is None or (self.tools is not None and self.tools <= other.tools))
            and (
                other.paths is None
                or (self.paths is not None and all(map(other.allows_path, self.paths)))
            )
            and (other.network or not self.network)
            and self.isolation <= other.isolation
            and (
                other.max_depth is None
                or (self.max_depth is not None and self.max_depth <= other.max_depth)
            )
        )

    # -- asking --------------------------------------------------------------------------------

    def allows_tool(self, name: str) -> bool:
        """Whether a tool may be used."""
        return self.tools is None or name in self.tools

    def allows_path(self, path: str) -> bool:
        """Whether an absolute path may be touched. Resolve its symbolic links first.

        Raises:
            UsageError: the path is not absolute.
        """
        if self.paths is None:
            return True
        path = normal_path(path)
        return any(_is_below(path, allowed) for allowed in self.paths)

    def check_isolation(self, isolation: str) -> None:
        """Refuse a child in an isolation that is not allowed.

        Raises:
            PolicyError: it is not; the message names those that are.
        """
        if isolation not in self.isolation:
            allowed = [each for each in ISOLATIONS if each in self.isolation]
            raise PolicyError(
                f"the policy allows no child with isolation {isolation!r}; "
                f"it allows {', '.join(allowed) or 'no children at all'}"
            )

    # -- plain data ----------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Plain data for a session's header or a frame: only what is restricted."""
        plain: dict[str, Any] = {}
        if self.tools is not None:
            plain["tools"] = sorted(self.tools)
        if self.paths is not None:
            plain["paths"] = list(self.paths)
        if not self.network:
            plain["network"] = False
        if self.isolation != frozenset(ISOLATIONS):
            plain["isolation"] = [each for each in ISOLATIONS if each in self.isolation]
        if self.max_depth is not None:
            plain["max_depth"] = self.max_depth
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`to_plain`.

        Raises:
            UsageError: it is no such data; the message names the field.
        """
        check_fields("policy", plain, FIELDS)
        for name in ("tools", "paths"):
            if plain.get(name, ()) is None:
                raise UsageError(f"policy.{name} is a list of texts; leave it out to allow all")
        return cls(**plain)


def check_fields(what: str, plain: Any, known: tuple[str, ...]) -> None:
    """Refuse plain data that is no mapping of known fields, naming the first that is wrong."""
    if not hasattr(plain, "keys"):
        raise UsageError(f"a {what} is a mapping of {', '.join(known)}; this is {plain!r}")
    for name in plain:
        if name not in known:
            raise UsageError(f"a {what} has no {name!r}; it has {', '.join(known)}")


def normal_path(path: str) -> str:
    """An absolute path without ``.``, ``..``, double or trailing slashes; as text, on no disk.

    Raises:
        UsageError: it is not absolute, or no path at all.
    """
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise UsageError(
            f"a path of a policy is an absolute one, not {path!r}: it has to mean the same in "
            "every process"
        )
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part and part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def _is_below(path: str, top: str) -> bool:
    return path == top or top == "/" or path.startswith(f"{top}/")


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Without those that another one covers; sorted."""
    kept: list[str] = []
    for path in sorted(paths, key=len):
        if not any(_is_below(path, top) for top in kept):
            kept.append(path)
    return tuple(sorted(kept))


def _meet_paths(
    one: tuple[str, ...] | None, other: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    both = [path for path in one if any(_is_below(path, top) for top in other)]
    both += [path for path in other if any(_is_below(path, top) for top in one)]
    return tuple(both)


def _meet_names(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _names(field: str, names: Collection[str]) -> frozenset[str]:
    found = frozenset(_texts(names, field))
    if not all(found):
        raise UsageError(f"policy.{field} has an empty name")
    return found


def _texts(values: Collection[str], field: str = "paths") -> list[str]:
    # A text is a collection of texts too, and the usual slip.
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise UsageError(f"policy.{field} is a collection of texts, not {values!r}")
    found = list(values)
    for value in found:
        if not isinstance(value, str):
            raise UsageError(f"policy.{field} is a collection of texts; {value!r} is none")
    return found


UNBOUNDED: Final = Policy()
"""Allows everything."""
