from libc.stdint cimport int64_t

from membptt.kernels._room cimport Integers
from membptt.kernels.kernels cimport membptt_kernels


cdef class Head:
    cdef readonly double loss
    cdef readonly long first_bad_step

    cdef int step(self, long step, const void *h, void *dh) except -1 nogil


cdef class CompiledHead(Head):
    cdef const membptt_kernels *k
    cdef long steps, batch, hidden_size, outputs, panels, block_steps, rows
    cdef double scale
    cdef Integers classes  # targets of the softmax; None for the squared error
    cdef object dense_array
    cdef const char *dense
    cdef int64_t *classes_now
    cdef void *packed
    cdef void *packed_back
    cdef void *bias
    cdef void *d
    cdef void *h_panels
    cdef double *sums
    cdef double *bias_sums


cdef class PythonHead(Head):
    cdef object bound
    cdef dict grads
    cdef object dtype
    cdef tuple shape

    cdef _call(self, long step, const void *h, void *dh)
