"""The recurrences made fast: tables in contiguous rows, closed forms where there are any.

A `Rule` answers one question, where to split a node of `t` steps, and is all that a strategy is to
the emitter of schedules. Readable twins of the tables are in `membptt.solver.recurrences`. A table
has one row per m, contiguous in t, so that the minimum over the splits y runs over two contiguous
arrays; int32 where the largest cost t (t + 1) / 2 fits twice, int64 otherwise. Only costs are kept:
the split at a visited node is found again by looking for a y that attains the cost.
"""

import numpy as np
from libc.stdint cimport int32_t, int64_t

cdef extern from "_minplus.h" nogil:
    ctypedef struct Search:
        pass
    void search_start(Search *search)
    int32_t search_next32(Search *search, const int32_t *p, const int32_t *q, ptrdiff_t n)
    int64_t search_next64(Search *search, const int64_t *p, const int64_t *q, ptrdiff_t n)

# Twice "infeasible" still fits the type, 64 times it fits 64 bits; every true cost is smaller.
cdef int32_t INFEASIBLE32 = (1 << 30) - 1
cdef int64_t INFEASIBLE64 = (<int64_t>1 << 54) - 1
LONGEST32 = 46339  # t (t + 1) / 2 < 2**30 - 1 up to here


cdef class Rule:
    """Where a strategy splits.

    Attributes
    ----------
    hidden, internal : int
        Units that a saved hidden and a saved internal state take from `free`.
    free : int
        Units free when the whole sequence starts.
    """

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        """Return y > 0: save h_y; -y < 0: save the internal state of step y; 0: convert.

        `t` steps start from the working state with `free` units left; `held` says that the
        start is a saved hidden state that this node has to give back (and may give back early:
        "convert"). t + q, with 1 < q <= t, is a block: save h_1 ... h_q, and when the steps after
        them are done expand the first q steps at once (`membptt.solver._expand`).
        """
        raise TypeError("a rule overrides split")


cdef inline cost_t infeasible(const cost_t *unused) noexcept nogil:
    if cost_t is int32_t:
        return INFEASIBLE32
    else:
        return INFEASIBLE64


cdef inline cost_t least(
    Search *search, const cost_t *p, const cost_t *q, ptrdiff_t n,
) noexcept nogil:
    """Return the least p[i] + q[i], i < n; for one `search`, n grows by one at each call."""
    if cost_t is int32_t:
        return search_next32(search, p, q, n)
    else:
        return search_next64(search, p, q, n)


cdef void msm_row(
    cost_t *C, const cost_t *after_hidden, const cost_t *after_internal,
    cost_t *g, int64_t steps,
) noexcept nogil:
    """Fill one row of msm; `after_...` are the reversed rows m - a and m - b, or NULL.

    g[y] = y + C(y, m).
    """
    cdef int64_t t, end
    cdef cost_t best
    cdef Search hidden, internal
    search_start(&hidden)
    search_start(&internal)
    C[0] = g[0] = 0
    for t in range(1, steps + 1):
        best = <cost_t>(t * (t + 1) // 2)
        end = steps - t  # reversed row: entry t - y stands at end + y
        if after_hidden != NULL:
            best = min(best, least(&hidden, g + 1, after_hidden + end + 1, t - 1))
        if after_internal != NULL:
            best = min(best, 1 + least(&internal, g, after_internal + end + 1, t))
        C[t] = best
        g[t] = best + <cost_t>t


cdef void optimal_rows(
    cost_t *A, cost_t *B, const cost_t *A_internal, const cost_t *B_hidden, const cost_t *A_both,
    cost_t *B_reversed, cost_t *gA, cost_t *gB, int64_t steps, bint may_hold,
) noexcept nogil:
    """Fill row m of A and B.

    The reversed rows are A(., m - b), B(., m - a) and A(., m - a - b), NULL where m is too small;
    gA[y] = y + A(y, m). `may_hold`: m holds a hidden state.
    """
    cdef int64_t t, end
    cdef cost_t never = infeasible(A), a, b
    cdef Search[4] search
    for t in range(4):
        search_start(&search[t])
    A[0] = B[0] = gA[0] = gB[0] = B_reversed[steps] = 0
    for t in range(1, steps + 1):
        end = steps - t
        b = never
        if may_hold:
            b = min(b, 1 + A_internal[end + 1])
            if B_hidden != NULL:
                b = min(b, least(&search[0], gB + 1, B_hidden + end + 1, t - 1))
            if A_both != NULL:
                b = min(b, 1 + least(&search[1], gB, A_both + end + 1, t))
        a = min(never, least(&search[2], gA + 1, B_reversed + end + 1, t - 1))
        a = min(a, 1 + least(&search[3], gA, A_internal + end + 1, t))
        B[t] = B_reversed[end] = b
        A[t] = a
        gB[t] = min(b + <cost_t>t, never)
        gA[t] = min(a + <cost_t>t, never)


cdef void fill_msm(
    cost_t[:, ::1] C, int64_t a, int64_t b, cost_t[:, ::1] work, cost_t[::1] last,
) noexcept nogil:
    """Fill C row by row; it may have fewer rows than `last`, row m stands at m modulo their number.

    last[m] = C(T, m).
    """
    cdef int64_t m, rows = C.shape[0], steps = C.shape[1] - 1
    cdef cost_t *hidden
    cdef cost_t *internal
    for m in range(last.shape[0]):
        hidden = internal = NULL
        if m >= a:
            hidden = &work[1, 0]
            reverse(&C[(m - a) % rows, 0], hidden, steps + 1)
        if m >= b:
            internal = &work[2, 0]
            reverse(&C[(m - b) % rows, 0], internal, steps + 1)
        msm_row(&C[m % rows, 0], hidden, internal, &work[0, 0], steps)
        last[m] = C[m % rows, steps]


cdef void fill_optimal(
    cost_t[:, ::1] A, cost_t[:, ::1] B, int64_t a, int64_t b, cost_t[:, ::1] work,
    cost_t[::1] last,
) noexcept nogil:
    """Fill A and B row by row, as `fill_msm` does; last[m] = A(T, m)."""
    cdef int64_t m, t, row, rows = A.shape[0], steps = A.shape[1] - 1
    cdef cost_t never = infeasible(&A[0, 0])
    cdef cost_t *hidden
    cdef cost_t *both
    for m in range(last.shape[0]):
        row = m % rows
        if m < b:
            A[row, 0] = B[row, 0] = 0
            for t in range(1, steps + 1):
                A[row, t] = B[row, t] = never
            last[m] = never
            continue
        hidden = both = NULL
        reverse(&A[(m - b) % rows, 0], &work[3, 0], steps + 1)
        if m >= a:
            hidden = &work[4, 0]
            reverse(&B[(m - a) % rows, 0], hidden, steps + 1)
        if m >= a + b:
            both = &work[5, 0]
            reverse(&A[(m - a - b) % rows, 0], both, steps + 1)
        optimal_rows(
            &A[row, 0], &B[row, 0], &work[3, 0], hidden, both,
            &work[2, 0], &work[0, 0], &work[1, 0], steps, m >= a,
        )
        last[m] = A[row, steps]


def cost_type(int64_t steps):
    """Return the NumPy type that holds the costs of up to `steps` steps."""
    return np.dtype(np.int32 if steps <= LONGEST32 else np.int64)


cdef solve_msm(int64_t steps, int64_t units, int64_t a, int64_t b, int64_t rows):
    """Return C in `rows` rows, and its last column."""
    kind = cost_type(steps)
    C = np.empty((rows, steps + 1), kind)
    work = np.empty((3, steps + 1), kind)
    last = np.empty(units + 1, kind)
    cdef int32_t[:, ::1] C32, work32
    cdef int64_t[:, ::1] C64, work64
    cdef int32_t[::1] last32
    cdef int64_t[::1] last64
    if kind == np.int32:
        C32, work32, last32 = C, work, last
        with nogil:
            fill_msm(C32, a, b, work32, last32)
    else:
        C64, work64, last64 = C, work, last
        with nogil:
            fill_msm(C64, a, b, work64, last64)
    return C, last


cdef solve_optimal(int64_t steps, int64_t units, int64_t a, int64_t b, int64_t rows):
    """Return A and B in `rows` rows, and the last column of A."""
    kind = cost_type(steps)
    A = np.empty((rows, steps + 1), kind)
    B = np.empty((rows, steps + 1), kind)
    work = np.empty((6, steps + 1), kind)
    last = np.empty(units + 1, kind)
    cdef int32_t[:, ::1] A32, B32, work32
    cdef int64_t[:, ::1] A64, B64, work64
    cdef int32_t[::1] last32
    cdef int64_t[::1] last64
    if kind == np.int32:
        A32, B32, work32, last32 = A, B, work, last
        with nogil:
            fill_optimal(A32, B32, a, b, work32, last32)
    else:
        A64, B64, work64, last64 = A, B, work, last
        with nogil:
            fill_optimal(A64, B64, a, b, work64, last64)
    return A, B, last


def msm_table(int64_t steps, int64_t units, int64_t a, int64_t b):
    """Return C of `membptt.solver.recurrences.msm` as an array [m, t]."""
    return solve_msm(steps, units, a, b, units + 1)[0]


def msm_costs(int64_t steps, int64_t units, int64_t a, int64_t b):
    """Return C(T, m) for m = 0...units; only the rows that later ones read are held."""
    return solve_msm(steps, units, a, b, min(units, max(a, b)) + 1)[1]


def optimal_tables(int64_t steps, int64_t units, int64_t a, int64_t b):
    """Return A and B of `membptt.solver.recurrences.optimal` as arrays [m, t].

    Entries without a schedule hold a number above every cost.
    """
    return solve_optimal(steps, units, a, b, units + 1)[:2]


def optimal_costs(int64_t steps, int64_t units, int64_t a, int64_t b):
    """Return A(T, m) for m = 0...units; only the rows that later ones read are held."""
    return solve_optimal(steps, units, a, b, min(units, a + b) + 1)[2]


cdef int64_t split_msm(
    const cost_t[:, ::1] C, int64_t t, int64_t m, int64_t a, int64_t b,
) noexcept nogil:
    cdef int64_t cost = C[m, t], y = 0
    if t + <int64_t>C[m, t - 1] == cost:
        return -t  # in the working internal state, which the m units do not count
    if m >= b:
        y = find_internal(&C[m, 0], &C[m - b, 0], t, cost, 1)
    return y if y else find_hidden(&C[m, 0], &C[m - a, 0], t, cost, 1)


cdef int64_t split_free(
    const cost_t[:, ::1] A, const cost_t[:, ::1] B, int64_t t, int64_t m, int64_t b,
) noexcept nogil:
    cdef int64_t cost = A[m, t], y = find_internal(&A[m, 0], &A[m - b, 0], t, cost, 1)
    return y if y else find_hidden(&A[m, 0], &B[m, 0], t, cost, 1)


cdef int64_t split_held(
    const cost_t[:, ::1] A, const cost_t[:, ::1] B, int64_t t, int64_t m, int64_t a, int64_t b,
) noexcept nogil:
    cdef int64_t cost = B[m, t], y = 0
    if 1 + <int64_t>A[m - b, t - 1] == cost:
        return 0
    if m >= a + b:
        y = find_internal(&B[m, 0], &A[m - a - b, 0], t, cost, 1)
    return y if y else find_hidden(&B[m, 0], &B[m - a, 0], t, cost, 1)


cdef class MixedRule(Rule):
    """The paper's msm, from its table; `free` is m."""

    cdef const int32_t[:, ::1] C32
    cdef const int64_t[:, ::1] C64
    cdef bint narrow  # C32 is set: a view that is not set does not compare equal to None
    cdef readonly object table

    def __init__(self, int64_t steps, int64_t units, int64_t hidden, int64_t internal):
        self.hidden, self.internal, self.free = hidden, internal, units
        self.table = msm_table(steps, units, hidden, internal)
        self.narrow = self.table.dtype == np.int32
        if self.narrow:
            self.C32 = self.table
        else:
            self.C64 = self.table

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        if self.narrow:
            return split_msm(self.C32, t, free, self.hidden, self.internal)
        return split_msm(self.C64, t, free, self.hidden, self.internal)

    def cost(self):
        """Return C(T, m)."""
        return int(self.table[-1, -1])


cdef class OptimalRule(Rule):
    """The two tables; a start that is held is counted in their m and not in `free`."""

    cdef const int32_t[:, ::1] A32, B32
    cdef const int64_t[:, ::1] A64, B64
    cdef bint narrow
    cdef readonly object tables

    def __init__(self, int64_t steps, int64_t units, int64_t hidden, int64_t internal):
        self.hidden, self.internal, self.free = hidden, internal, units
        self.tables = optimal_tables(steps, units, hidden, internal)
        self.narrow = self.tables[0].dtype == np.int32
        if self.narrow:
            self.A32, self.B32 = self.tables
        else:
            self.A64, self.B64 = self.tables

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        cdef int64_t a = self.hidden, b = self.internal
        if self.narrow:
            if held:
                return split_held(self.A32, self.B32, t, free + a, a, b)
            return split_free(self.A32, self.B32, t, free, b)
        if held:
            return split_held(self.A64, self.B64, t, free + a, a, b)
        return split_free(self.A64, self.B64, t, free, b)

    def cost(self):
        """Return A(T, m)."""
        return int(self.tables[0][-1, -1])


cpdef int64_t binomial_split(int64_t t, int64_t s) except -1:
    """Return where Revolve splits `t` >= 2 steps with `s` >= 1 slots, the start's included.

    With beta(s, r) = binomial(s + r, s) and the least r for which t <= beta(s, r), every y with
    beta(s, r-2) <= y <= beta(s, r-1) and beta(s-1, r-1) <= t - y <= beta(s-1, r) is best (Griewank
    and Walther 2000, theorem 1); this is the largest of them.
    """
    cdef int64_t r = 1, previous = 1, beta = s + 1  # beta(s, r-1), beta(s, r)
    if s >= t:
        return 1
    if s == 1:
        return t - 1
    while beta < t:
        r += 1
        previous = beta
        beta = beta * (s + r) // r  # exact; below 2 t**2
    # beta(s-1, r-1) = beta(s, r-1) s / (s + r - 1)
    return min(previous, t - previous * s // (s + r - 1))


cdef class HiddenRule(Rule):
    """hsm: hidden states only, by the binomial closed form; `free` is m - 1, without the start."""

    def __init__(self, int64_t units):
        self.hidden, self.internal, self.free = 1, 0, units - 1

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        cdef int64_t y
        if t == 1 or free == 0:
            return -t
        y = binomial_split(t, free + 1)
        return -t if y == t - 1 else y  # h_(t-1) would be saved only to be used at once


cdef class InternalRule(Rule):
    """ism: internal states only; t + 1 steps of Revolve in disguise; `free` is m."""

    def __init__(self, int64_t units):
        self.hidden, self.internal, self.free = 1, 1, units

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        return -binomial_split(t + 1, free)


cdef class FullRule(Rule):
    """Every internal state kept; nothing is counted, since the budget was checked."""

    def __init__(self):
        self.hidden = self.internal = self.free = 0

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        return -1


cdef class UniformRule(Rule):
    """Hidden states at every `segment` steps, then full BPTT within a segment."""

    cdef readonly int64_t segment

    def __init__(self, int64_t segment):
        self.hidden = self.internal = self.free = 0
        self.segment = segment

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        if t > self.segment:
            return self.segment
        return 0 if held else -1


cdef class HalvingRule(Rule):
    """A hidden state in the middle, then the same for either half."""

    def __init__(self):
        self.hidden = self.internal = self.free = 0

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        if t > 1:
            return (t + 1) // 2
        return 0 if held else -1


cdef class LongRule(OptimalRule):
    """The tables up to some length, and `split_long` beyond."""

    cdef int64_t longest
    cdef public object split_long

    def __init__(self, int64_t steps, int64_t units, int64_t hidden, int64_t internal):
        OptimalRule.__init__(self, steps, units, hidden, internal)
        self.longest = steps

    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0:
        if t <= self.longest:
            return OptimalRule.split(self, t, free, held)
        return self.split_long(t, free, held)

    def exact_cost(self, int64_t t, int64_t free, bint held):
        """Return A(t, m) or B(t, m) from the tables."""
        return int(self.tables[1][free + self.hidden, t] if held else self.tables[0][free, t])
