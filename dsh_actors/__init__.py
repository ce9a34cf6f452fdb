"""dsh-actors: supervised trees of agents as actors in worker processes."""
