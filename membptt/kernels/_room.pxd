cdef void *address(array) noexcept


cdef class Room:
    cdef readonly list arrays
    cdef readonly long nbytes

    cdef void *take(self, long nbytes) except? NULL


cdef class Integers:
    cdef object array
    cdef const char *data
    cdef int itemsize
    cdef bint signed

    cdef long at(self, long index) noexcept nogil
