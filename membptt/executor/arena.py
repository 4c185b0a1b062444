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
    reserved : int
        Bytes at the end that belong to the buffers of slow storage; they count as used.
    xp : module
        Whose array the buffer is: numpy, or cupy for one on a device.

    Attributes
    ----------
    buffer : numpy.ndarray or cupy.ndarray
        uint8, `nbytes` long.
    used, peak : int
        Bytes in use now, and at most since `clear`.
    """

    def __init__(self, nbytes, hidden_nbytes, internal_nbytes, reserved=0, xp=np):
        self.buffer = xp.zeros(nbytes, dtype=np.uint8)
        self.sizes = (hidden_nbytes, internal_nbytes)
        self.reserved = reserved
        self.clear()

    def clear(self):
        """Forget every state."""
        self.stack = []  # (kind, step, offset)
        self.used = self.peak = self.reserved

    def size(self, kind, step):
        """Return the bytes of this state: those of its kind."""
        return self.sizes[kind]

    def push(self, kind, step):
        """Reserve room for a state on top of the stack and return its offset in bytes.

        Raises
        ------
        MemoryError
            If the state would end beyond the buffer.
        """
        at, size = self.used - self.reserved, self.size(kind, step)
        if self.used + size > len(self.buffer):
            raise MemoryError(
                f"the state of step {step} needs {size} bytes, "
                f"{len(self.buffer) - self.used} of the arena's {len(self.buffer)} are free"
            )
        self.stack.append((kind, step, at))
        self.used += size
        self.peak = max(self.peak, self.used)
        return at

    def find(self, kind, step):
        """Return the offset of this state, which must be on top of the stack."""
        if not self.stack or self.stack[-1][:2] != (kind, step):
            raise LookupError(f"the state of step {step} is not on top of the stack")
        return self.stack[-1][2]

    def pop(self, kind, step):
        """Give the top state back; it must be this one."""
        self.used = self.find(kind, step) + self.reserved
        self.stack.pop()


class PackedArena(Arena):
    """An arena for a batch of rows of several lengths, whose states shrink as rows end.

    Parameters
    ----------
    arena : Arena
        Whose buffer it is for this run.
    cell : membptt.Cell
    lengths : membptt.sequences.lengths.Lengths
    """

    def __init__(self, arena, cell, lengths):
        self.buffer, self.sizes, self.reserved = arena.buffer, arena.sizes, arena.reserved
        self.cell, self.lengths = cell, lengths
        self.clear()

    def size(self, kind, step):
        """Return the bytes of this state: of the rows that go on, or that ran in the step."""
        if kind == HIDDEN:
            return self.cell.hidden_nbytes(self.lengths.live(step + 1))
        return self.cell.internal_nbytes(self.lengths.live(step))


class SlotArena(Arena):
    """An arena for look-ahead: hidden states from the left, internal states in slots at the right.

    Hidden states are given back in the reverse order of saving; internal states in any order, into
    slots that all have one size, so that nothing fragments here either.
    """

    def clear(self):
        """Forget every state."""
        super().clear()
        self.hidden_used = 0

    def push(self, kind, step):
        """Reserve room for a state and return its offset; see `Arena.push`."""
        size = self.sizes[kind]
        taken = {at for saved, _, at in self.stack if saved == INTERNAL}
        if kind == INTERNAL:
            lowest = len(self.buffer) - size
            while lowest in taken:
                lowest -= size
            at, fits = lowest, lowest >= self.hidden_used
        else:
            at = self.hidden_used
            fits = at + size <= min(taken, default=len(self.buffer))
        if not fits:
            raise MemoryError(
                f"the state of step {step} needs {size} bytes, {self.used} of the arena's "
                f"{len(self.buffer)} are in use"
            )
        if kind == HIDDEN:
            self.hidden_used += size
        self.stack.append((kind, step, at))
        self.used += size
        self.peak = max(self.peak, self.used)
        return at

    def find(self, kind, step):
        """Return the offset of this state, wherever it is."""
        for saved, of, at in self.stack:
            if (saved, of) == (kind, step):
                return at
        raise LookupError(f"the state of step {step} is not saved")

    def pop(self, kind, step):
        """Give this state back."""
        at = self.find(kind, step)
        if kind == HIDDEN:
            self.hidden_used = at
        self.stack.remove((kind, step, at))
        self.used -= self.sizes[kind]


class HiddenSlots(Arena):
    """An arena for streams: hidden states in slots of one size, given back in any order.

    Beside the slots there is room for one internal state. While the stream runs there is none; when
    it has ended, `stacked` gives the arena as a stack that goes on from there.
    """

    def clear(self):
        """Forget every state."""
        super().clear()
        hidden, internal = self.sizes
        count = max(0, (len(self.buffer) - internal) // hidden)
        self.free = [slot * hidden for slot in reversed(range(count))]

    def push(self, kind, step):
        """Reserve a slot for a hidden state and return its offset; see `Arena.push`."""
        if kind == INTERNAL or not self.free:
            raise MemoryError(f"no slot is free for the state of step {step}")
        at = self.free.pop()
        self.stack.append((kind, step, at))
        self.used += self.sizes[kind]
        self.peak = max(self.peak, self.used)
        return at

    find = SlotArena.find

    def pop(self, kind, step):
        """Give this state back."""
        at = self.find(kind, step)
        self.stack.remove((kind, step, at))
        self.free.append(at)
        self.used -= self.sizes[kind]

    def stacked(self):
        """Return an `Arena` over the same buffer, the states side by side in the order of steps.

        They change places in pairs, through a copy of one state.
        """
        size = self.sizes[HIDDEN]
        places = {step: at for _, step, at in self.stack}
        owners = {at: step for step, at in places.items()}
        arena = Arena(0, *self.sizes)
        arena.buffer = self.buffer
        for step in sorted(places):
            here, target = places[step], arena.push(HIDDEN, step)
            if here == target:
                continue
            kept = self.buffer[target : target + size].copy()
            self.buffer[target : target + size] = self.buffer[here : here + size]
            self.buffer[here : here + size] = kept
            other = owners.pop(target, None)
            if other is not None:
                places[other], owners[here] = here, other
        return arena
