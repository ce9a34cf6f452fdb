"""What the end of one child means for its siblings: the strategies of Erlang's ``supervisor``.

The rules are those of OTP's ``supervisor`` behaviour:

- A ``permanent`` child is started again after every end, a ``transient`` one after an abnormal
  end, a ``temporary`` one never.
- Only an end that leads to a restart concerns the siblings. Under ``one_for_one`` it does not;
  under ``one_for_all`` all others are ended too, and all are started again; under
  ``rest_for_one`` those that were started after it.
- They are ended in the reverse order of their start, and started in that order.
- A temporary child that is ended on the way is not started again. A transient one that had ended
  normally before is.
- One restart too many within the period ends all children and then the parent itself, which its
  own parent sees as an abnormal end.

Pure: who acts on a decision tells this what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dsh_actors.lifecycle.supervision import Intensity, wants_restart

if TYPE_CHECKING:
    from dsh_actors.lifecycle.causes import Outcome
    from dsh_actors.lifecycle.supervision import RestartType

__all__ = ["STRATEGIES", "Backoff", "Decision", "Siblings", "Strategy"]

Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")


class Decision(NamedTuple):
    """What is to be done about an end.

    Attributes:
        terminate: the siblings to end first, in this order.
        restart: the children to start again then, in this order; empty if none is.
        escalate: whether that was one restart too many: the parent ends, after its children.
    """

    terminate: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    escalate: bool = False


NOTHING = Decision()


class _Child:
    __slots__ = ("alive", "restart")

    def __init__(self, restart: RestartType) -> None:
        self.restart = restart
        self.alive = True


class Siblings:
    """The children of one parent, in the order of their start.

    Parameters:
        strategy: what the restart of one means for the others.
        intensity: counts the restarts of all of them.
    """

    __slots__ = ("_children", "intensity", "strategy")

    def __init__(self, strategy: Strategy, intensity: Intensity) -> None:
        self.strategy = strategy
        self.intensity = intensity
        self._children: dict[str, _Child] = {}

    def started(self, id: str, restart: RestartType) -> None:
        """A child was started, for the first time or again. Its place in the order stays."""
        child = self._children.get(id)
        if child is None:
            self._children[id] = _Child(restart)
        else:
            child.restart, child.alive = restart, True

    def removed(self, id: str) -> None:
        """A child was taken away for good, for example by a stop: it counts no more."""
        self._children.pop(id, None)

    @property
    def alive(self) -> list[str]:
        """The children that run, in the order of their start."""
        return [id for id, child in self._children.items() if child.alive]

    def ended(self, id: str, outcome: Outcome, now: float) -> Decision:
        """A child has ended by itself. What it decides has happened, as far as this knows.

        Parameters:
            id: the child; one that is not known, or does not run, changes nothing.
            outcome: how it ended.
            now: the time in monotonic seconds.
        """
        child = self._children.get(id)
        if child is None or not child.alive:
            return NOTHING
        child.alive = False
        if not wants_restart(child.restart, outcome):
            if child.restart == "temporary":
                del self._children[id]
            return NOTHING
        if not self.intensity.allow(now):
            ended = tuple(reversed(self.alive))
            self._children.clear()
            return Decision(ended, (), escalate=True)
        concerned = self._concerned(id)
        terminate = tuple(other for other in reversed(concerned) if self._children[other].alive)
        for other in terminate:
            self._children[other].alive = False
            if self._children[other].restart == "temporary":
                del self._children[other]
        again = {id, *concerned}
        restart = tuple(each for each in self._children if each in again)
        for each in restart:
            self._children[each].alive = True
        return Decision(terminate, restart)

    def _concerned(self, id: str) -> list[str]:
        """The siblings that go down with a child, in the order of their start."""
        if self.strategy == "one_for_one":
            return []
        order = list(self._children)
        if self.strategy == "rest_for_one":
            return order[order.index(id) + 1 :]
        return [other for other in order if other != id]


class Backoff:
    """How long to wait before a restart: longer with each one, up to a limit, with jitter.

    Parameters:
        first: seconds before the first restart in a row.
        factor: by how much each next wait is longer.
        limit: the longest wait, in seconds.
        jitter: which part of a wait is random; 0 for none, 1 for anything from 0 to the whole.
        quiet: seconds without a restart after which the next one is a first one again.
    """

    __slots__ = ("_in_a_row", "_last", "factor", "first", "jitter", "limit", "quiet")

    def __init__(
        self,
        first: float = 0.0,
        factor: float = 2.0,
        limit: float = 30.0,
        jitter: float = 0.2,
        quiet: float = 60.0,
    ) -> None:
        self.first, self.factor, self.limit = first, factor, limit
        self.jitter, self.quiet = jitter, quiet
        self._in_a_row = 0
        self._last = float("-inf")

    def wait(self, now: float, random: float) -> float:
        """Count a restart and return how long to wait before it, in seconds.

        Parameters:
            now: the time in monotonic seconds.
            random: from 0 up to, but not including, 1.
        """
        if now - self._last > self.quiet:
            self._in_a_row = 0
        self._last = now
        whole = self.first
        for _ in range(self._in_a_row):
            if whole >= self.limit:
                break
            whole *= self.factor
        whole = min(whole, self.limit)
        self._in_a_row += 1
        return whole * (1.0 - self.jitter * random)
