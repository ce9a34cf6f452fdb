"""Which event may follow in a session: checked before it is appended. Pure, and no history.

Of each session it knows the number of its newest turn and whether that is open, and its open
calls. An event that cannot follow is refused before it reaches the store.
"""

from __future__ import annotations

from dsh_actors.errors import IllegalTransition

__all__ = ["Transitions"]

_RECORDED = False
_DISPATCHED = True


class Transitions:
    """The state of the sessions of one system, by the generation of their agents.

    Each ``check`` raises and changes nothing; each ``did`` notes what is in the log. The events of
    one session come one after another, so that nothing comes between the two.
    """

    __slots__ = ("_calls", "_turns")

    def __init__(self) -> None:
        # The newest turn; its number is negative while it is open. Absent before the first.
        self._turns: dict[int, int] = {}
        # Its open calls, and whether each was dispatched. Absent if there are none.
        self._calls: dict[int, dict[str, bool]] = {}

    def check_start(self, key: int, turn: int) -> None:
        """A turn may begin.

        Raises:
            IllegalTransition: another one is open, or the number is not the next one.
        """
        last = self._turns.get(key)
        # The first number in a life continues those of the lives before.
        if turn != (turn if last is None else last + 1) or turn <= 0 or (last or 0) < 0:
            raise IllegalTransition(
                f"turn {turn} cannot begin {_after(last)}; the event was refused",
                event="turn/start",
            )

    def check_open(self, key: int, turn: int, event: str) -> None:
        """A turn may end, or take on more, since it is open.

        Raises:
            IllegalTransition: it is not.
        """
        last = self._turns.get(key)
        if last != -turn or turn <= 0:
            raise IllegalTransition(
                f"there is no open turn {turn} for {event} {_after(last)}; the event was refused",
                event=event,
            )

    def did_start(self, key: int, turn: int) -> None:
        """The start of a turn is in the log."""
        self._turns[key] = -turn

    def did_end(self, key: int, turn: int) -> None:
        """The end of a turn is in the log."""
        self._turns[key] = turn

    def check_call(self, key: int, call: str) -> None:
        """A call may be recorded.

        Raises:
            IllegalTransition: there is an open one with this id.
        """
        if call in self._calls.get(key, ()):
            raise IllegalTransition(
                f"call {call!r} is open already; the event was refused", event="tool/call"
            )

    def check_dispatch(self, key: int, call: str) -> None:
        """A call may be dispatched.

        Raises:
            IllegalTransition: it is not recorded, has a result, or was dispatched already.
        """
        state = self._calls.get(key, {}).get(call)
        if state is not _RECORDED:
            why = "is not recorded, or has a result" if state is None else "was dispatched already"
            raise IllegalTransition(
                f"call {call!r} {why}; the event was refused", event="tool/dispatch"
            )

    def check_result(self, key: int, call: str) -> None:
        """A call may get its result.

        Raises:
            IllegalTransition: it is not recorded, or has one.
        """
        if call not in self._calls.get(key, ()):
            raise IllegalTransition(
                f"call {call!r} is not recorded, or has a result; the event was refused",
                event="tool/result",
            )

    def did_call(self, key: int, call: str) -> None:
        """The intent of a call is in the log."""
        self._calls.setdefault(key, {})[call] = _RECORDED

    def did_dispatch(self, key: int, call: str) -> None:
        """The dispatch of a call is in the log."""
        self._calls[key][call] = _DISPATCHED

    def did_result(self, key: int, call: str) -> None:
        """The result of a call is in the log."""
        calls = self._calls[key]
        del calls[call]
        if not calls:
            del self._calls[key]

    def open_calls(self, key: int) -> list[tuple[str, bool]]:
        """The open calls of a session, in order, and whether each was dispatched."""
        return [*self._calls.get(key, {}).items()]

    def forget(self, key: int) -> None:
        """The agent has ended: drop what is known of its session."""
        self._turns.pop(key, None)
        if self._calls:
            self._calls.pop(key, None)

    def __len__(self) -> int:
        return len(self._turns.keys() | self._calls.keys())


def _after(last: int | None) -> str:
    if last is None:
        return "where none has begun"
    return f"while turn {-last} is open" if last < 0 else f"after turn {last} has ended"
