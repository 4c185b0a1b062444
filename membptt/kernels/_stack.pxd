from membptt.kernels._chain cimport Chain


cdef class StackChain(Chain):
    cdef list layers  # layer 0 first
    cdef long count
    cdef void **pointers  # the same, for code without the GIL
    cdef long *hidden_at  # bytes of a row before each layer's part: the top layer's is first
    cdef long *internal_at
    cdef char *joined  # one hidden state, to check

    cdef void share_team(self) noexcept nogil
    cdef int check(self, long step) except -1 nogil
