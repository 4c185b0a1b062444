"""Time against memory: what each budget costs, and the cheapest budget for a given slowdown."""

from bisect import bisect_left
from dataclasses import dataclass
from math import floor

import numpy as np

from membptt.checks import at_least, integer, one_of
from membptt.memory import Units
from membptt.schedules.schedule import state_sizes
from membptt.solver.strategies import ONE_LANE, check_full, find_strategy

MOST_POINTS = 400


@dataclass(frozen=True)
class TradeOff:
    """Forward steps against memory, for several strategies at equal memory.

    Attributes
    ----------
    steps : int
        T.
    unit : {"bytes", "units"}
        What memory is counted in.
    memory : ndarray of int64, shape [n]
        Budgets for all saved states, ascending, the last one full BPTT's.
    forward_steps : dict of str to ndarray of float64, shape [n]
        For each strategy; nan where it does not fit the budget.
    """

    steps: int
    unit: str
    memory: np.ndarray
    forward_steps: dict

    def time_factor(self, strategy, backward_ratio=2.0):
        """Return the time over full BPTT's, (C / T + r) / (1 + r), for each budget."""
        backward_ratio = at_least("backward_ratio", backward_ratio, 0)
        return (self.forward_steps[strategy] / self.steps + backward_ratio) / (1 + backward_ratio)


def trade_off(steps, cell=None, batch=1, alpha=1, strategies=None, points=MOST_POINTS):
    """Return the least forward steps for every budget, up to the one of full BPTT.

    Parameters
    ----------
    steps : int
        T.
    cell : optional
        Counts memory in bytes; without, it is in units of one hidden state.
    batch : int
        B, with a cell.
    alpha : int
        Internal over hidden state, without a cell.
    strategies : sequence of str, optional
        By default all but near-optimal, which is for lengths that optimal has no tables for.
    points : int
        Most budgets; where there are more, they are spaced geometrically.

    Returns
    -------
    TradeOff
        One solve per strategy gives all of its budgets.
    """
    steps = integer("steps", steps, minimum=1)
    points = integer("points", points, minimum=2)
    sizes, unit = state_sizes(cell, batch, alpha)
    check_full(steps, sizes)
    memory = _budgets(steps, sizes, points)
    names = strategies or [name for name in ONE_LANE if name != "near-optimal"]
    costs = {name: _costs(find_strategy(name), steps, memory, sizes) for name in names}
    return TradeOff(steps, unit, memory, costs)


def _budgets(steps, sizes, points):
    first, full = sizes.internal // sizes.unit, steps * sizes.internal // sizes.unit
    if full - first < points:
        counts = np.arange(first, full + 1)
    else:
        counts = np.unique(np.geomspace(first, full, points).round().astype(np.int64))
    return counts * sizes.unit


def _costs(strategy, steps, memory, sizes):
    costs = np.full(len(memory), np.nan)
    fits = memory >= strategy.least_budget(steps, sizes)
    if fits.any():
        units = [strategy.units(steps, int(budget), sizes) for budget in memory[fits]]
        costs[fits] = strategy.costs(steps, units, sizes)
    costs[memory >= steps * sizes.internal] = steps  # everything fits: no need to recompute
    return costs


def cheapest_budget(
    steps, max_slowdown, strategy="optimal", cell=None, batch=1, alpha=1, backward_ratio=2.0
):
    """Return the least budget whose time is at most `max_slowdown` times full BPTT's.

    Parameters
    ----------
    steps : int
        T.
    max_slowdown : float
        At least 1; 1.33 allows a third more time.
    strategy : str
        One of `membptt.solver.ONE_LANE`.
    cell, batch, alpha
        As in `trade_off`.
    backward_ratio : float
        r, the time of a step's backward over that of its forward.

    Returns
    -------
    int or membptt.Units
        What `membptt.schedule` takes as its `memory`: bytes with a cell.

    Examples
    --------
    >>> cheapest_budget(1000, 4 / 3, alpha=3)
    Units(count=77, alpha=3)
    """
    steps = integer("steps", steps, minimum=1)
    one_of("strategy", strategy, ONE_LANE)
    max_slowdown = at_least("max_slowdown", max_slowdown, 1)
    backward_ratio = at_least("backward_ratio", backward_ratio, 0)
    chosen = find_strategy(strategy)
    sizes, unit = state_sizes(cell, batch, alpha)
    check_full(steps, sizes)
    allowed = floor(steps * (max_slowdown + (max_slowdown - 1) * backward_ratio) + 1e-9)
    units = _least_units(chosen, steps, allowed, sizes)
    if units is None:
        if unit == "units":
            raise ValueError(
                f"max_slowdown is {max_slowdown}; strategy {chosen.name} is never that fast for "
                f"{steps} steps, give more or another strategy"
            )
        return steps * sizes.internal
    return Units(units, alpha) if unit == "units" else chosen.budget(units, sizes)


def _least_units(strategy, steps, allowed, sizes):
    """Return the fewest units that cost at most `allowed`; the cost falls as units grow."""
    low = strategy.least_units(steps, sizes)
    high = max(low, strategy.units(steps, steps * sizes.internal, sizes))
    candidates = range(low, high + 1)
    if strategy.name in ("msm", "optimal"):  # one solve for all of them
        costs = strategy.costs(steps, candidates, sizes)
        return next((m for m, cost in zip(candidates, costs, strict=True) if cost <= allowed), None)
    position = bisect_left(candidates, -allowed, key=lambda m: -strategy.cost(steps, m, sizes))
    return candidates[position] if position < len(candidates) else None
