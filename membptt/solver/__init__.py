"""How many forward steps a strategy needs in a given memory, and where it splits."""

from membptt.solver.strategies import STRATEGIES, forward_steps

__all__ = ["STRATEGIES", "forward_steps"]
