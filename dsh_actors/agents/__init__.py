"""Agents: what runs users' code, the same in the supervisor's process and in a worker.

message.py    what travels to an inbox
inbox.py      the two lists: queued prompts and steering input
signal.py     the cancel signal of one turn
behaviour.py  how users' code is found, named and called
turn.py       what a turn may do
job.py        a child's work as a future, and its outcome as a value
scope.py      what is registered for one agent, and taken back when it ends
registration.py  one registration, and how it is taken back
initiator.py  on whose behalf code runs, and to whom belongs what it creates
errand.py     something that a dispatcher runs once, beside its actors
permits.py    how many plain turns run at once
loop.py       the event loop for async turns
actor.py      the Pykka actor of one agent
host.py       all agents of one process
handle.py     what callers hold: the agent to share, the handle that can dispose
"""
