"""Long chains whose states shrink: even plans, patched together where that is cheaper.

The recurrence of `membptt.solver.chains` sees every step and takes the cube of their number. Here
the chain is cut into some patches. A node is a run of patches, i ... j, and there are two things
to do with it:

    patch    plan its t steps by `membptt.solver.recurrences.optimal`, as if all states were as
             large as its first ones: A(t, m) or, from a saved start, B(t, m) forward steps
    split    save the hidden state where a patch p begins, do p ... j, and i ... p after it

so that the long-range structure follows the shrinking states, and the short-range one is optimal.
"""

import numpy as np

from membptt.solver import _chains  # type: ignore[attr-defined]
from membptt.solver._solver import OptimalRule

PATCHES = 64
LEVELS = 256  # of the budget
LONGEST = 2000  # steps of a node that is planned as one patch; longer ones are always split
PATCHED_STEPS = PATCHES * LONGEST  # with more, no patch could be planned
STATE_UNITS = 16  # at most, of an internal state in the tables of even plans
TABLE_UNITS = 2**13  # of these tables; what is free beyond them is left unused


class PatchRule:
    """The tables of a chain whose states have fewer and fewer rows, and where they split.

    Parameters
    ----------
    rows : sequence of int
        Rows of the steps t = 1 ... T, none fewer than those after it, T at most `PATCHED_STEPS`.
        h_t has those of step t + 1.
    hidden, internal : int
        What one row of a hidden and of an internal state takes, in a common unit.
    budget : int
        Most that all saved states may take, in that unit.

    Attributes
    ----------
    begins : list of int
        The step before each patch, and T.
    even : membptt.solver._solver.OptimalRule
        Plans a patch, in units of `unit` of the common ones; states are rounded up to whole ones.
    unit : int
    cost : float
        About how many rows run forward: those of a patched node are taken for equally many.
    """

    def __init__(self, rows, hidden, internal, budget):
        steps = len(rows)
        count = min(PATCHES, steps)
        self.begins = [steps * k // count for k in range(count + 1)]
        self.rows = [rows[begin] for begin in self.begins[:-1]]
        self.sums = np.concatenate(([0.0], np.cumsum(rows)))
        self.hidden = hidden
        self.level = max(1, -(-budget // LEVELS))
        self.levels = budget // self.level
        self.saved = np.array([0, *(-(-hidden * each // self.level) for each in self.rows[1:]), 0])
        self.longest = min(steps, LONGEST)
        self.unit = coarse_unit(hidden, internal)
        hidden, internal = -(-hidden // self.unit), -(-internal // self.unit)
        most = budget // (min(self.rows) * self.unit)
        units = min(most, self.longest * internal, TABLE_UNITS)
        self.even = OptimalRule(self.longest, units, hidden, internal)
        shape = (count + 1) * (count + 2) // 2, self.levels + 1
        whole = np.full(shape, np.inf), np.full(shape, np.inf)
        for j in range(1, count + 1):
            for i in range(j):
                for table, held in zip(whole, (False, True), strict=True):
                    table[self.row(i, j)] = self.patched(i, j, held)
        never = np.full(count + 1, self.levels + 1)
        sums = self.sums[self.begins]
        self.tables = _chains.tables(sums, self.saved, never, 0.0, 0.0, 0.0, self.levels, whole)
        self.cost = float(self.tables[0][self.row(0, count), self.levels])

    @staticmethod
    def row(i, j):
        """Return where the node i ... j stands in a table."""
        return j * (j + 1) // 2 + i

    def units(self, i, levels, held):
        """Return how many units an even plan from patch i may use of so many levels.

        Those of a saved start, which is `held` besides, are counted too.
        """
        row = levels * self.level // self.rows[i] + (self.hidden if held else 0)
        return np.minimum(row // self.unit, self.even.free)

    def patched(self, i, j, held):
        """Return what the node costs as one patch, in rows, for each number of levels."""
        t = self.begins[j] - self.begins[i]
        if t > self.longest:
            return np.inf
        units = self.units(i, np.arange(self.levels + 1), held)
        steps = self.even.tables[held][units, t].astype(float)
        steps[steps > t * (t + 1) / 2] = np.inf  # no cost: there is no plan
        return steps / t * (self.sums[self.begins[j]] - self.sums[self.begins[i]])

    def split(self, i, j, levels, held):
        """Return p, where to split a node of patches, or None: plan it as one patch."""
        table = self.tables[held]
        cost = table[self.row(i, j), levels]
        slack = 1e-9 * cost  # sums of the same numbers in another order
        for p in range(i + 1, j):
            left = levels - self.saved[p]
            if left >= 0:
                run = self.sums[self.begins[p]] - self.sums[self.begins[i]]
                right = self.tables[True][self.row(p, j), left]
                if run + right + table[self.row(i, p), levels] <= cost + slack:
                    return p
        return None


def coarse_unit(hidden, internal):
    """Return the unit that rounds the two sizes up least, the coarsest of equals.

    An internal state is at most `STATE_UNITS` of them: tables have a row for every unit.
    """

    def rounded(unit):
        return -(-hidden // unit) * unit / hidden + -(-internal // unit) * unit / internal

    return min((-(-internal // count) for count in range(1, STATE_UNITS + 1)), key=rounded)
