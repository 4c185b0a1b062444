from libc.stdint cimport int64_t, uint8_t

from membptt.kernels._live cimport Live
from membptt.kernels._steps cimport Steps
from membptt.kernels.kernels cimport membptt_kernels, team


cdef class Head:
    cdef readonly double loss
    cdef readonly long first_bad_step
    cdef Live live  # which rows run at a step

    cdef int losses_and_deltas(self, long step, const void *h, void *dh,
                               team *threads) except -1 nogil
    cdef void add_to_dh(self, void *dh, long lo, long hi) noexcept nogil
    cdef void add_to_gradients(self, team *threads) noexcept nogil


cdef class CompiledHead(Head):
    cdef const membptt_kernels *k
    cdef long steps, batch, live_rows, hidden_size, outputs, panels, block_steps, rows
    cdef double scale
    cdef Steps targets
    cdef bint classes  # of the softmax; else rows of the squared error
    cdef const char *targets_now
    cdef int64_t *classes_now

    # which rows of a step have a loss
    cdef Steps mask
    cdef bint masked
    cdef bint ending  # each row has one at the step where it ends
    cdef int64_t *ends
    cdef uint8_t *ends_now
    cdef const uint8_t *scored  # NULL: all
    cdef bint idle  # none has one at this step
    cdef bint block_idle  # nor at the steps of this block so far

    cdef void *packed
    cdef void *packed_back
    cdef void *bias
    cdef void *d
    cdef void *h_panels
    cdef double *sums
    cdef double *bias_sums
    cdef double *losses  # of the rows of one step
    cdef long now, first  # the step, and where its rows stand in the block
    cdef const void *h

    cdef int choose_rows(self, long step) except -1 nogil
    cdef void clear_rows(self) noexcept nogil
    cdef void project(self, int member, int members) noexcept nogil
    cdef void compare(self, int member, int members) noexcept nogil
    cdef void flush(self, int member, int members) noexcept nogil


cdef class PythonHead(Head):
    cdef object bound
    cdef dict grads
    cdef object dtype
    cdef long hidden_size

    cdef _call(self, long step, const void *h, void *dh)
