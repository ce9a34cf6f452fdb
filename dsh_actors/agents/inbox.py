"""The inbox of one agent: queued prompts and steering input.

Guarded by the lock of the host, together with the claim, so that a message is claimed or
discarded, never both. The lists are made when they are first needed and dropped when they are
empty: an idle agent costs nothing for them.
"""

from __future__ import annotations

from collections import deque

from dsh_actors.agents.message import FOLLOW_UP, INJECT, NOTICE, Message


class Inbox:
    """Two ordered lists. Its size is bounded by whoever accepts (:attr:`count`)."""

    __slots__ = ("count", "held", "queued", "steering", "waking")

    def __init__(self) -> None:
        self.queued: deque[Message] | None = None
        self.steering: deque[Message] | None = None
        self.count = 0  # of the messages in both
        # How many of them start a turn on an idle agent.
        self.waking = 0
        self.held = 0  # of those that would, but wait for a later one to do so

    def put(self, message: Message) -> None:
        """Add a message at the end of its list."""
        self.count += 1
        kind = message.kind & ~NOTICE
        if kind == FOLLOW_UP:
            if self.queued is None:
                self.queued = deque()
            self.queued.append(message)
            self.waking += 1 + self.held
            self.held = 0
            return
        if self.steering is None:
            self.steering = deque()
        self.steering.append(message)
        if kind != INJECT:
            self.waking += 1 + self.held
            self.held = 0

    def hold(self) -> None:
        """Keep what is in it until the next waking message: a cancel drops the pending wake."""
        self.held += self.waking
        self.waking = 0

    def claim(self) -> list[Message]:
        """Take what a new turn works on: all steering input and one queued prompt."""
        batch = self.claim_steering() if self.steering else []
        queued = self.queued
        if queued:
            batch.append(queued.popleft())
            self.waking -= 1
            self.count -= 1
            if not queued:
                self.queued = None
        return batch

    def claim_steering(self) -> list[Message]:
        """Take all steering input, for the next step of a running turn."""
        steering = self.steering
        if not steering:
            return []
        self.steering = None
        batch = list(steering)
        self.count -= len(batch)
        self.waking -= sum(message.kind != INJECT for message in batch)
        return batch

    def clear(self) -> list[Message]:
        """Empty both lists and return what was in them, steering input first."""
        dropped = [*(self.steering or ()), *(self.queued or ())]
        self.queued = self.steering = None
        self.waking = self.held = self.count = 0
        return dropped
