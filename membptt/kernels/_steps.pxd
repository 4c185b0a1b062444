from libc.stdint cimport int64_t

from membptt.kernels._live cimport Live
from membptt.kernels._room cimport Room

cdef enum:
    # Who reads: forwards and backwards may run in two threads, each in a block of its own.
    AHEAD = 0
    BACK = 1


cdef class Steps:
    cdef Room room
    cdef object source, blocks, lock
    cdef long steps, row_nbytes, block_steps, room_nbytes
    cdef int itemsize
    cdef bint signed

    # where each reader is: the steps first+1 ... last lie from `data` on
    cdef const char *data[2]
    cdef long[2] first
    cdef long[2] last

    # two blocks of what is not read where it lies
    cdef char *buffer
    cdef list views
    cdef long[2] begins  # the step before each block, -1: nothing there
    cdef int[2] slot_of  # of each reader, -1: none

    # the rows of one step, in the order of `live`, for each reader
    cdef Live live
    cdef char *ordered
    cdef long ordered_nbytes

    cdef const char *row(self, long step, int reader) except NULL nogil
    cdef const char *put_in_order(self, const char *given, long step, int reader) noexcept nogil
    cdef int load(self, long step, int reader) except -1 nogil
    cdef void integers(self, const char *row, long count, int64_t *out) noexcept nogil
