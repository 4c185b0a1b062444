"""Tables of a chain with a place in it: the compiled twin of `membptt.solver.chains.readable`."""

import numpy as np
from libc.stdint cimport int64_t

cdef extern from "_relax.h" nogil:
    void relax(double *best, const double *left, const double *right, double price, ptrdiff_t n)


cdef inline ptrdiff_t place(ptrdiff_t i, ptrdiff_t j) noexcept nogil:
    """Return the row of the node i + 1...j; rows of equal j lie side by side."""
    return j * (j + 1) // 2 + i


cdef inline void relax_less(
    double *best, const double *left, const double *right, double price, int64_t less,
    int64_t columns,
) noexcept nogil:
    """best(f) = min(best(f), price + left(f) + right(f - less)), where there are so many units."""
    if less < columns:
        relax(best + less, left + less, right, price, columns - less)


def tables(
    const double[::1] sums, const int64_t[::1] hidden, const int64_t[::1] internal,
    double save_hidden, double save_internal, double restore, int64_t units, whole=None,
):
    """Return A and B as arrays [T (T + 1) / 2 + T + 1, units + 1].

    Parameters
    ----------
    sums : array [T + 1]
        Cost of running steps 1...t.
    hidden, internal : array [T + 1]
        Units of h_t and of the internal state of step t; entry 0 is not used.
    save_hidden, save_internal, restore : float
        Costs.
    units : int
        Of the whole budget. An entry's units do not count the start.
    whole : pair of array, optional
        As A and B: what each node costs if it is not split, where there is a way to do that; they
        are overwritten.
    """
    cdef ptrdiff_t steps = sums.shape[0] - 1, columns = units + 1, length, i, j, p, f
    shape = place(steps, steps) + 1, columns
    free_table, held_table = whole or (np.full(shape, np.inf), np.full(shape, np.inf))
    cdef double[:, ::1] A = free_table, B = held_table
    cdef double price
    cdef double *a
    cdef double *b
    cdef int64_t more
    with nogil:
        for i in range(steps + 1):
            for f in range(columns):
                A[place(i, i), f] = B[place(i, i), f] = 0.0
        for length in range(1, steps + 1):
            for i in range(steps - length + 1):
                j = i + length
                a, b = &A[place(i, j), 0], &B[place(i, j), 0]
                for p in range(i + 1, j + 1):
                    price = sums[p] - sums[i]
                    if p < j:
                        relax_less(
                            a, &A[place(i, p), 0], &B[place(p, j), 0],
                            price + save_hidden + restore, hidden[p], columns,
                        )
                        relax_less(
                            b, &B[place(i, p), 0], &B[place(p, j), 0],
                            price + save_hidden + restore, hidden[p], columns,
                        )
                    price += save_internal + (restore if p - 1 > i else 0.0)
                    relax_less(
                        a, &A[place(i, p - 1), 0], &A[place(p, j), 0], price, internal[p], columns,
                    )
                    relax_less(
                        b, &B[place(i, p - 1), 0], &A[place(p, j), 0], price, internal[p], columns,
                    )
                if i > 0:
                    more = hidden[i] - internal[i + 1]
                    price = sums[i + 1] - sums[i] + save_internal
                    for f in range(max(0, -more), min(columns, columns - more)):
                        b[f] = min(b[f], price + A[place(i + 1, j), f + more])
    return free_table, held_table
