"""The supervisor: performs what the pure core decides.

core.py       the shared state: the tree behind its one lock, settings, observers
receipt.py    what a stop returns
factory.py    creation and restart: FactoryOwnership of every agent
delivery.py   how a message becomes accepted work
turns.py      what agents in this process tell and ask
teardown.py   marking, the effects of a disposal, escalation by deadline
links.py      what workers tell and ask
journal.py    what goes into the session store
supervisor.py the Pykka actor that does all of this in order
"""
