from libc.stdint cimport int64_t

from membptt.kernels._head cimport Head
from membptt.kernels._room cimport Room
from membptt.kernels._steps cimport Steps
from membptt.kernels._sums cimport Sums
from membptt.kernels.kernels cimport membptt_kernels, team


cdef class Chain:
    cdef const membptt_kernels *k
    cdef readonly long steps, batch, hidden_size, input_size
    cdef readonly Room room
    cdef Head head
    cdef object cell, dtype
    cdef long gates, blocks, panels, block_steps, rows
    cdef long states  # arrays in a hidden state: h, or h and c

    # inputs: tokens, or dense rows
    cdef Steps inputs
    cdef bint tokens
    cdef int64_t *pick
    cdef int64_t *block_tokens

    # packed once an iteration
    cdef void *W_h
    cdef void *W_h_back
    cdef void *W_x
    cdef void *bias

    # projected inputs of the steps projected_from+1 ... projected_to
    cdef const char *to_project
    cdef void *projected
    cdef long projected_from, projected_to, horizon

    # states, each `states` arrays [B, H] side by side
    cdef char *initial
    cdef char *working
    cdef char *other
    cdef char *last
    cdef char *head_state
    cdef char *dstate

    # the rows of several steps that are expanded at once
    cdef long internals  # arrays in an internal state
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
    cdef team *forward_team
    cdef team *backward_team
    cdef team *flush_team
    cdef const void *start
    cdef long start_rows, first, now
    cdef void *saved  # the internal state to write, or NULL
    cdef const char *internal  # the internal state to read

    # the arena
    cdef char *arena
    cdef readonly object arena_array

    # of the hidden states, to check what is run again; None: no check
    cdef public Sums sums

    cdef long _state_nbytes(self) noexcept nogil
    cdef tuple _state_arrays(self, const char *data)

    cdef void _restart(self, int source, long at) noexcept nogil
    cdef int _forward(self, long start, long stop, long internal_at) except -1 nogil
    cdef void _save_hidden(self, long at) noexcept nogil
    cdef int _backward(self, long step, long at) except -1 nogil
    cdef int _expand(self, long start, long stop, int source, long at, long hidden_at,
                     long internal_at) except -1 nogil
    cdef void gather(self, const char *state, long i, long rows) noexcept nogil
    cdef int pick_rows(self, long step, int64_t *pick) except -1 nogil

    cdef int _project(self, long step) except -1 nogil
    cdef int keep_inputs(self, long step) except -1 nogil

    # a thread's share of each phase: unit blocks or panels lo ... hi - 1
    cdef void project_share(self, long lo, long hi) noexcept nogil
    cdef void delta_share(self, long lo, long hi) noexcept nogil
    cdef void back_share(self, long lo, long hi) noexcept nogil
    cdef void flush_share(self, long lo, long hi) noexcept nogil

    # what the cell computes
    cdef void cell_forward(self, long lo, long hi) noexcept nogil
    cdef void cell_hidden(self, const void *internal, void *state) noexcept nogil
    cdef void cell_backward(self, long lo, long hi) noexcept nogil


cdef class RNNChain(Chain):
    pass


cdef class GRUChain(Chain):
    cdef void *bias_h


cdef class LSTMChain(Chain):
    cdef long _size(self) noexcept nogil
