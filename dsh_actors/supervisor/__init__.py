"""The supervisor: performs what the pure core decides.

core.py        the shared state: the tree behind its one lock, settings, observers
runtime.py     where threads, processes and clocks come from
factory.py     how an agent is made, and made again
preparation.py a creation that is not visible yet: prepare, enter, announce
ownership.py   owners and factories: who owns agents beside their parent
listeners.py   who is told of an agent's life; notifier.py calls those that nobody waits for
delivery.py    how a message becomes accepted work
turns.py       what agents in this process tell and ask
links.py       what workers tell and ask
bounds.py      policies, budgets and depth of live agents
marking.py     the mark phase of cancels and stops, and the notify phase
stops.py       stops: from the mark to the receipt, with escalation by deadline
losses.py      the death of a worker
teardown.py    the effects of a disposal, and natural ends
lives.py       what outlives one activation of an agent
plans.py       what the logs of a tree say is to become of its agents
resume.py      brings them back; sleepers.py keeps those that go on only when they are asked
opening.py     trees from files and from logs, as the system offers them; closing.py its end
settlement.py  continuable children: settle, notice, next life
drain.py       drains, of everything or of what is below some agents
journal.py     what goes into the session store
receipt.py     what a stop returns
forks.py       what a forked child may not do
supervisor.py  the Pykka actor that does all of this in order
"""
