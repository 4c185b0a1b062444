from libc.stdint cimport int64_t


cdef class Live:
    cdef readonly long batch
    cdef readonly object lengths  # membptt.lengths.Lengths, or None: all rows run at every step
    cdef bint reordered  # whether the rows stand in another order than the caller's
    cdef const int64_t *falling
    cdef const int64_t *order

    cdef long rows(self, long step) noexcept nogil
    cdef long rows_between(self, long start, long stop) noexcept nogil
