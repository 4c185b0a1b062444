from libc.stdint cimport int64_t

from membptt.kernels._chain cimport Chain
from membptt.kernels._head cimport Head
from membptt.kernels._steps cimport Steps
from membptt.kernels.kernels cimport membptt_kernels


cdef class Layer(Chain):
    cdef const membptt_kernels *k
    cdef readonly long hidden_size, input_size
    cdef Head head
    cdef long gates, blocks, panels, block_steps, rows
    cdef long states, internals  # arrays in a hidden state: h, or h and c; and in an internal one

    # inputs: tokens, dense rows, or h of the layer beneath
    cdef Steps inputs
    cdef Layer below
    cdef long input_blocks  # panels of I columns
    cdef char *dx  # where `by_inputs` lies
    cdef void *down_to  # where the derivative by this step's inputs goes
    cdef bint tokens
    cdef int64_t *pick
    cdef int64_t *block_tokens

    # packed once an iteration
    cdef void *W_h
    cdef void *W_h_back
    cdef void *W_x
    cdef void *W_x_back  # with a layer beneath, or where the derivative by the inputs is asked for
    cdef void *bias

    # projected inputs: those of the steps projected_from+1 ... projected_to, in panels of
    # projected_stride rows
    cdef const char *to_project
    cdef void *projected
    cdef long projected_from, projected_to, projected_stride, rows_to_project

    # states, each `states` arrays [B, H] side by side; with rows of several lengths, the working
    # ones and the derivative are of those that run in the step at hand
    cdef long live_rows  # in the step at hand
    cdef long going_on  # of the working state: those that go into the next step
    cdef char *initial
    cdef char *working
    cdef char *other
    cdef char *last
    cdef char *head_state
    cdef char *dstate

    # the rows of several steps that are expanded at once
    cdef long expand_rows
    cdef char *entering
    cdef char *leaving
    cdef char *expanded
    cdef int64_t *expand_pick

    # one block of backward steps
    cdef void *d
    cdef void *d_h  # the deltas that multiply h_prev: d, unless the cell has others for x
    cdef double *d_h_sums  # their sums over the rows, or NULL
    cdef bint keeps_dh  # whether the product with W_h is added to what cell_backward leaves in dh
    cdef void *h_panels
    cdef void *x_panels
    cdef double *W_h_sums
    cdef double *W_x_sums
    cdef double *b_sums

    # one phase, for every thread of the team
    cdef const void *start
    cdef long start_rows, first, now
    cdef void *saved  # the internal state to write, or NULL
    cdef const char *internal  # the internal state to read

    cdef tuple _state_arrays(self, const char *data)

    cdef int forward_step(self, long step, long internal_at) except -1 nogil
    cdef void leave(self, long step) noexcept nogil
    cdef void narrow(self, long rows) noexcept nogil
    cdef void join(self, long step) noexcept nogil
    cdef int backward_step(self, long step, long at) except -1 nogil
    cdef int pick_rows(self, long step, int64_t *pick) except -1 nogil
    cdef int project_steps(self, long step) except -1 nogil
    cdef int project_rows(self, const char *rows, long count) except -1 nogil
    cdef int keep_inputs(self, long step) except -1 nogil

    cdef long expand_from(self, long start, long end) except -1 nogil
    cdef int gather(self, long start, long begin, long end, int source, long at, long hidden_at,
                    long stride) except -1 nogil
    cdef int expand_gathered(self, long begin, long end) except -1 nogil
    cdef void scatter(self, long begin, long end, long internal_at, long stride) noexcept nogil

    # a thread's share of each phase: unit blocks or panels lo ... hi - 1
    cdef void project_share(self, long lo, long hi) noexcept nogil
    cdef void delta_share(self, long lo, long hi) noexcept nogil
    cdef void back_share(self, long lo, long hi) noexcept nogil
    cdef void down_share(self, long lo, long hi) noexcept nogil
    cdef void flush_share(self, long lo, long hi) noexcept nogil

    # what the cell computes
    cdef void cell_forward(self, long lo, long hi) noexcept nogil
    cdef void cell_hidden(self, const void *internal, void *state) noexcept nogil
    cdef void cell_backward(self, long lo, long hi) noexcept nogil


cdef class RNNChain(Layer):
    pass


cdef class GRUChain(Layer):
    cdef void *bias_h


cdef class LSTMChain(Layer):
    cdef long _size(self) noexcept nogil
