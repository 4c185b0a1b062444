"""The workspace of a compiled chain.

Room takes its memory from NumPy, so that tracemalloc sees every byte of it, aligned to a cache
line.
"""

import numpy as np

cdef enum:
    ALIGNMENT = 64


cdef void *address(array) except? NULL:
    """Return where the array's first element lies; the array must outlive the use.

    NumPy answers in Python code, which a Ctrl-C can end: without an exception that would be NULL.
    """
    return <void *><size_t>array.ctypes.data


cdef class Room:
    """The workspace of one chain: arrays that live as long as it does, and their bytes."""

    def __init__(self):
        self.arrays = []
        self.nbytes = 0

    cdef void *take(self, long nbytes) except? NULL:
        """Return room for `nbytes`, zeroed and aligned."""
        array = np.zeros(nbytes + ALIGNMENT, np.uint8)
        cdef size_t start = <size_t>address(array)
        self.arrays.append(array)
        self.nbytes += array.nbytes
        return <void *>(start + (-start) % <size_t>ALIGNMENT)
