"""Which rows are live at which step, without the GIL: the twin of membptt.sequences.lengths.

Rows of one length are live at every step; rows of several stand in the order of falling length, so
that the live ones are the first.
"""

import numpy as np

from libc.stdint cimport int64_t

from membptt.kernels._room cimport address


cdef class Live:
    """The live rows of every step of one window.

    Parameters
    ----------
    batch : int
        B.
    lengths : membptt.sequences.lengths.Lengths, optional
        Of the rows; None where all of them run at every step.
    """

    def __init__(self, batch, lengths=None):
        self.batch = batch
        self.lengths = lengths
        if lengths is not None:
            self.falling = <const int64_t *>address(lengths.falling)
            self.order = <const int64_t *>address(lengths.order)
            self.reordered = (np.diff(lengths.order) < 0).any()

    cdef long count(self, long step) noexcept nogil:
        """Return how many rows have at least `step` steps."""
        cdef long low = 0, high = self.batch, middle
        while low < high:
            middle = (low + high) // 2
            if self.falling[middle] >= step:
                low = middle + 1
            else:
                high = middle
        return low

    cdef long count_between(self, long start, long stop) noexcept nogil:
        """Return how many steps all rows have together behind `start`, none behind `stop`."""
        cdef long b, total = 0
        for b in range(self.batch):
            if self.falling[b] <= start:
                break
            total += min(self.falling[b], stop) - start
        return total
