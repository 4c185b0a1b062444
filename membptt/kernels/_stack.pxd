from membptt.kernels._chain cimport Chain


cdef class StackChain(Chain):
    cdef list layers  # layer 0 first
    cdef long count
    cdef void **pointers  # the same, for code without the GIL
    cdef long *hidden_at  # where each layer's part begins in a state: the top layer's first
    cdef long *internal_at
    cdef long hidden_nbytes, internal_nbytes
    cdef char *joined  # one hidden state, to check

    cdef void share_team(self) noexcept nogil
    cdef int check(self, long step) except -1 nogil
