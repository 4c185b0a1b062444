"""What it costs to compute the internal states of a block of steps at once.

Going from step to step, every product of a hidden state with the weights waits for the one before.
Where the hidden states of a run are saved, none waits: the products of q steps are one product with
q times the rows, which costs less than q products. How much less depends on the machine: where a
product of few rows is bound by reading the weights, or a step by launching kernels, the most.
"""

from dataclasses import dataclass

from membptt.checks import at_least
from membptt.solver._expand import TICKS

MOST_STEPS = 64  # of a block: from there on more rows make a product no faster


@dataclass(frozen=True)
class ExpandCost:
    """The price of expanding q steps at once, in forward steps: min(q, fixed + per_step q).

    Attributes
    ----------
    fixed : float
        What every expansion costs, whatever its length.
    per_step : float
        What each of its steps adds (ε). Both are rounded to hundredths of a forward step.

    Raises
    ------
    ValueError
        If a number is negative or not finite.

    Examples
    --------
    >>> ExpandCost(0.5, 0.25).of(4)
    1.5
    """

    fixed: float = 0.0
    per_step: float = 0.5

    def __post_init__(self):
        for name in ("fixed", "per_step"):
            value = at_least(name, getattr(self, name), 0)
            # Planned with whole hundredths: what a plan is said to cost is what was compared.
            object.__setattr__(self, name, round(value * TICKS) / TICKS)

    def of(self, steps: int) -> float:
        """Return the price of one expansion of `steps` steps."""
        return self.prices(steps)[-1] / TICKS

    def total(self, expansions, expanded_steps):
        """Return the price of that many expansions, together of so many steps."""
        return self.fixed * expansions + self.per_step * expanded_steps

    def prices(self, longest=MOST_STEPS):
        """Return the prices of 0 ... `longest` steps in hundredths of a forward step."""
        return [
            min(TICKS * q, round(TICKS * self.fixed) + round(TICKS * self.per_step) * q)
            for q in range(longest + 1)
        ]
