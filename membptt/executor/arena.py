"""The arena: one flat buffer of exactly the budget's bytes, used as a stack of saved states.

States are pushed from left to right in time and popped from right to left, so a pointer that moves
up and down is all the allocation there is: no fragmentation, no byte over the budget.
"""

import numpy as np

HIDDEN = 0
INTERNAL = 1


class Arena:
    """A stack of saved states in one buffer.

    Parameters
    ----------
    nbytes : int
        Size of the buffer; it is allocated once.
    hidden_nbytes, internal_nbytes : int
        Sizes of the two kinds of state.

    Attributes
    ----------
    buffer : numpy.ndarray
        uint8, `nbytes` long.
    used, peak : int
        Bytes in use now, and at most since `clear`.
    """

    def __init__(self, nbytes, hidden_nbytes, internal_nbytes):
        self.buffer = np.zeros(nbytes, np.uint8)
        self.sizes = (hidden_nbytes, internal_nbytes)
        self.clear()

    def clear(self):
        """Forget every state."""
        self.stack = []  # (kind, step, offset)
        self.used = self.peak = 0

    def push(self, kind, step):
        """Reserve room for a state on top of the stack and return its offset in bytes.

        Raises
        ------
        MemoryError
            If the state would end beyond the buffer.
        """
        at = self.used
        if at + self.sizes[kind] > len(self.buffer):
            raise MemoryError(
                f"the state of step {step} needs {self.sizes[kind]} bytes, "
                f"{len(self.buffer) - at} of the arena's {len(self.buffer)} are free"
            )
        self.stack.append((kind, step, at))
        self.used += self.sizes[kind]
        self.peak = max(self.peak, self.used)
        return at

    def pop(self, kind, step):
        """Give the top state back; it must be this one."""
        if not self.stack or self.stack[-1][:2] != (kind, step):
            raise LookupError(f"the state of step {step} is not on top of the stack")
        self.used = self.stack.pop()[2]
