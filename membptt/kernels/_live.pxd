cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class Live:
    cdef readonly long batch
    cdef readonly object lengths  # a Lengths, or None: all rows run at every step
    cdef bint reordered  # whether the rows stand in another order than the caller's
    cdef const int64_t *falling
    cdef const int64_t *order

    cdef inline long rows(self, long step) noexcept nogil:
        """Return how many rows run at `step`."""
        return self.batch if self.lengths is None else self.count(step)

    cdef inline long rows_between(self, long start, long stop) noexcept nogil:
        """Return how many rows run in the steps start+1 ... stop together."""
        if self.lengths is None:
            return (stop - start) * self.batch
        return self.count_between(start, stop)

    cdef long count(self, long step) noexcept nogil
    cdef long count_between(self, long start, long stop) noexcept nogil
