"""The pure core: who may live, who must stop, in which order, and who is told.

State machines without threads, clocks, sockets or files. The shells around them (supervisor,
agents, workers) bring the lock, the time and the effects. Nothing here may import those.

    causes.py       why work is cancelled, how an agent can end
    node.py         one agent as the tree sees it
    tree.py         admission, identity, ownership, top-down marking
    disposal.py     the fourteen ordered steps, child-first, memoised
    supervision.py  restart types, intensity and period
    policy.py       what an agent and those below it may do: the meet on the way down
    budget.py       how much they may use: carved before the work, rolled up once
"""
