"""Workspace and whole numbers as the compiled chain needs them.

Room takes its memory from NumPy, so that tracemalloc sees every byte of it, aligned to a cache
line. Integers reads tokens of any integer dtype where they lie: no copy that grows with T.
"""

import numpy as np

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum:
    ALIGNMENT = 64


cdef void *address(array) noexcept:
    """Return where the array's first element lies; the array must outlive the use."""
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


cdef class Integers:
    """A C-contiguous integer array of any width, read one element at a time."""

    def __init__(self, array):
        if not array.flags.c_contiguous or not array.dtype.isnative:
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        self.array = array
        self.data = <const char *>address(array)
        self.itemsize = array.itemsize
        self.signed = array.dtype.kind == "i"

    cdef long at(self, long index) noexcept nogil:
        cdef const char *p = self.data + index * self.itemsize
        if self.itemsize == 8:
            return (<const int64_t *>p)[0]
        if self.itemsize == 4:
            return (<const int32_t *>p)[0] if self.signed else (<const uint32_t *>p)[0]
        if self.itemsize == 2:
            return (<const int16_t *>p)[0] if self.signed else (<const uint16_t *>p)[0]
        return (<const int8_t *>p)[0] if self.signed else (<const uint8_t *>p)[0]
