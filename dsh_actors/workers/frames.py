"""The protocol between the supervisor and a worker: one table.

A frame is a list whose first item is its type. Agents are named by their generation (``key``),
which is never used again, so that a late frame cannot touch a successor. Bodies are encoded
values, which only the agents at the ends decode. Each direction is in order; a worker's reader
acts on CANCEL at once.
"""

from __future__ import annotations

from typing import Final

# Supervisor to worker.
START: Final = 1  # key, id, behaviour, args body | nil, reports turn starts, life | nil, [limits]
DELIVER: Final = 2  # key, message id, kind, body, chain
CANCEL: Final = 3  # [key, ...], cause, keep inbox
RELEASE: Final = 4  # key
REPLY: Final = 5  # request, ok, value
PING: Final = 6  # number
SETTINGS: Final = 7  # max turns, slots | nil, whether there is a store, limits; the first frame
TURN_GRANTED: Final = 8  # key, granted: the answer to TURN_WANTED
OVERDRAWN: Final = 9  # key, turn: cancel this turn, with the cause budget

# Worker to supervisor.
READY: Final = 20  # -
STARTED: Final = 21  # key, has hooks, resumable, takes notices, interrupted policy | nil
START_FAILED: Final = 22  # key, type name, message, traceback text
TURN_STARTED: Final = 23  # key, turn, [message id, ...]
TURN_ENDED: Final = 24  # key, turn, reason, cause | nil, error | nil, [id, ...], [body, ...]
TURNS_DONE: Final = 31  # key, last turn, [id, ...], [body, ...]: completed, one message each
DISCARDED: Final = 25  # key, cause, [message id, ...]
RELEASED: Final = 26  # key, what went wrong | nil
SCOPED: Final = 32  # key: its release is to be waited for
PROGRESS: Final = 27  # key, done, total, note
REMEMBER: Final = 28  # key, type, body
REQUEST: Final = 29  # request, key, epoch, turn, operation, ...
PONG: Final = 30  # number
TURN_WANTED: Final = 40  # key: of an agent whose turns are counted
SPENT: Final = 41  # key, turn, tokens, cost
TURN_STEERED: Final = 42  # key, turn, [message id, ...]: what it has taken on since its start
CALL_ENDED: Final = 43  # key, call, encoded outcome
NOTICE: Final = 44  # key, encoded notice, for an agent of this worker
SHELL_ENDED: Final = 45  # pid, ended, signal: a command that had to be ended

# Operations of a REQUEST, with what follows. All but SEND_* are answered by a REPLY.
# A policy, a budget and what to do with interrupted messages follow the chain if there are any.
RUN: Final = 1  # behaviour, id | nil, isolation | nil, restart, args body | nil, body, chain
SPAWN: Final = 2  # the same; the reply is [id, key, session]
CHILD: Final = 3  # id; the reply is [id, key, session]
SEND: Final = 4  # target id, target key, kind, body; the reply is the message id
ASK: Final = 5  # target id, target key, kind, body, chain; the reply is the encoded answer
CANCEL_AGENT: Final = 6  # target id, target key, tree, keep inbox
STATUS: Final = 7  # target id, target key; the reply is the status
WHEN_IDLE: Final = 8  # target id, target key
LEFT: Final = 20  # -; the reply is what the asking agent may still use
CHECKPOINT: Final = 21  # -; replied to once all that came before is durable
CALL: Final = 22  # call, encoded intent; replied to once that is durable
