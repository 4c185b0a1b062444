"""Inputs and targets as compiled code reads them: where they lie, or through two blocks.

An array in C order and in the machine's byte order is read where it lies, memory maps too. Anything
else goes through buffers of constant size in the workspace: arrays with strides, and readers
(membptt.sequences.blocks), whose blocks are read when they are needed, and again where steps are
run again.
"""

import threading

import numpy as np

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from membptt.kernels._live cimport Live
from membptt.kernels._room cimport Room, address

from membptt.sequences.blocks import Blocks


cdef class Steps:
    """The rows of a sequence [T, B, ...], one step's after the other.

    Parameters
    ----------
    room : Room
        The workspace that the blocks belong to.
    block_steps : int
        Steps of a block; blocks begin at its multiples.
    """

    def __init__(self, Room room, long block_steps):
        self.room = room
        self.block_steps = block_steps
        self.lock = threading.Lock()  # one reader at a time loads a block

    def begin(self, name, source, Live live):
        """Bind a sequence, whose rows are wanted as `live` says; forget the blocks before."""
        cdef int i
        self.live = live
        self.source = source
        self.steps = source.shape[0]
        self.itemsize = source.dtype.itemsize
        self.signed = source.dtype.kind == "i"
        self.row_nbytes = source.nbytes // self.steps
        in_place = isinstance(source, np.ndarray) and source.flags.c_contiguous \
            and source.flags.aligned and source.dtype.isnative
        for i in range(2):
            self.data[i] = <const char *>address(source) if in_place else NULL
            self.first[i] = 0
            self.last[i] = self.steps if in_place else 0
            self.begins[i] = self.slot_of[i] = -1
        if not in_place:
            blocks = isinstance(source, Blocks)
            self.blocks = source if blocks else Blocks(name, source, source.dtype)
            self._take_views()
        if live.reordered and self.ordered_nbytes < self.row_nbytes:
            self.ordered = <char *>self.room.take(2 * self.row_nbytes)
            self.ordered_nbytes = self.row_nbytes

    def _take_views(self):
        """Point `views` to the two blocks; take room for them where there is not enough yet."""
        cdef long block = self.row_nbytes * self.block_steps
        # Tokens of any width fit, so that another dtype in the next run takes no more.
        cdef long nbytes = max(block, block // self.itemsize * <long>sizeof(int64_t))
        cdef long i
        if nbytes > self.room_nbytes:
            self.buffer = <char *>self.room.take(2 * nbytes)
            self.room_nbytes = nbytes
        shape = (self.block_steps, *self.blocks.shape[1:])
        self.views = []
        for i in range(2):
            place = <char[:block]>(self.buffer + i * self.room_nbytes)
            self.views.append(np.frombuffer(place, self.blocks.dtype).reshape(shape))

    cdef const char *row(self, long step, int reader) except NULL nogil:
        """Return where the row of `step` lies, and those behind it up to step `last[reader]`.

        It stays there until the same reader asks for another. Where rows have lengths it is the
        live part of this one alone, in their order.
        """
        cdef const char *given
        if not self.first[reader] < step <= self.last[reader]:
            self.load(step, reader)
        given = self.data[reader] + (step - 1 - self.first[reader]) * self.row_nbytes
        return self.put_in_order(given, step, reader) if self.live.reordered else given

    cdef const char *put_in_order(self, const char *given, long step, int reader) noexcept nogil:
        """Copy the live rows of a step to where they stand in order."""
        cdef char *out = self.ordered + reader * self.row_nbytes
        cdef long b, nbytes = self.row_nbytes // self.live.batch
        for b in range(self.live.rows(step)):
            memcpy(out + b * nbytes, given + self.live.order[b] * nbytes, nbytes)
        return out

    cdef int load(self, long step, int reader) except -1 nogil:
        """Have the reader stand in the block of `step`."""
        cdef long begin = (step - 1) // self.block_steps * self.block_steps
        cdef long end = min(begin + self.block_steps, self.steps)
        cdef int slot, kept
        with gil, self.lock:
            if self.begins[0] == begin:
                slot = 0
            elif self.begins[1] == begin:
                slot = 1
            else:
                # The other reader keeps its block; without one, the block before this is kept.
                kept = self.slot_of[reader if self.slot_of[1 - reader] < 0 else 1 - reader]
                slot = 1 if kept == 0 else 0
                self.begins[slot] = -1
                self.blocks.read(begin, self.views[slot][:end - begin])
                self.begins[slot] = begin
            self.slot_of[reader] = slot
            self.data[reader] = self.buffer + slot * self.room_nbytes
            self.first[reader] = begin
            self.last[reader] = end
        return 0

    cdef void integers(self, const char *row, long count, int64_t *out) noexcept nogil:
        """Copy `count` whole numbers, of whatever width they are."""
        cdef long i
        if self.itemsize == 8:
            for i in range(count):
                out[i] = (<const int64_t *>row)[i]
        elif self.itemsize == 4:
            for i in range(count):
                out[i] = (<const int32_t *>row)[i] if self.signed else (<const uint32_t *>row)[i]
        elif self.itemsize == 2:
            for i in range(count):
                out[i] = (<const int16_t *>row)[i] if self.signed else (<const uint16_t *>row)[i]
        else:
            for i in range(count):
                out[i] = (<const int8_t *>row)[i] if self.signed else (<const uint8_t *>row)[i]
