"""Lower bounds for chains of any length, and near-optimal splits with a certificate.

The tables of `optimal` grow with the square of the length. Their convex conjugates do not: with
A*(s, m) = max over t >= 1 of s t - A(t, m), and B* alike, a minimum becomes a maximum and a
minimum over splits becomes a sum, for functions of any shape, so that the recurrence turns into ::

    A*(s, m) = max( A*(s - 1, m) + B*(s, m)
                    s - 1 + A0(s - 1, m) + A0(s, m - b) )
    B*(s, m) = max( B*(s - 1, m) + B*(s, m - a)
                    s - 1 + B0(s - 1, m) + A0(s, m - a - b)
                    s - 1 + A0(s, m - b) )

where A0 = max(0, A*) lets t = 0 in, and A* = B* = s - 1 for s <= 1. A slope s is the cost of one
more step, about ten even for a million steps, so the whole table is small. Back again,

    A(t, m) >= max over s of s t - A*(s, m),

the largest convex function below A(., m) if all slopes are tried; here they are multiples of 1/16.
Everything is whole numbers, times 16. The bound is proven; how far a schedule is above it, is its
gap.
"""

from functools import lru_cache

import numpy as np

from membptt.solver import _solver

PER_UNIT = 16  # slopes are multiples of 1/16
NEVER = -(2**58)  # conjugate of a function that is infinite everywhere
EXACT = 2000  # steps up to which nodes are split by the exact tables
GRID = 33  # splits looked at in each round


class Conjugates:
    """A* and B* for slopes up to where a chain of `steps` steps has its own.

    Parameters
    ----------
    steps, units, a, b : int
        As in `membptt.solver.recurrences.optimal`; a < b <= units.

    Attributes
    ----------
    slopes : ndarray of int64, shape [n]
        PER_UNIT s, ascending.
    free, held : ndarray of int64, shape [n, units + 1]
        PER_UNIT A*(s, m) and PER_UNIT B*(s, m).
    """

    def __init__(self, steps, units, a, b):
        self.a, self.b = a, b
        fractions = np.arange(PER_UNIT)[:, None]
        first = np.where(np.arange(units + 1) >= b, fractions - PER_UNIT, NEVER)
        slopes, free, held = [fractions[:, 0]], [first], [first.copy()]
        best = NEVER
        while True:
            slope = slopes[-1] + PER_UNIT
            A, B = self._next(slope - PER_UNIT, free[-1], held[-1], units)
            slopes.append(slope)
            free.append(A)
            held.append(B)
            bound = int((slope * steps - A[:, units]).max())
            if bound < best:
                break
            best = bound
        self.slopes = np.concatenate(slopes)
        self.free, self.held = np.concatenate(free), np.concatenate(held)

    def _next(self, less, A_before, B_before, units):
        """Return A* and B* one unit of slope further; `less` is s - 1."""
        a, b = self.a, self.b
        A, B = np.full_like(A_before, NEVER), np.full_like(B_before, NEVER)
        for m in range(b, units + 1):
            whole = less + np.maximum(A[:, m - b], 0)
            held = np.maximum(whole, B_before[:, m] + B[:, m - a])
            if m >= a + b:
                both = less + np.maximum(B_before[:, m], 0) + np.maximum(A[:, m - a - b], 0)
                held = np.maximum(held, both)
            B[:, m] = held
            A[:, m] = np.maximum(A_before[:, m] + held, whole + np.maximum(A_before[:, m], 0))
        return A, B

    def below(self, held, m, t):
        """Return the bound for an array of lengths `t`, times PER_UNIT; 0 for no steps."""
        if m < self.b:
            return np.where(t > 0, -NEVER, 0)
        table = (self.held if held else self.free)[:, m]
        bound = (np.multiply.outer(t, self.slopes) - table).max(axis=-1)
        return np.where(t > 0, bound, 0)

    def split(self, t, free, held):
        """Return the split whose bound is least; where several are, one in the middle."""
        a, b = self.a, self.b
        m, below = free + (a if held else 0), self.below

        def hidden(y):
            return y * PER_UNIT + below(True, free, t - y) + below(held, m, y)

        def internal(y):
            return y * PER_UNIT + below(False, free - b, t - y) + below(held, m, y - 1)

        best, y = _least(hidden, 1, t - 1)
        choice = y
        if free >= b:
            other, y = _least(internal, 1, t)
            if other < best:
                best, choice = other, -y
        if held and m >= b:
            convert = PER_UNIT + int(below(False, m - b, np.array([t - 1]))[0])
            if convert < best:
                choice = 0
        return choice


class NearOptimalRule(_solver.LongRule):
    """Splits chains of more than `EXACT` steps by the bounds, and by the exact tables below that.

    Attributes
    ----------
    lower : int
        No schedule within the budget runs fewer forward steps.
    """

    def __init__(self, steps, units, a, b):
        super().__init__(EXACT, units, a, b)
        conjugates = Conjugates(steps, units, a, b)
        bound = int(conjugates.below(False, units, np.array([steps]))[0])
        self.lower = max(steps, -(-bound // PER_UNIT))
        # What is cached is not this rule's own: its tables would wait for the collector.
        self.split_long = lru_cache(maxsize=None)(conjugates.split)

    def cost(self, steps):
        """Return the forward steps that the whole chain takes with these splits."""
        total, waiting = 0, [(steps, self.free, False)]
        while waiting:
            t, free, held = waiting.pop()
            if t <= EXACT:
                total += self.exact_cost(t, free, held)
                continue
            y = self.split(t, free, held)
            if y > 0:
                waiting += [(t - y, free - self.hidden, True), (y, free, held)]
            elif y < 0:
                waiting += [(t + y, free - self.internal, False), (-y - 1, free, held)]
            else:
                waiting.append((t - 1, free + self.hidden - self.internal, False))
            total += abs(y) or 1
        return total


def _least(function, first, last):
    """Return the least value of a convex function of whole numbers, and a place in the middle."""
    while True:
        y = np.unique(np.linspace(first, last, GRID).astype(np.int64))
        values = function(y)
        places = np.flatnonzero(values == values.min())
        if last - first < GRID or len(places) > 2:
            middle = places[len(places) // 2]
            return int(values[middle]), int(y[middle])
        first, last = int(y[max(places[0] - 1, 0)]), int(y[min(places[-1] + 1, len(y) - 1)])
