"""Checksums of every hidden state of a run: does a step that is run again give the same?

A debug tool for steps and readers of the user's own. A step function that draws random numbers, or
uses something that has changed since, makes a recomputation differ from the first run, and the
gradients wrong in silence. Eight bytes a step.
"""

import numpy as np

from libc.stdint cimport uint64_t

from membptt.kernels._room cimport address

from membptt.arrays import to_host

cdef extern from "checksum.h" nogil:
    uint64_t state_checksum(const char *data, long nbytes, long step)


cdef class Sums:
    """The checksums of the hidden states after 1 ... T steps, each kept when it is first seen."""

    def __init__(self, steps):
        self.array = np.zeros(steps + 1, np.uint64)
        self.sums = <uint64_t *>address(self.array)

    def check(self, long step, state):
        """Raise a ValueError unless the arrays of the state after `step` are those of before."""
        cdef bytes data = b"".join(np.ascontiguousarray(to_host(a)).tobytes() for a in state)
        self.check_at(step, data, len(data))

    cdef int check_at(self, long step, const char *data, long nbytes) except -1 nogil:
        """Do what `check` does, on a state that lies in one piece."""
        cdef uint64_t found = state_checksum(data, nbytes, step) | 1  # 0: not seen yet
        if self.sums[step] == 0:
            self.sums[step] = found
        elif self.sums[step] != found:
            with gil:
                raise ValueError(
                    f"step {step} gave another hidden state when it was run again; a step may "
                    "depend on nothing but the parameters, its inputs and the state before it, and "
                    "these must not change during a run")
        return 0
