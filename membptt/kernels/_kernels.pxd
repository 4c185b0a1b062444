from membptt.kernels.kernels cimport membptt_kernels

cdef const membptt_kernels *select(long itemsize, str isa) except NULL
