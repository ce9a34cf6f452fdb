"""A tree that takes longer to release than its grace period has no survivors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh
from dsh_actors.sessions import MemoryStore
from dsh_actors.supervisor import stops
from tests.watching import PATIENCE

if TYPE_CHECKING:
    import pytest


class SlowStore(MemoryStore):
    """A store that commits nothing more until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.reached = threading.Event(), threading.Event()
        self.held.set()

    def append(self, session_id: str, type: str, data: bytes, **options: Any) -> int:
        if type == "agent/ended":
            self.reached.set()
            options["on_commit"] = self._late(options["on_commit"])
        return super().append(session_id, type, data, **options)

    def _late(self, on_commit: Any) -> Any:
        def committed(error: BaseException | None) -> None:
            self.held.wait(PATIENCE)
            on_commit(error)

        return committed


def test_quiet_agents_whose_flush_takes_longer_than_the_grace_are_no_survivors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stops, "KILL_MARGIN", 0.001)
    looked = threading.Semaphore(0)
    give_up = stops.Stops._give_up

    def counted(self: stops.Stops, stop: stops.Stop) -> None:
        give_up(self, stop)
        looked.release()

    monkeypatch.setattr(stops.Stops, "_give_up", counted)
    store = SlowStore()
    with dsh.ActorSystem(store=store, stop_grace=0.001) as system:
        handle = system.create(lambda turn, message: message, id="quiet")
        handle.agent.ask(1).result(PATIENCE)
        store.held.clear()
        stop = handle.dispose()
        assert store.reached.wait(PATIENCE)
        for _ in range(3):  # it looks again and again, and finds nobody who is stuck
            assert looked.acquire(timeout=PATIENCE)
        assert not stop.done()
        store.held.set()
        receipt = stop.result(PATIENCE)
        assert receipt.survivors == ()
        assert [end.id for end in receipt.agents] == ["quiet"]
    store.close()
