"""Look-ahead: one thread back-propagates a segment while another recomputes the one before it.

Segments are numbered j = 1 ... k from the last in time to the first (membptt.solver.lookahead has
the plan). The first sweep keeps the hidden state before each of the segments 2 ... k - 1 at the
arena's left end, and the internal states of segment 1 in slots at its right end. Then two lanes
run:

    ahead    for j = 2 ... k: restart at segment j's begin, give its hidden state back, run its
             steps, each internal state into a free slot; with none, help the other lane
    back     for j = 1 ... k: wait until segment j is whole; back-propagate its steps, each slot
             free again at once

Slots that the backward lane frees go through a ring to the other lane. The two lanes touch disjoint
parts of the chain, and every kernel sees the same numbers as always: no bit differs from full BPTT.
A forward step takes less time than a backward one, so the lane ahead has time left; then it
takes shares of the backward lane's phases (kernels/team.h): of the weight gradients always, of the
others where a step is large enough to share.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from membptt.kernels._chain cimport INITIAL, SAVED, Chain
from membptt.kernels.kernels cimport team, team_close, team_help, team_new

from membptt.schedules import actions

cdef int64_t ADVANCE = actions.ADVANCE
cdef int64_t SAVE_HIDDEN = actions.SAVE_HIDDEN
cdef int64_t SAVE_INTERNAL = actions.SAVE_INTERNAL
cdef int64_t RESTORE = actions.RESTORE
cdef int64_t BACKWARD = actions.BACKWARD
cdef int64_t FREE = actions.FREE

cdef extern from "lanes.h" nogil:
    ctypedef struct lane_counter:
        pass
    ctypedef void *(*lane_function)(void *) noexcept nogil
    void lane_set(lane_counter *, long)
    long lane_get(lane_counter *)
    long lane_add(lane_counter *, long)
    void lane_wait(lane_counter *, long)
    void team_idle(long *)
    void *lane_start(lane_function, void *)
    void lane_join(void *)


cdef class Lanes:
    """The segments, the slots and the progress of both lanes."""

    cdef Chain chain
    cdef int64_t hidden, internal, nbytes, segments, forward_steps, peak
    cdef int64_t[::1] begins  # of segment j at j; the step before its first
    cdef int64_t[::1] slot_of  # step modulo its length -> slot
    cdef int64_t[::1] ring  # slots that the backward lane has freed
    cdef int64_t[::1] spare  # slots that the forward lane has in hand
    cdef int64_t spares, given, taken  # taken: from the ring
    cdef lane_counter ready  # segments that are whole
    cdef lane_counter freed  # slots that went into the ring
    cdef lane_counter used  # bytes of saved states
    cdef lane_counter halt  # 1 when the backward lane has failed
    cdef lane_counter recorded  # rows of the trace
    cdef team *helpers  # of the backward lane: the other one, when it waits
    cdef bint recording
    cdef int64_t[:, ::1] trace
    cdef object error  # what stopped the forward lane, such as inputs that cannot be read

    def __init__(self, Chain chain, segments, hidden_nbytes, internal_nbytes, record):
        self.chain = chain
        self.begins = np.ascontiguousarray(segments.begins, np.int64)
        self.segments = len(segments.lengths)
        self.hidden = hidden_nbytes
        self.internal = internal_nbytes
        self.nbytes = chain.arena_array.nbytes
        most = self.nbytes // internal_nbytes
        self.slot_of = np.zeros(2 * most + 2, np.int64)
        self.ring = np.zeros(most + 1, np.int64)
        self.spare = np.zeros(most + 1, np.int64)
        self.recording = record
        if record:
            rows = segments.forward_steps + 2 * segments.steps + 3 * self.segments
            self.trace = np.zeros((rows, 4), np.int64)

    cdef int64_t kept(self, int64_t j) noexcept nogil:
        """Return how many hidden states are kept once segment j has been restarted."""
        return max(0, self.segments - 1 - j)

    cdef void give_slots(self, int64_t j) noexcept nogil:
        """Put the slots at hand for which there is room once segment j has been restarted."""
        cdef int64_t room = (self.nbytes - self.kept(j) * self.hidden) // self.internal
        while self.given < room:
            self.spare[self.spares] = self.given
            self.spares += 1
            self.given += 1

    cdef int64_t take_slot(self) noexcept nogil:
        """Return a free slot; wait for the backward lane if there is none; -1 if it has failed."""
        cdef int64_t slot
        if self.spares:
            self.spares -= 1
            return self.spare[self.spares]
        self.help_until(&self.freed, self.taken + 1)
        if lane_get(&self.halt):
            return -1
        slot = self.ring[self.taken % self.ring.shape[0]]
        self.taken += 1
        return slot

    cdef void help_until(self, lane_counter *counter, int64_t value) noexcept nogil:
        """Wait for the counter; meanwhile, take shares of the backward lane's phases."""
        cdef long idle = 0
        while lane_get(counter) < value:
            if team_help(self.helpers):
                idle = 0
            else:
                team_idle(&idle)

    cdef int64_t offset(self, int64_t slot) noexcept nogil:
        return self.nbytes - (slot + 1) * self.internal

    cdef void saved(self, int64_t nbytes) noexcept nogil:
        """Count bytes in, in the forward lane: only there can the peak rise."""
        cdef int64_t now = lane_add(&self.used, nbytes)
        if now > self.peak:
            self.peak = now

    cdef void record(self, int64_t code, int64_t start, int64_t stop) noexcept nogil:
        """Write a row of the trace: after a state is saved, before one is given back."""
        cdef int64_t row
        if not self.recording:
            return
        row = lane_add(&self.recorded, 1) - 1
        self.trace[row, 0] = code
        self.trace[row, 1] = start
        self.trace[row, 2] = stop

    cdef int run_segment(self, int64_t j) except -1 nogil:
        """Run the steps of segment j, each internal state into a slot, as far as there are any."""
        cdef int64_t step, slot
        self.chain.horizon = self.begins[j - 1]
        for step in range(self.begins[j] + 1, self.begins[j - 1] + 1):
            slot = self.take_slot()
            if slot < 0:
                return 0
            self.saved(self.internal)
            self.slot_of[step % self.slot_of.shape[0]] = slot
            self.chain._forward(step - 1, step, self.offset(slot))
            self.forward_steps += 1
            self.record(SAVE_INTERNAL, step - 1, step)
        lane_set(&self.ready, j)
        return 0

    cdef int sweep(self) except -1 nogil:
        """Run from the initial state to the end; keep what the segments need."""
        cdef int64_t j
        self.chain._restart(INITIAL, 0, 0)
        for j in range(self.segments, 1, -1):
            with gil:
                PyErr_CheckSignals()
            self.chain.horizon = self.begins[j - 1]
            self.chain._forward(self.begins[j], self.begins[j - 1], -1)
            self.forward_steps += self.begins[j - 1] - self.begins[j]
            if j > 2:  # the begin of segment j - 1; segment 1 is stored at once
                self.saved(self.hidden)
                self.chain._save_hidden((self.segments - j) * self.hidden)
            self.record(SAVE_HIDDEN if j > 2 else ADVANCE, self.begins[j], self.begins[j - 1])
        self.give_slots(1)
        return self.run_segment(1)

    cdef int recompute(self, int64_t j) except -1 nogil:
        """Restart at the begin of segment j, give its hidden state back, run its steps."""
        self.record(RESTORE, self.begins[j], 0)
        if j == self.segments:
            self.chain._restart(INITIAL, 0, 0)
        else:
            self.chain._restart(SAVED, self.kept(j) * self.hidden, self.begins[j])
            self.record(FREE, self.begins[j], 0)
            lane_add(&self.used, -self.hidden)
        self.give_slots(j)
        return self.run_segment(j)

    cdef int back(self, int64_t j) except -1 nogil:
        """Back-propagate the steps of segment j and free their slots."""
        cdef int64_t step, slot
        for step in range(self.begins[j - 1], self.begins[j], -1):
            slot = self.slot_of[step % self.slot_of.shape[0]]
            self.chain._backward(step, self.offset(slot))
            self.record(BACKWARD, step, 0)
            self.record(FREE, step, 1)
            lane_add(&self.used, -self.internal)
            self.ring[lane_get(&self.freed) % self.ring.shape[0]] = slot
            lane_add(&self.freed, 1)
        return 0

    cdef int ahead(self) except -1 nogil:
        """Recompute every segment but the first; then help until the other lane has ended."""
        cdef int64_t j
        for j in range(2, self.segments + 1):
            self.recompute(j)
            if lane_get(&self.halt):
                return 0
        self.help_until(&self.halt, 1)
        return 0

    cdef int back_lane(self, bint alone) except -1 nogil:
        """Back-propagate every segment; alone, recompute each first."""
        cdef int64_t j
        for j in range(1, self.segments + 1):
            with gil:
                PyErr_CheckSignals()
            if alone and j > 1:
                self.recompute(j)
            lane_wait(&self.ready, j)
            if lane_get(&self.ready) > self.segments:  # the other lane has failed
                return 0
            self.back(j)
        return 0

    def finished_trace(self):
        """Return the trace with the bytes in use after each action."""
        rows = np.asarray(self.trace)[:lane_get(&self.recorded)]
        size = np.where(
            (rows[:, 0] == SAVE_INTERNAL) | ((rows[:, 0] == FREE) & (rows[:, 2] == 1)),
            self.internal, self.hidden)
        sign = np.isin(rows[:, 0], (SAVE_HIDDEN, SAVE_INTERNAL)) * 1 - (rows[:, 0] == FREE)
        rows[:, 3] = np.cumsum(sign * size)
        return rows

    cdef void stop(self) noexcept nogil:
        """Let the other lane come to its end, whatever it waits for."""
        lane_set(&self.halt, 1)
        lane_set(&self.freed, 1 << 62)


cdef void *ahead(void *context) noexcept with gil:
    cdef Lanes lanes = <Lanes>context
    try:
        with nogil:
            lanes.ahead()
    except BaseException as error:
        lanes.error = error
        lane_set(&lanes.ready, lanes.segments + 1)
    return NULL


def run(Chain chain, segments, hidden_nbytes, internal_nbytes, threads=2, share_phases=False,
        record=False):
    """Execute the plan; with one thread, the lanes take turns segment by segment.

    Parameters
    ----------
    chain : Chain
        After `begin`; its team is closed when the first sweep is done.
    segments : membptt.solver.lookahead.Segments
        The plan.
    hidden_nbytes, internal_nbytes : int
        Sizes of the two kinds of state in the arena.
    threads : int
        1 or 2.
    share_phases : bool
        Whether a step is large enough for both threads to share its phases.
    record : bool
        Keep what ran.

    Returns
    -------
    forward_steps, backward_steps, peak_bytes : int
    trace : numpy.ndarray or None
        int64 [actions, 4]: code, start, stop, bytes in use after the action. The order of the two
        lanes is one in which it could have happened on one machine.
    expanded_steps : int
        None here: 0.
    """
    cdef Lanes lanes = Lanes(chain, segments, hidden_nbytes, internal_nbytes, record)
    cdef void *thread = NULL
    with nogil:
        lanes.sweep()
    chain.close_team()
    if threads > 1 and lanes.segments > 1:
        lanes.helpers = team_new(2)
        chain.flush_team = lanes.helpers
        chain.backward_team = lanes.helpers if share_phases else NULL
        thread = lane_start(ahead, <void *>lanes)
    try:
        with nogil:
            lanes.back_lane(thread == NULL)
    finally:
        lanes.stop()
        if thread != NULL:
            with nogil:
                lane_join(thread)
        chain.backward_team = chain.flush_team = NULL
        team_close(lanes.helpers)
    if lanes.error is not None:
        raise lanes.error
    trace = lanes.finished_trace() if record else None
    return lanes.forward_steps, chain.steps, lanes.peak, trace, 0
