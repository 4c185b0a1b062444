from libc.stdint cimport uint64_t


cdef class Sums:
    cdef object array
    cdef uint64_t *sums

    cdef int check_at(self, long step, const char *data, long nbytes) except -1 nogil
