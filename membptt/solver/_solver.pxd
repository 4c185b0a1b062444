"""What a schedule asks of its strategy, where to split; and what the tables have in common."""

from libc.stdint cimport int32_t, int64_t

ctypedef fused cost_t:
    int32_t
    int64_t


cdef class Rule:
    cdef readonly int64_t hidden    # a: units that a saved hidden state takes
    cdef readonly int64_t internal  # b: units that a saved internal state takes
    cdef readonly int64_t free      # units free at the root
    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0


cdef inline void reverse(const cost_t *row, cost_t *into, ptrdiff_t n) noexcept nogil:
    """Write row[0..n-1] into `into`, last first."""
    cdef ptrdiff_t i
    for i in range(n):
        into[n - 1 - i] = row[i]


cdef inline int64_t find_hidden(
    const cost_t *left, const cost_t *right, int64_t t, int64_t cost, int64_t forward,
) noexcept nogil:
    """Return the least 1 <= y < t with y forward + left[y] + right[t - y] = cost, or 0.

    `forward` is what a step costs in the tables.
    """
    cdef int64_t y
    for y in range(1, t):
        if y * forward + <int64_t>left[y] + <int64_t>right[t - y] == cost:
            return y
    return 0


cdef inline int64_t find_internal(
    const cost_t *left, const cost_t *right, int64_t t, int64_t cost, int64_t forward,
) noexcept nogil:
    """Return -y, y forward + left[y - 1] + right[t - y] = cost, for the least 1 <= y <= t; or 0."""
    cdef int64_t y
    for y in range(1, t + 1):
        if y * forward + <int64_t>left[y - 1] + <int64_t>right[t - y] == cost:
            return -y
    return 0
