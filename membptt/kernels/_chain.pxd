from membptt.kernels._live cimport Live
from membptt.kernels._room cimport Room
from membptt.kernels._sums cimport Sums
from membptt.kernels.kernels cimport team


cdef enum Source:
    # Where `restart` takes the working hidden state from (membptt.chains.plain has the same).
    INITIAL = 0
    SAVED = 1  # a hidden state in the arena
    LEAVING = 2  # an internal state: the hidden state after its step
    ENTERING = 3  # an internal state: the hidden state before its step


cdef class Chain:
    cdef readonly long steps, batch
    cdef Live live  # which rows run at a step
    cdef long hidden_row, internal_row  # bytes of a row of each kind of state
    cdef readonly Room room
    cdef object cell, dtype
    cdef long horizon  # no step after it will be run soon

    # one phase, for every thread of the team
    cdef team *forward_team
    cdef team *backward_team
    cdef team *flush_team
    cdef team *own_team  # that this chain has to end

    # the arena
    cdef char *arena
    cdef readonly object arena_array

    # [T, B, I] for the derivative by the inputs, bound before `begin`; None: not asked for
    cdef public object by_inputs

    # of the hidden states, to check what is run again; None: no check
    cdef public Sums sums

    cdef void _restart(self, int source, long at, long place) noexcept nogil
    cdef int _forward(self, long start, long stop, long internal_at) except -1 nogil
    cdef void _save_hidden(self, long at) noexcept nogil
    cdef int _backward(self, long step, long at) except -1 nogil
    cdef int _expand(self, long start, long stop, int source, long at, long hidden_at,
                     long internal_at) except -1 nogil
    cdef int expand_singly(self, long start, long stop, int source, long at, long hidden_at,
                           long internal_at) except -1 nogil
    cdef long most_shares(self)
