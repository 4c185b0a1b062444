"""Executes a schedule's rows over an arena without the GIL: the twin of readable.run.

Rows come in chunks [n, 3] of code, start, stop (membptt.schedules.actions has the codes), so that a
schedule of millions of actions is never in memory as a whole. A Ctrl-C is served between any two
actions, and within a long advance.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from membptt.executor._spill cimport Spill
from membptt.kernels._chain cimport ENTERING, INITIAL, LEAVING, SAVED, Chain

from membptt.chains import plain
from membptt.schedules import actions

cdef enum:
    ADVANCE = 0
    SAVE_HIDDEN = 1
    SAVE_INTERNAL = 2
    RESTORE = 3
    BACKWARD = 4
    FREE = 5
    STORE = 6
    PREFETCH = 7
    FETCH = 8
    DROP = 9
    EXPAND = 10

    HIDDEN = 0
    INTERNAL = 1

    STRETCH = 64  # steps of an advance at once
    SOON = 5_000_000  # nanoseconds between two looks at the clock: more is seldom enough,
    LATE = 50_000_000  # and less is often enough

cdef enum Fault:
    NONE = 0
    OVER_BUDGET = 1
    NOT_ON_TOP = 2
    NOT_SAVED = 3
    UNKNOWN_CODE = 4
    WRONG_PLACE = 5
    WRONG_ORDER = 6
    DISK_FAILED = 7
    NOT_BUFFERED = 8

assert (ADVANCE, SAVE_HIDDEN, SAVE_INTERNAL, RESTORE, BACKWARD, FREE) == (
    actions.ADVANCE, actions.SAVE_HIDDEN, actions.SAVE_INTERNAL, actions.RESTORE,
    actions.BACKWARD, actions.FREE)
assert (STORE, PREFETCH, FETCH, DROP, EXPAND) == (
    actions.STORE, actions.PREFETCH, actions.FETCH, actions.DROP, actions.EXPAND)
assert (INITIAL, SAVED, LEAVING, ENTERING) == (
    plain.INITIAL, plain.SAVED, plain.LEAVING, plain.ENTERING)


cdef class Machine:
    """The stack of saved states, the counts, and one action after the other."""

    cdef Chain chain
    cdef Spill spill  # None without slow storage
    cdef int64_t[2] size
    cdef int64_t nbytes, used, peak, depth, forward_steps, backward_steps, expanded_steps
    cdef int64_t unattended, pace  # steps since the clock was read, and after how many it is
    cdef int64_t attended  # when signals were last served, in nanoseconds
    cdef int64_t place  # the working hidden state is that after step `place`; -1 after an expansion
    cdef int64_t[:, ::1] stack  # kind, step, offset

    def __init__(self, Chain chain, hidden_nbytes, internal_nbytes, Spill spill, reserved):
        self.chain = chain
        self.spill = spill
        self.pace = 1
        self.size[HIDDEN] = hidden_nbytes
        self.size[INTERNAL] = internal_nbytes
        self.nbytes = chain.arena_array.nbytes - reserved  # for the buffers of slow storage
        smallest = min(hidden_nbytes, internal_nbytes)
        if chain.live.lengths is not None:  # one row may be left
            smallest = min(chain.hidden_row, chain.internal_row)
        # No more than one state of each kind and step is ever wanted.
        deepest = min(self.nbytes // smallest, 2 * chain.steps) + 1
        self.stack = np.zeros((deepest, 3), np.int64)

    cdef int64_t size_of(self, int64_t kind, int64_t step) noexcept nogil:
        """Return the bytes of a state: of the rows that go on, or that ran in the step."""
        if self.chain.live.lengths is None:
            return self.size[kind]
        if kind == HIDDEN:
            return self.chain.hidden_row * self.chain.live.rows(step + 1)
        return self.chain.internal_row * self.chain.live.rows(step)

    cdef int64_t push(self, int64_t kind, int64_t step) noexcept nogil:
        """Return the offset of a new state on top, or -1 if it would end beyond the arena."""
        cdef int64_t at = self.used, size = self.size_of(kind, step)
        if at + size > self.nbytes or self.depth == self.stack.shape[0]:
            return -1
        self.stack[self.depth, 0] = kind
        self.stack[self.depth, 1] = step
        self.stack[self.depth, 2] = at
        self.depth += 1
        self.used = at + size
        self.peak = max(self.peak, self.used)
        return at

    cdef bint on_top(self, int64_t kind, int64_t step) noexcept nogil:
        return (self.depth > 0 and self.stack[self.depth - 1, 0] == kind
                and self.stack[self.depth - 1, 1] == step)

    cdef int find(self, int64_t step, int64_t *at) noexcept nogil:
        """Return where the hidden state after `step` is had from, as for `Chain.restart`, or -1."""
        cdef int64_t i, saved
        for i in range(self.depth - 1, -1, -1):
            saved = self.stack[i, 1]
            at[0] = self.stack[i, 2]
            if saved == step:
                return LEAVING if self.stack[i, 0] == INTERNAL else SAVED
            if self.stack[i, 0] == INTERNAL and saved == step + 1:
                return ENTERING
        at[0] = 0
        if self.spill is not None:
            at[0] = self.spill.find_at(step)
            if at[0] >= 0:
                return SAVED
        return INITIAL if step == 0 else -1

    cdef int restore(self, int64_t step) noexcept nogil:
        """Restart from the topmost state that gives the hidden state after `step`."""
        cdef int64_t at
        cdef int source = self.find(step, &at)
        if source < 0:
            return NOT_SAVED
        self.chain._restart(source, at, step)
        self.place = step
        return NONE

    cdef int expand(self, int64_t start, int64_t stop) except -1 nogil:
        """Put internal states in the places of the hidden states before them; see readable.py."""
        cdef int64_t at, step, hidden_at, internal_at
        cdef int source = self.find(start, &at)
        if not start < stop or stop != self.chain.steps - self.backward_steps:
            return WRONG_ORDER
        if source < 0:
            return NOT_SAVED
        for step in range(stop - 1, start, -1):
            if not self.on_top(HIDDEN, step):
                return NOT_ON_TOP
            self.pop()
        hidden_at = internal_at = self.used
        if self.on_top(HIDDEN, start):
            self.pop()
            internal_at = self.used
        for step in range(start + 1, stop + 1):
            if self.push(INTERNAL, step) < 0:
                return OVER_BUDGET
        self.chain._expand(start, stop, source, at, hidden_at, internal_at)
        self.expanded_steps += stop - start
        self.place = -1
        return NONE

    cdef void pop(self) noexcept nogil:
        self.depth -= 1
        self.used = self.stack[self.depth, 2]

    cdef int transfer(self, int64_t code, int64_t step) noexcept nogil:
        """Move a hidden state to or from slow storage; only waiting for it takes time."""
        cdef int64_t at
        if code == STORE:
            if self.place != step:
                return WRONG_PLACE
            at = self.spill.acquire_at(step)
            if at < 0:
                return DISK_FAILED
            self.chain._save_hidden(at)
            self.spill.store_from(step, at)
        elif code == PREFETCH:
            return DISK_FAILED if self.spill.prefetch_step(step) < 0 else NONE
        elif code == FETCH:
            at = self.spill.fetch_at(step)
            if at < 0:
                return DISK_FAILED
            self.chain._restart(SAVED, at, step)
            self.place = step
        elif self.spill.drop_step(step) < 0:
            return NOT_BUFFERED
        return NONE

    cdef int attend(self, int64_t steps) except -1 nogil:
        """Serve signals some tens of times a second, after so many steps or actions more.

        That needs the GIL, and may wait for it; and reading a clock may take as long as a step.
        """
        cdef timespec now
        cdef int64_t since
        self.unattended += steps
        if self.unattended < self.pace:
            return 0
        clock_gettime(CLOCK_MONOTONIC, &now)
        since = now.tv_sec * <int64_t>1_000_000_000 + now.tv_nsec - self.attended
        if since < SOON:
            self.pace *= 2
            return 0
        if since > LATE:
            self.pace = max(1, self.pace // 2)
        self.unattended = 0
        self.attended += since
        with gil:
            PyErr_CheckSignals()
        return 0

    cdef int act(self, int64_t code, int64_t start, int64_t stop) except -1 nogil:
        """Execute one action; return NONE or what is wrong with it."""
        cdef int64_t at = -1
        self.attend(stop - start if code <= SAVE_INTERNAL else 1)
        if code == RESTORE:
            return self.restore(start)
        if code == BACKWARD:
            if not self.on_top(INTERNAL, start):
                return NOT_ON_TOP
            if start != self.chain.steps - self.backward_steps:
                return WRONG_ORDER
            self.chain._backward(start, self.stack[self.depth - 1, 2])
            self.backward_steps += 1
            return NONE
        if code == FREE:
            if not self.on_top(stop, start):
                return NOT_ON_TOP
            self.pop()
            return NONE
        if code == EXPAND:
            return self.expand(start, stop)
        if STORE <= code <= DROP and self.spill is not None:
            return self.transfer(code, start)
        if not ADVANCE <= code <= SAVE_INTERNAL:
            return UNKNOWN_CODE
        if not self.place == start < stop <= self.chain.steps:
            return WRONG_PLACE
        if code == SAVE_INTERNAL:
            at = self.push(INTERNAL, stop)
            if at < 0:
                return OVER_BUDGET
        self.forward_steps += stop - start
        while stop - start > STRETCH:
            self.chain._forward(start, start + STRETCH, -1)
            start += STRETCH
            self.attend(STRETCH)
        self.chain._forward(start, stop, at)
        self.place = stop
        if code == SAVE_HIDDEN:
            at = self.push(HIDDEN, stop)
            if at < 0:
                return OVER_BUDGET
            self.chain._save_hidden(at)
        return NONE


cdef int64_t run_end(const int64_t[:, ::1] rows, int64_t i) noexcept nogil:
    """Return the row behind the run of forwards that begins at row i without a gap."""
    i += 1
    while (i < rows.shape[0] and rows[i, 0] <= SAVE_INTERNAL and rows[i - 1, 0] <= SAVE_INTERNAL
           and rows[i, 1] == rows[i - 1, 2]):
        i += 1
    return i


def run(chunks, Chain chain, hidden_nbytes, internal_nbytes, record=False, Spill spill=None,
        reserved=0, saved=()):
    """Execute all rows.

    Parameters
    ----------
    chunks : iterable of numpy.ndarray
        int64 [n, 3].
    chain : Chain
        After `begin`.
    hidden_nbytes, internal_nbytes : int
        Sizes of the two kinds of state in the arena.
    record : bool
        Keep what ran.
    spill : Spill, optional
        Slow storage, for the schedules that use it.
    reserved : int
        Bytes at the arena's end that belong to it.
    saved : sequence of int
        Steps whose hidden states stand in the arena already, side by side from its beginning.

    Returns
    -------
    forward_steps, backward_steps, peak_bytes : int
    trace : numpy.ndarray or None
        int64 [actions, 4]: code, start, stop, bytes in use after the action.
    expanded_steps : int

    Raises
    ------
    MemoryError
        If a state would end beyond the arena.
    LookupError
        If an action uses a state that is not there, or steps come in another order.
    """
    cdef Machine machine = Machine(chain, hidden_nbytes, internal_nbytes, spill, reserved)
    cdef const int64_t[:, ::1] rows
    cdef int64_t[::1] used
    cdef int64_t i, behind, count, done = 0, taken = reserved
    cdef int fault
    traces = []
    for step in saved:
        if machine.push(HIDDEN, step) < 0:
            raise MemoryError(f"the saved states of steps {saved} end beyond the arena")
    for chunk in chunks:
        rows = chunk
        count = rows.shape[0]
        used_array = np.empty(count, np.int64) if record else None
        used = used_array
        with nogil:
            fault = NONE
            i = behind = 0
            while i < count:
                if i >= behind and rows[i, 0] <= SAVE_INTERNAL:
                    behind = run_end(rows, i)
                    chain.horizon = rows[behind - 1, 2]
                fault = machine.act(rows[i, 0], rows[i, 1], rows[i, 2])
                if fault != NONE:
                    break
                if used is not None:
                    used[i] = machine.used + taken
                i += 1
        if fault == DISK_FAILED:
            spill.raise_fault()
        if fault != NONE:
            raise_fault(fault, done + i, chunk[i], machine.nbytes)
        done += count
        if record:
            traces.append(np.column_stack((chunk, used_array)))
    if machine.backward_steps != chain.steps:
        raise LookupError(
            f"the schedule ends after {machine.backward_steps} of {chain.steps} backward steps")
    trace = np.concatenate(traces) if record else None
    return (machine.forward_steps, machine.backward_steps, machine.peak + reserved, trace,
            machine.expanded_steps)


cdef raise_fault(int fault, int64_t index, row, int64_t nbytes):
    code, start, stop = (int(number) for number in row)
    where = f"action {index + 1} (code {code}, {start}, {stop})"
    if fault == OVER_BUDGET:
        raise MemoryError(f"{where}: the state would end beyond the arena's {nbytes} bytes")
    if fault == NOT_ON_TOP:
        raise LookupError(f"{where}: the state of step {start} is not on top of the stack")
    if fault == NOT_SAVED:
        raise LookupError(f"{where}: no saved state gives the hidden state after step {start}")
    if fault == WRONG_PLACE:
        raise LookupError(f"{where}: the working hidden state is not that after step {start}")
    if fault == WRONG_ORDER:
        raise LookupError(f"{where}: another step is to be back-propagated next")
    if fault == NOT_BUFFERED:
        raise LookupError(f"{where}: the state of step {start} is in no buffer")
    raise LookupError(f"{where}: unknown code")
