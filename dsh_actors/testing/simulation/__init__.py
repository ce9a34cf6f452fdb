"""A simulated system: the real supervisor, agents, worker hosts and frames on one thread.

A seeded scheduler chooses what happens next, and a virtual clock moves only when nothing else
can happen, so that a seed is one interleaving and reproduces exactly.

    scheduler.py   the choices, the clock, the trace
    runtime.py     threads, timers, event loop and workers in terms of the scheduler
    wire.py        links and worker processes that can be late, or die
    store.py       a session store whose commits are late, or fail
    invariants.py  what must hold after every step, and at the end
    run.py         simulate(scenario, seed): one run
"""

from dsh_actors.testing.simulation.run import Failure, Simulation, simulate

__all__ = ["Failure", "Simulation", "simulate"]
