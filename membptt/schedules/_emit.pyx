"""The emitters of schedules without recursion, and the meter that sums a schedule up.

Twins of `membptt.schedules.plan.plan` and `membptt.schedules.disk.disk_plan`. Rows are made in
chunks, so that a schedule never exists in memory as a whole; what waits for its turn is one frame
per saved state.
"""

import numpy as np
from libc.stdint cimport int64_t

from membptt.solver._solver cimport Rule

from membptt.schedules import actions

cdef enum:
    NODE, LEFT, AFTER_INTERNAL  # what a frame waits to do
    SAVES, AFTER_BLOCK, BACKWARDS  # the same, for a block of steps
    SWEEP, INTERVAL, GIVE_BACK  # of DiskEmitter, t0 the step before an interval
    FIELDS = 5                  # frame: kind, t0, t (or y), free, held

cdef int64_t ADVANCE = actions.ADVANCE
cdef int64_t SAVE_HIDDEN = actions.SAVE_HIDDEN
cdef int64_t SAVE_INTERNAL = actions.SAVE_INTERNAL
cdef int64_t RESTORE = actions.RESTORE
cdef int64_t BACKWARD = actions.BACKWARD
cdef int64_t FREE = actions.FREE
cdef int64_t EXPAND = actions.EXPAND
cdef int64_t STORE = actions.STORE
cdef int64_t PREFETCH = actions.PREFETCH
cdef int64_t FETCH = actions.FETCH
cdef int64_t DROP = actions.DROP

cdef int64_t MOST_ROWS = 3  # that one frame writes


cdef class Emitter:
    """Iterate over the row chunks of a rule's schedule.

    Parameters
    ----------
    rule : Rule
        Where to split.
    steps : int
        T.
    rows : int
        Most rows in a chunk.
    t0, free, held
        For a node that is a part of a schedule: as for `membptt.schedules.plan.plan`. By default
        the whole, with all that the rule has free.
    """

    cdef Rule rule
    cdef object frames
    cdef int64_t[:, ::1] stack
    cdef int64_t depth
    cdef int64_t rows
    cdef int64_t[:, ::1] chunk
    cdef int64_t filled

    def __init__(self, Rule rule, int64_t steps, int64_t rows=4096, int64_t t0=0, free=None,
                 bint held=False):
        self.rule = rule
        self.rows = max(rows, MOST_ROWS)
        self.frames = np.empty((64, FIELDS), np.int64)
        self.stack = self.frames
        self.depth = 0
        self.push(NODE, t0, steps, rule.free if free is None else free, held)

    def __iter__(self):
        return self

    def __next__(self):
        if self.depth == 0:
            raise StopIteration
        chunk = np.empty((self.rows, 3), np.int64)
        self.chunk = chunk
        self.filled = 0
        while self.depth and self.filled + MOST_ROWS <= self.rows:
            self.step()
        return chunk[:self.filled]

    cdef int push(self, int64_t kind, int64_t t0, int64_t t, int64_t free, bint held) except -1:
        if self.depth == self.stack.shape[0]:
            self.frames = np.concatenate([self.frames, np.empty_like(self.frames)])
            self.stack = self.frames
        cdef int64_t *frame = &self.stack[self.depth, 0]
        frame[0], frame[1], frame[2], frame[3], frame[4] = kind, t0, t, free, held
        self.depth += 1
        return 0

    cdef inline void write(self, int64_t code, int64_t start, int64_t stop) noexcept:
        cdef int64_t *row = &self.chunk[self.filled, 0]
        row[0], row[1], row[2] = code, start, stop
        self.filled += 1

    cdef int step(self) except -1:
        """Do what the frame on top waits to do."""
        self.depth -= 1
        cdef int64_t *frame = &self.stack[self.depth, 0]
        cdef int64_t kind = frame[0], t0 = frame[1], t = frame[2], free = frame[3]
        cdef bint held = frame[4]
        if kind == AFTER_INTERNAL:
            self.write(BACKWARD, t0 + t, 0)
            self.write(FREE, t0 + t, 1)
            if t > 1:
                self.push(LEFT, t0, t - 1, free, held)
            elif held:
                self.write(FREE, t0, 0)
            return 0
        if kind == SAVES:
            self.write(SAVE_HIDDEN, t0, t0 + 1)
            if t > 1:
                self.push(SAVES, t0 + 1, t - 1, 0, False)
            return 0
        if kind == AFTER_BLOCK:
            self.write(EXPAND, t0, t0 + t)
            return self.push(BACKWARDS, t0, t, 0, False)
        if kind == BACKWARDS:
            self.write(BACKWARD, t0 + t, 0)
            self.write(FREE, t0 + t, 1)
            if t > 1:
                self.push(BACKWARDS, t0, t - 1, 0, False)
            return 0
        if kind == LEFT:
            self.write(RESTORE, t0, 0)
        return self.node(t0, t, free, held)

    cdef int node(self, int64_t t0, int64_t t, int64_t free, bint held) except -1:
        cdef int64_t y = self.rule.split(t, free, held), q
        if y > t:
            q = y - t
            self.push(AFTER_BLOCK, t0, q, 0, False)
            if q < t:
                self.push(NODE, t0 + q, t - q, free - q * self.rule.hidden, True)
            return self.push(SAVES, t0, q if q < t else q - 1, 0, False)
        if y > 0:
            self.write(SAVE_HIDDEN, t0, t0 + y)
            self.push(LEFT, t0, y, free, held)
            self.push(NODE, t0 + y, t - y, free - self.rule.hidden, True)
            return 0
        if y == 0:
            self.write(FREE, t0, 0)
            free, held, y = free + self.rule.hidden, False, -1
        y = -y
        self.write(SAVE_INTERNAL, t0, t0 + y)
        self.push(AFTER_INTERNAL, t0, y, free, held)
        if y < t:
            self.push(NODE, t0 + y, t - y, free - self.rule.internal, False)
        return 0


cdef class DiskEmitter(Emitter):
    """Iterate over the row chunks of a schedule with hidden states on disk.

    Parameters
    ----------
    intervals : membptt.solver.disk.Intervals
        The plan.
    rows : int
        Most rows in a chunk.
    """

    cdef int64_t steps, interval, last  # last: the step before the last interval

    def __init__(self, intervals, int64_t rows=4096):
        super().__init__(intervals.rule, intervals.steps, rows)
        self.steps, self.interval = intervals.steps, intervals.interval
        self.last = (intervals.count - 1) * self.interval
        self.depth = 0
        self.push(SWEEP, 0, 0, 0, False)

    cdef int step(self) except -1:
        cdef int64_t *frame = &self.stack[self.depth - 1, 0]
        cdef int64_t kind = frame[0], t0 = frame[1], end = t0 + self.interval
        if kind < SWEEP:
            return Emitter.step(self)
        self.depth -= 1
        if kind == SWEEP:
            if end < self.last:
                self.write(ADVANCE, t0, end)
                self.write(STORE, end, 0)
                return self.push(SWEEP, end, 0, 0, False)
            if self.last:
                self.write(SAVE_HIDDEN, t0, end)
            return self.push(INTERVAL, self.last, 0, 0, False)
        if kind == INTERVAL:
            if t0 < self.last:
                self.write(FETCH if t0 else RESTORE, t0, 0)
            if t0 > self.interval:
                self.write(PREFETCH, t0 - self.interval, 0)
            self.push(GIVE_BACK, t0, 0, 0, False)
            return self.push(NODE, t0, min(end, self.steps) - t0, self.rule.free, False)
        if t0:
            self.write(FREE if t0 == self.last else DROP, t0, 0)
            self.push(INTERVAL, t0 - self.interval, 0, 0, False)
        return 0


cdef class Meter:
    """Sum a schedule up, chunk by chunk.

    Attributes
    ----------
    rows, forward_steps : int
        Actions, and steps that they run.
    expansions, expanded_steps : int
        Blocks that are expanded, and the steps in all of them.
    peak : int
        Most memory held at any action.
    """

    cdef readonly int64_t rows, forward_steps, expansions, expanded_steps, peak
    cdef int64_t held, hidden, internal
    cdef int64_t[::1] saved  # the steps of the hidden states that are saved, the latest last
    cdef int64_t[::1] above  # [depth]: internal states on top of so many hidden ones
    cdef int64_t depth

    def __init__(self, int64_t hidden, int64_t internal):
        self.hidden, self.internal = hidden, internal
        self.rows = self.forward_steps = self.expansions = self.expanded_steps = 0
        self.peak = self.held = self.depth = 0
        self.saved = np.empty(64, np.int64)
        self.above = np.zeros(65, np.int64)

    def feed(self, const int64_t[:, :] chunk, int64_t[:] used=None):
        """Count the rows of `chunk` in; write the memory held after each to `used`, if given."""
        cdef int64_t i, code
        for i in range(chunk.shape[0]):
            code = chunk[i, 0]
            if code <= SAVE_INTERNAL:
                self.forward_steps += chunk[i, 2] - chunk[i, 1]
            if code == SAVE_HIDDEN:
                self.save(chunk[i, 2])
            elif code == SAVE_INTERNAL:
                self.stack_internal(1)
            elif code == FREE and chunk[i, 2]:
                self.stack_internal(-1)
            elif code == FREE:
                self.give_back(1)
            elif code == EXPAND:
                self.expand(chunk[i, 1], chunk[i, 2])
            self.peak = max(self.peak, self.held)
            if used is not None:
                used[i] = self.held
        self.rows += chunk.shape[0]

    cdef int save(self, int64_t step) except -1:
        if self.depth == self.saved.shape[0]:
            self.saved = np.concatenate([self.saved, np.empty_like(self.saved)])
            self.above = np.concatenate([self.above, np.empty_like(self.above)])
        self.saved[self.depth] = step
        self.depth += 1
        self.above[self.depth] = 0
        self.held += self.hidden
        return 0

    cdef void stack_internal(self, int64_t count) noexcept:
        self.above[self.depth] = max(0, self.above[self.depth] + count)
        self.held += count * self.internal

    cdef void give_back(self, int64_t count) noexcept:
        # Two lanes give back in another order, and what breaks the rules is not refused here.
        self.depth = max(0, self.depth - count)
        self.held -= count * self.hidden

    cdef void expand(self, int64_t start, int64_t stop) noexcept:
        """The hidden states before the block's steps make way for its internal states.

        The one before the block stays where an internal state lies on it: its room is not on top.
        """
        self.expansions += 1
        self.expanded_steps += stop - start
        self.give_back(max(0, stop - start - 1))
        if self.depth and not self.above[self.depth] and self.saved[self.depth - 1] == start:
            self.give_back(1)
        self.stack_internal(stop - start)
