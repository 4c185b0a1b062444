"""Steps of inputs or targets on a device: sent in blocks from the host, where they stay.

A window is never on the device as a whole. A block that is asked for goes through pinned memory, so
that the copy is queued behind the work that still reads the block before, and the host does not
wait for it. The last two blocks are kept: a schedule goes down a window and runs parts of it again.
"""

import math

import numpy as np

from membptt.sequences.blocks import Blocks

BLOCK_NBYTES = 2**20
KEPT = 2


class Feed:
    """Serves ``feed[index]``, a step of a host array or a reader, as an array of the device.

    Whole numbers are int32 there, whatever they are on the host.

    Parameters
    ----------
    source : numpy.ndarray or Blocks
        [T, B, ...].
    xp : module
        Of the device's arrays.

    Attributes
    ----------
    sent_nbytes : int
        Bytes that went to the device so far.
    """

    def __init__(self, source, xp):
        self.xp = xp
        self.sent_nbytes = 0
        self.shape = self.dtype = None
        self.bind(source)

    def bind(self, source):
        """Serve another window."""
        self.filled = {}  # block number -> (slot, steps that are there), the last used last
        self.extend(source)

    def extend(self, source):
        """Serve the same window with more steps behind it."""
        self.source = source
        dtype = np.dtype(np.int32) if source.dtype.kind in "iu" else source.dtype.newbyteorder("=")
        if (source.shape[1:], dtype) != (self.shape, self.dtype):
            self.shape, self.dtype = source.shape[1:], dtype
            self.step_nbytes = math.prod(self.shape) * dtype.itemsize
            self.capacity = 0  # steps of a block
        most = max(1, BLOCK_NBYTES // self.step_nbytes)
        if min(most, len(source)) > self.capacity:
            self.capacity = min(most, max(len(source), 2 * self.capacity))
            self.filled = {}
            self.slots = []  # made when they are needed: a head may be bound only to be checked

    @property
    def nbytes(self):
        """The bytes of the blocks on the device, once all are needed."""
        blocks = -(-len(self.source) // self.capacity)
        return min(KEPT, blocks) * self.capacity * self.step_nbytes

    def __getitem__(self, index):
        number, place = divmod(index, self.capacity)
        slot, steps = self.filled.pop(number, (None, 0))
        if place >= steps:
            slot = self.free_slot() if slot is None else slot
            steps = self.fill(slot, number * self.capacity, steps)
        self.filled[number] = slot, steps
        return slot.block[place]

    def free_slot(self):
        """Return a slot whose block may be overwritten."""
        if len(self.filled) < KEPT:
            taken = [slot for slot, _ in self.filled.values()]
            for slot in self.slots:
                if slot not in taken:
                    return slot
            self.slots.append(Slot(self.xp, (self.capacity, *self.shape), self.dtype))
            return self.slots[-1]
        oldest = next(iter(self.filled))
        return self.filled.pop(oldest)[0]

    def fill(self, slot, start, there):
        """Send what a block lacks, `there` steps being there; return how many there are then."""
        stop = min(self.capacity, len(self.source) - start)
        if isinstance(self.source, Blocks):
            steps = np.empty((stop - there, *self.shape), self.source.dtype)
            self.source.read(start + there, steps)
        else:
            steps = self.source[start + there : start + stop]
        slot.send(steps, there)
        self.sent_nbytes += steps.size * self.dtype.itemsize
        return stop


class Slot:
    """One block on the device, and the pinned memory that it comes from."""

    def __init__(self, xp, shape, dtype):
        self.cuda = xp.cuda
        self.block = xp.empty(shape, dtype)
        self.memory = xp.cuda.alloc_pinned_memory(self.block.nbytes)
        self.pinned = np.frombuffer(self.memory, dtype, self.block.size).reshape(shape)
        self.left = xp.cuda.Event(disable_timing=True)  # the copy has left the pinned memory

    def send(self, steps, at):
        """Copy `steps` to the block, from its step `at` on."""
        self.left.synchronize()
        stream = self.cuda.get_current_stream()
        part = slice(at, at + len(steps))
        np.copyto(self.pinned[part], steps, casting="unsafe")  # whole numbers were checked
        self.block[part].set(self.pinned[part], stream=stream)
        self.left.record(stream)
