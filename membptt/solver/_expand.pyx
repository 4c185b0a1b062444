"""Schedules that keep runs of hidden states and expand them block by block: tables and rule.

The readable twin is `membptt.solver.recurrences.expand`. Costs are whole hundredths of a forward
step, in tables as those of `membptt.solver._solver`: one row per m, contiguous in t.
"""

import numpy as np

from libc.stdint cimport int64_t

from membptt.solver._solver cimport Rule, find_hidden, find_internal, reverse

cdef extern from "_minplus.h" nogil:
    int64_t least_sum(const int64_t *p, const int64_t *q, ptrdiff_t n)

TICKS = 100  # a forward step

# Four times "infeasible" fits the type; every true cost is smaller.
cdef int64_t INFEASIBLE = (<int64_t>1 << 60) - 1
cdef int64_t FORWARD = TICKS


cdef void offer_block(
    int64_t *best, const int64_t *right, int64_t q, int64_t price, int64_t steps,
) noexcept nogil:
    """Lower best[t] to the cost of a block of q steps, `right` being B for the steps after it."""
    cdef int64_t t, cost, first = q * FORWARD + price
    if q <= steps:  # nothing after it: its last step need not run
        best[q] = min(best[q], first - FORWARD)
    for t in range(q + 1, steps + 1):
        cost = first + right[t - q]
        best[t] = cost if cost < best[t] else best[t]


cdef void fill(
    int64_t[:, ::1] A, int64_t[:, ::1] B, int64_t a, int64_t b, const int64_t[::1] price,
    int64_t[:, ::1] work, int64_t[::1] last,
) noexcept nogil:
    """Fill A and B; row m stands at m modulo their number of rows; last[m] = A(T, m)."""
    cdef int64_t m, t, q, end, row, rows = A.shape[0], steps = A.shape[1] - 1
    cdef int64_t *gA = &work[0, 0]  # cost of y steps and of A(y, m)
    cdef int64_t *gB = &work[1, 0]
    cdef int64_t *B_here = &work[2, 0]  # reversed, as the others are
    cdef int64_t *A_internal = &work[3, 0]
    cdef int64_t *B_hidden = &work[4, 0]
    cdef int64_t *A_both = &work[5, 0]
    cdef int64_t *A_row
    cdef int64_t *B_row
    for m in range(last.shape[0]):
        row = m % rows
        A_row, B_row = &A[row, 0], &B[row, 0]
        A_row[0] = B_row[0] = gA[0] = gB[0] = B_here[steps] = 0
        for t in range(1, steps + 1):
            A_row[t] = B_row[t] = INFEASIBLE
        last[m] = A_row[steps]
        if m < b:
            continue
        for q in range(2, min(price.shape[0], m // b + 1)):
            offer_block(A_row, &B[(m - (q - 1) * a) % rows, 0], q, price[q], steps)
            offer_block(B_row, &B[(m - q * a) % rows, 0], q, price[q], steps)
        reverse(&A[(m - b) % rows, 0], A_internal, steps + 1)
        if m >= a:
            reverse(&B[(m - a) % rows, 0], B_hidden, steps + 1)
        if m >= a + b:
            reverse(&A[(m - a - b) % rows, 0], A_both, steps + 1)
        for t in range(1, steps + 1):
            end = steps - t  # reversed row: entry t - y stands at end + y
            if m >= a:
                B_row[t] = min(B_row[t], FORWARD + A_internal[end + 1])
                B_row[t] = min(B_row[t], least_sum(gB + 1, B_hidden + end + 1, t - 1))
                if m >= a + b:
                    B_row[t] = min(B_row[t], FORWARD + least_sum(gB, A_both + end + 1, t))
            B_here[end] = B_row[t]
            A_row[t] = min(A_row[t], least_sum(gA + 1, B_here + end + 1, t - 1))
            A_row[t] = min(A_row[t], FORWARD + least_sum(gA, A_internal + end + 1, t))
            gA[t] = min(A_row[t] + t * FORWARD, INFEASIBLE)
            gB[t] = min(B_row[t] + t * FORWARD, INFEASIBLE)
        last[m] = A_row[steps]


cdef solve(int64_t steps, int64_t units, int64_t a, int64_t b, prices, int64_t rows):
    """Return A and B in `rows` rows, and the last column of A."""
    A = np.empty((rows, steps + 1), np.int64)
    B = np.empty((rows, steps + 1), np.int64)
    last = np.empty(units + 1, np.int64)
    cdef int64_t[:, ::1] A_view = A, B_view = B, work = np.empty((6, steps + 1), np.int64)
    cdef int64_t[::1] last_view = last
    cdef const int64_t[::1] price = np.asarray(prices, np.int64)
    with nogil:
        fill(A_view, B_view, a, b, price, work, last_view)
    return A, B, last


def expand_tables(int64_t steps, int64_t units, int64_t a, int64_t b, prices):
    """Return A and B of `membptt.solver.recurrences.expand` as arrays [m, t].

    Entries without a schedule hold a number above every cost.
    """
    return solve(steps, units, a, b, prices, units + 1)[:2]


def expand_costs(int64_t steps, int64_t units, int64_t a, int64_t b, prices):
    """Return A(T, m) for m = 0...units; only the rows that later ones read are held."""
    rows = min(units, max(a + b, (len(prices) - 1) * a)) + 1
    return solve(steps, units, a, b, prices, rows)[2]


cdef class ExpandRule(Rule):
    """Where to split, from the two tables.

    Parameters
    ----------
    steps, units, hidden, internal : int
        T, m, a and b.
    prices : sequence of int
        Of expanding q steps at once, for q = 0, 1, 2, ..., in hundredths of a forward step.

    Attributes
    ----------
    forward_steps : int
        Steps that the schedule runs one after the other.
    expansions, expanded_steps : int
        How many blocks it expands, and the steps in all of them.
    """

    cdef const int64_t[:, ::1] A, B
    cdef const int64_t[::1] price
    cdef readonly object tables
    cdef readonly int64_t forward_steps, expansions, expanded_steps

    def __init__(self, int64_t steps, int64_t units, int64_t hidden, int64_t internal, prices):
        self.hidden, self.internal, self.free = hidden, internal, units
        self.price = np.asarray(prices, np.int64)
        self.tables = expand_tables(steps, units, hidden, internal, prices)
        self.A, self.B = self.tables
        self.count(steps)

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        cdef int64_t a = self.hidden, b = self.internal, m = free + a if held else free
        cdef int64_t y = 0, q
        cdef const int64_t *here = &self.B[m, 0] if held else &self.A[m, 0]
        cdef int64_t cost = here[t]
        if held and FORWARD + self.A[m - b, t - 1] == cost:
            return 0
        if free >= b:
            y = find_internal(here, &self.A[free - b, 0], t, cost, FORWARD)
        if y == 0:
            y = find_hidden(here, &self.B[free, 0], t, cost, FORWARD)
        if y != 0:
            return y
        for q in range(2, min(min(t + 1, self.price.shape[0]), m // b + 1)):
            if q == t:
                if (q - 1) * FORWARD + self.price[q] == cost:
                    return t + q
            # h_q, where the steps after the block start, is counted in their m
            elif q * FORWARD + self.price[q] + self.B[free - (q - 1) * a, t - q] == cost:
                return t + q
        raise RuntimeError(f"no split of {t} steps attains the cost {cost}")

    cdef count(self, int64_t steps):
        """Go through all nodes once, and count what they run and expand."""
        cdef int64_t t, free, y, q
        cdef bint held
        nodes = [(steps, self.free, False)]
        while nodes:
            t, free, held = nodes.pop()
            y = self.split(t, free, held)
            if y > t:
                q = y - t
                self.forward_steps += q if q < t else q - 1
                self.expansions += 1
                self.expanded_steps += q
                if q < t:
                    nodes.append((t - q, free - q * self.hidden, True))
                continue
            if y > 0:
                self.forward_steps += y
                nodes.append((y, free, held))
                nodes.append((t - y, free - self.hidden, True))
                continue
            if y == 0:
                free, held, y = free + self.hidden, False, -1
            y = -y
            self.forward_steps += y
            if y < t:
                nodes.append((t - y, free - self.internal, False))
            if y > 1:
                nodes.append((y - 1, free, held))

    def cost(self):
        """Return A(T, m)."""
        return int(self.tables[0][-1, -1])
