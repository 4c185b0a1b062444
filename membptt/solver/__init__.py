"""How many forward steps a strategy needs in a given memory, and where it splits."""

from membptt.solver.strategies import ONE_LANE, STRATEGIES, forward_steps

__all__ = ["ONE_LANE", "STRATEGIES", "forward_steps"]
