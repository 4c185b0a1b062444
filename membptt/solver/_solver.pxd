"""What a schedule asks of its strategy: where to split."""

from libc.stdint cimport int64_t


cdef class Rule:
    cdef readonly int64_t hidden    # a: units that a saved hidden state takes
    cdef readonly int64_t internal  # b: units that a saved internal state takes
    cdef readonly int64_t free      # units free at the root
    cpdef int64_t split(self, int64_t t, int64_t free, bint held) except? 0
