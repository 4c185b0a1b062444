cdef void *address(array) except? NULL


cdef inline long share(long count, int member, int members) noexcept nogil:
    """Return where the member's share of 0 ... count - 1 begins."""
    return count * member // members


cdef class Room:
    cdef readonly list arrays
    cdef readonly long nbytes

    cdef void *take(self, long nbytes) except? NULL
