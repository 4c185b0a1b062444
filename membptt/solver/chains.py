"""Chains whose steps differ: costs per step, sizes per step, and what saving and restoring cost.

Packed batches shrink as their sequences end, and a user's own chain may be uneven from the start.
The recurrences are those of `membptt.solver.recurrences.optimal` with a place in the chain added:
a node is the steps i + 1...j, and the units left for it do not count its start.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import gcd, inf

import numpy as np

from membptt.checks import integer
from membptt.memory import format_bytes
from membptt.solver import _chains  # type: ignore[attr-defined]
from membptt.solver.strategies import TABLE_LIMIT

MOST_UNITS = 256  # a finer grid costs more time than it saves forward steps


@dataclass(frozen=True)
class Chain:
    """What each step of a chain costs, and what its states take.

    Attributes
    ----------
    forward : tuple of float, length T
        Cost of running step t = 1...T, as ``forward[t - 1]``: 1 to count steps, or seconds.
    hidden, internal : tuple of int, length T
        Sizes of h_t and of the internal state of step t. h_0 is the caller's and takes nothing.
    backward : tuple of float, length T
        Cost of the backward of each step; it is paid once whatever the schedule.
    save_hidden, save_internal, restore : float
        Cost of each such action.

    Notes
    -----
    An internal state holds the hidden state that entered the step, and gives the one that left it.
    """

    forward: tuple
    hidden: tuple
    internal: tuple
    backward: tuple = field(default=())
    save_hidden: float = 0
    save_internal: float = 0
    restore: float = 0

    def __post_init__(self):
        steps = len(self.forward)
        if steps == 0:
            raise ValueError("forward is empty; give a cost for each step")
        if not self.backward:
            object.__setattr__(self, "backward", (0.0,) * steps)
        for name in ("hidden", "internal", "backward"):
            if len(getattr(self, name)) != steps:
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} entries and forward has {steps}; "
                    "give one for each step"
                )
        for name in ("forward", "backward"):
            if not all(0 <= cost < float("inf") for cost in getattr(self, name)):
                raise ValueError(f"{name} holds a negative or infinite cost; give finite ones")
        for name in ("save_hidden", "save_internal", "restore"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; give a finite cost >= 0")
        for name in ("hidden", "internal"):
            sizes = tuple(integer(name, size, minimum=1) for size in getattr(self, name))
            object.__setattr__(self, name, sizes)

    @classmethod
    def even(cls, steps, hidden=1, internal=1, forward=1, backward=0.0, **costs):
        """Return a chain of equal steps; with measured seconds for costs it is planned in time."""
        return cls(
            (forward,) * steps, (hidden,) * steps, (internal,) * steps, (backward,) * steps, **costs
        )

    @property
    def steps(self):
        """T, the number of steps."""
        return len(self.forward)

    @property
    def is_proven(self):
        """Whether the recurrence is proven to be optimal among all schedules for this chain.

        So it is where sizes do not grow along the chain, an internal state takes at least what the
        hidden states on both of its sides take together, a restore costs no more than any step, and
        saving an internal state costs at least what saving two hidden ones does; see
        ``docs/optimality.md``. Otherwise it is the best among the schedules that keep an internal
        state until its step is back-propagated, and a hidden state until it has served.
        """
        before = (0, *self.hidden)
        falling = all(
            later <= earlier
            for sizes in (self.hidden, self.internal)
            for earlier, later in pairwise(sizes)
        )
        room = all(self.internal[t] >= self.hidden[t] + before[t] for t in range(self.steps))
        cheap = self.restore <= min(self.forward) and 2 * self.save_hidden <= self.save_internal
        return falling and room and cheap


def readable(chain, budget):
    """Return the recurrence of a chain as two functions A(i, j, f) and B(i, j, f).

    With w(i, p) the cost of running the steps i + 1...p, and f units beside the start::

        A(i, i, f) = B(i, i, f) = 0
        A(i, j, f) = min over p of
            w(i, p) + save_hidden   + B(p, j, f - hidden(p))   + restore + A(i, p, f)
            w(i, p) + save_internal + A(p, j, f - internal(p)) + restore + A(i, p - 1, f)
        B(i, j, f): the same with B on the left, or
            w(i, i + 1) + save_internal + A(i + 1, j, f + hidden(i) - internal(i + 1))

    with i < p < j for the hidden state and i < p <= j for the internal one; a restore for no steps
    is not made. The answer is A(0, T, budget).
    """

    @cache
    def node(i, j, f, held):
        if i == j:
            return 0
        best = inf
        for p in range(i + 1, j + 1):
            run = sum(chain.forward[i:p])
            left = f - chain.hidden[p - 1]
            if p < j and left >= 0:
                right = node(p, j, left, True)
                cost = run + chain.save_hidden + right + chain.restore + node(i, p, f, held)
                best = min(best, cost)
            left = f - chain.internal[p - 1]
            if left >= 0:
                cost = run + chain.save_internal + node(p, j, left, False)
                if p - 1 > i:
                    cost += chain.restore + node(i, p - 1, f, held)
                best = min(best, cost)
        if held:
            left = f + chain.hidden[i - 1] - chain.internal[i]
            if left >= 0:
                cost = chain.forward[i] + chain.save_internal + node(i + 1, j, left, False)
                best = min(best, cost)
        return best

    return (lambda i, j, f: node(i, j, f, False)), (lambda i, j, f: node(i, j, f, True))


class ChainRule:
    """The tables of a chain, and where they split.

    Parameters
    ----------
    chain : Chain
        Costs and sizes.
    budget : int
        Most that all saved states may take.

    Attributes
    ----------
    unit : int
        What sizes are counted in: their greatest common divisor, or more where that would be too
        fine for the budget; sizes are then rounded up, so that the budget holds all the same.
    exact : bool
        Whether no size was rounded.
    cost : float
        Of forward runs, saves and restores.
    """

    def __init__(self, chain, budget):
        sizes = chain.hidden + chain.internal
        if budget < max(chain.internal):  # with it alone, every step can be run again
            raise ValueError(
                f"budget is {budget}; the chain needs at least its largest internal state, "
                f"{max(chain.internal)}"
            )
        budget = min(budget, sum(chain.internal))
        self.chain = chain
        self.unit = self._unit(max(gcd(*sizes), -(-budget // MOST_UNITS)), budget)
        self.exact = all(size % self.unit == 0 for size in sizes)
        self.units = budget // self.unit
        self.hidden = self._counts(chain.hidden)
        self.internal = self._counts(chain.internal)
        self.sums = np.concatenate([[0.0], np.cumsum(chain.forward)])
        need = 2 * 8 * (chain.steps + 1) * (chain.steps + 2) // 2 * (self.units + 1)
        if need > TABLE_LIMIT:
            raise ValueError(
                f"a chain of {chain.steps} uneven steps needs tables of {format_bytes(need)}, "
                f"above the limit of {format_bytes(TABLE_LIMIT)}; plan even steps, or fewer"
            )
        self.free, self.held = _chains.tables(
            self.sums,
            self.hidden,
            self.internal,
            chain.save_hidden,
            chain.save_internal,
            chain.restore,
            self.units,
        )
        self.cost = float(self.free[self._row(0, chain.steps), self.units])

    def _unit(self, least, budget):
        """Return the smallest unit from `least` on in which the largest state still fits.

        Rounded up to a whole number of some units it would not, though it does: where the budget
        is hardly more. In a unit of its own size it always does.
        """
        largest = max(self.chain.internal)
        for count in range(-(-largest // least), 0, -1):  # of units, in that state
            unit = max(least, -(-largest // count))
            if -(-largest // unit) <= budget // unit:
                return unit
        raise ArithmeticError(f"{largest} does not fit into {budget}")

    def _counts(self, sizes):
        return np.array([0, *(-(-size // self.unit) for size in sizes)], np.int64)

    @staticmethod
    def _row(i, j):
        return j * (j + 1) // 2 + i

    def split(self, i, j, f, held):
        """Return p > 0: save h_p; -p: save the internal state of step p; 0: convert the start."""
        chain, table = self.chain, self.held if held else self.free
        cost = table[self._row(i, j), f]
        slack = 1e-9 * cost  # sums of the same numbers in another order; none is negative
        if held and i > 0:
            left = f + self.hidden[i] - self.internal[i + 1]
            price = self.sums[i + 1] - self.sums[i] + chain.save_internal
            if left >= 0 and price + self.free[self._row(i + 1, j), left] <= cost + slack:
                return 0
        for p in range(i + 1, j + 1):
            price = self.sums[p] - self.sums[i]
            if f >= self.internal[p]:
                right = self.free[self._row(p, j), f - self.internal[p]]
                again = chain.restore if p - 1 > i else 0.0
                total = price + chain.save_internal + right + again
                if total + table[self._row(i, p - 1), f] <= cost + slack:
                    return -p
            if p < j and f >= self.hidden[p]:
                right = self.held[self._row(p, j), f - self.hidden[p]]
                total = price + chain.save_hidden + right + chain.restore
                if total + table[self._row(i, p), f] <= cost + slack:
                    return p
        raise ArithmeticError(f"no split of steps {i + 1}...{j} attains its cost of {cost}")
