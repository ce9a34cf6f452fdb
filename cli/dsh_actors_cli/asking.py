"""What the roots of a run have been asked, and what they owe from an earlier run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors.errors import AgentFailed, AgentLost, StoreError
from dsh_actors_cli import output
from dsh_actors_cli.outcome import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dsh_actors.actors.future import Future
    from dsh_actors.sessions import Event, SessionStore
    from dsh_actors_cli.binding import Binding

__all__ = ["Asked", "last_answer", "look_back", "owed"]


# What is waited for the disk, in seconds.
_PATIENCE = 5.0


class Asked:
    """The answers that a run waits for.

    Parameters:
        wake: called from any thread whenever one of them is there.
    """

    def __init__(self, wake: Callable[..., None]) -> None:
        self._wake = wake
        self._owed: dict[str, list[Future[Any]]] = {}
        self._asked: dict[str, Future[Any]] = {}

    def ask(self, agent: str, future: Future[Any]) -> None:
        """Wait for the answer to a new prompt; it is the one that counts for this agent."""
        self._asked[agent] = future
        future.add_done_callback(self._wake)

    def owe(self, agent: str, futures: Iterable[Future[Any]]) -> None:
        """Wait for the answers to prompts that an earlier run has accepted, in order."""
        for future in futures:
            self._owed.setdefault(agent, []).append(future)
            future.add_done_callback(self._wake)

    def has(self, agent: str) -> bool:
        """Return whether an agent has anything to answer."""
        return agent in self._asked or agent in self._owed

    @property
    def done(self) -> bool:
        """Whether all the answers are there."""
        return all(future.done() for _, future in self._all())

    @property
    def agents(self) -> Iterable[str]:
        """Those that have something to answer."""
        return {*self._owed, *self._asked}

    def answers(self) -> dict[str, Answer]:
        """Return one answer for each agent, by its id.

        Without a new prompt it is that to the last of the earlier ones, or the error of the first
        that failed.
        """
        return {agent: self._answer(agent) for agent in (*self._owed, *self._asked)}

    def _answer(self, agent: str) -> Answer:
        if agent in self._asked:
            return _answer(agent, self._asked[agent])
        answers = [_answer(agent, future) for future in self._owed[agent]]
        return next((one for one in answers if one.error or not one.done), answers[-1])

    def _all(self) -> Iterator[tuple[str, Future[Any]]]:
        for agent, futures in self._owed.items():
            for future in futures:
                yield agent, future
        yield from self._asked.items()


def owed(events: Sequence[Event], restored: Mapping[int, Future[Any]]) -> list[Future[Any]]:
    """Return the answers that the agent of one session owes, in the order of their prompts.

    Parameters:
        events: the session as it was before the resume.
        restored: the prompts that the resume has brought back, of all its agents.
    """
    from dsh_actors.sessions.recovery import recover

    return [
        restored[one.id]
        for one in recover(events).inbox
        if one.id in restored and one.kind != "inject"  # that starts no turn of its own
    ]


def look_back(binding: Binding, asked: Asked, store: SessionStore) -> dict[str, Answer]:
    """Return what those roots last came to that go on with a session and had nothing to do.

    Parameters:
        binding: of the run.
        asked: what the others answer.
        store: where the sessions are.
    """
    told = {}
    for agent, log in binding.logs.items():
        if asked.has(agent):
            continue
        try:
            store.flush(_PATIENCE)
            log = store.load(binding.slots.identities[agent].id).events
        except StoreError as error:
            output.print_warning(f"the newest of agent {agent} cannot be read: {error}")
        told[agent] = last_answer(agent, log)
    if binding.agent_id in told:
        output.print_notice("nothing was waiting; this is what the session last came to")
    return told


def last_answer(agent: str, events: Sequence[Event]) -> Answer:
    """Return what a session's last turn came to, as the log tells it.

    Parameters:
        agent: whose session it is.
        events: all of it.
    """
    from dsh_actors.codec import decode
    from dsh_actors.errors import MessageError

    for event in reversed(events):
        if event.type == "turn/start":
            break
        if event.type == "turn/end" and event.data["reason"] == "interrupted":
            break
        if event.type == "turn/end":
            error = event.data.get("error")
            if error is not None:
                failed = AgentFailed(error["type"], error["message"], error.get("traceback", ""))
                return Answer(agent, error=failed)
            results = event.data["results"]
            if not results:
                break
            try:
                return Answer(agent, decode(results[-1]["result"]))
            except MessageError as error:
                return Answer(agent, error=error)
    else:
        return Answer(agent)
    what = "its last turn was cut off, and is not tried again; give a new prompt"
    return Answer(agent, error=AgentLost(what))


def _answer(agent: str, future: Future[Any]) -> Answer:
    if not future.done():
        return Answer(agent, done=False)
    error = future.exception(timeout=0)
    if error is not None:
        return Answer(agent, error=error)
    return Answer(agent, future.result(0))
