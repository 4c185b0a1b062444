"""One layer, a head and the inputs of one window, bound to a workspace: a compiled chain.

The working hidden state is the one that a forward step reads and replaces. Projections x W_x + b
are computed for as many steps at once as the executor says it will run (`horizon`), at most one
block. Deltas of a block of backward steps are kept and then multiplied into the weight gradients
together; the blocks are aligned to multiples of their length, so that the schedule never enters the
bits of a gradient.

A layer may read the h of another one beneath it instead of inputs (membptt.kernels._stack drives
both): then its inputs are projected step by step, and its deltas go down as the derivative by them.
"""

import numpy as np

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memmove, memset

from membptt.kernels._chain cimport INITIAL, LEAVING
from membptt.kernels._head cimport CompiledHead, Head, PythonHead
from membptt.kernels._kernels cimport select
from membptt.kernels._live cimport Live
from membptt.kernels._room cimport Room, address, share
from membptt.kernels._steps cimport AHEAD, BACK, Steps
from membptt.kernels.kernels cimport membptt_kernels, team_run

# Rows that an expansion computes at once, where several steps have no more: enough for a product to
# run at its best, few enough that the workspace stays small.
cdef long EXPAND_ROWS = 32


cdef class Layer(Chain):
    """Base of the chains of one layer; the subclasses call the kernels of their cell."""

    def __init__(self, cell, bound, steps, batch, isa=None, Layer below=None):
        cdef long itemsize = cell.dtype.itemsize, width, H
        self.k = select(itemsize, isa)
        width = self.k.width
        self.cell = cell
        self.below = below
        self.dtype = cell.dtype
        self.steps = steps
        self.batch = self.live_rows = batch
        self.live = Live(batch)
        self.hidden_size = H = cell.hidden_size
        self.input_size = cell.input_size
        self.gates = cell.gates
        self.states = len(cell.hidden_names)
        self.internals = len(cell.internal_names)
        self.hidden_row = self.states * H * itemsize
        self.internal_row = self.internals * H * itemsize
        self.expand_rows = max(1, EXPAND_ROWS // batch) * batch
        self.blocks = (H + width - 1) // width  # of units, and panels of H columns
        self.panels = self.blocks * self.gates
        self.input_blocks = (self.input_size + width - 1) // width
        self.block_steps = max(1, 512 // batch)
        self.rows = self.block_steps * batch
        self.room = room = Room()
        self.W_h = room.take(self.panels * H * width * itemsize)
        self.W_h_back = room.take(self.blocks * self.panels * width * width * itemsize)
        self.W_x = room.take(self.panels * self.input_size * width * itemsize)
        self.bias = room.take(self.panels * width * itemsize)
        self.d = self.d_h = room.take(self.panels * self.rows * width * itemsize)
        self.h_panels = room.take(self.blocks * self.rows * width * itemsize)
        self.W_h_sums = <double *>room.take(self.panels * H * width * sizeof(double))
        self.W_x_sums = <double *>room.take(
            self.panels * self.input_size * width * sizeof(double))
        self.b_sums = <double *>room.take(self.panels * width * sizeof(double))
        if below is None:
            self.inputs = Steps(room, self.block_steps)
            self.projected_stride = self.rows
        else:
            self.projected_stride = max(batch, self.expand_rows)
        self.pick = <int64_t *>room.take(batch * sizeof(int64_t))
        cdef long state_nbytes = self.hidden_row * batch
        self.initial = <char *>room.take(state_nbytes)
        self.working = <char *>room.take(state_nbytes)
        self.other = <char *>room.take(state_nbytes)
        self.last = <char *>room.take(state_nbytes)
        self.head_state = <char *>room.take(state_nbytes)
        self.dstate = <char *>room.take(state_nbytes)
        if bound is None:
            self.head = Head()  # another layer has the real one
        elif getattr(bound, "kernel", None) is None:
            self.head = PythonHead(H, self.dtype)
        else:
            self.head = CompiledHead(room, bound, batch, H, isa)

    def begin(self, inputs, bound, state, arena, lengths=None):
        """Bind the inputs [T, B] or [T, B, I], pack the weights, clear all sums.

        With a layer beneath there are no inputs; only the layer that has a head is given one.
        Where rows have `lengths` (membptt.sequences.lengths), the state's rows stand in their
        order, and so do those of every state here; inputs and targets are as the caller gave them.
        """
        cdef const membptt_kernels *k = self.k
        cdef long H = self.hidden_size, inputs_width = self.input_size, G = self.gates
        cdef long size = self.batch * H * k.itemsize
        cdef const void *b
        cdef int index
        W_x = np.ascontiguousarray(self.cell.params["W_x"])
        W_h = np.ascontiguousarray(self.cell.params["W_h"])
        bias = np.ascontiguousarray(self.cell.params["b"])
        b = address(bias)
        self.live = Live(self.batch, lengths)
        if self.below is None:
            self.inputs.begin("inputs", inputs, self.live)
            self.tokens = inputs.ndim == 2
        if self.tokens and self.block_tokens == NULL:
            self.block_tokens = <int64_t *>self.room.take(self.rows * sizeof(int64_t))
        if not self.tokens and self.projected == NULL:
            self.projected = self.room.take(
                self.panels * self.projected_stride * k.width * k.itemsize)
            self.x_panels = self.room.take(self.input_blocks * self.rows * k.width * k.itemsize)
        # A token's row of W_x is a start of the chain: the bias is added once, here.
        k.pack(address(W_x), b if self.tokens else NULL, self.W_x, inputs_width, H, G)
        k.pack(NULL, b, self.bias, 1, H, G)
        k.pack(address(W_h), NULL, self.W_h, H, H, G)
        k.pack_transposed(address(W_h), self.W_h_back, H, H, G)
        self.dx = NULL
        if self.by_inputs is not None:
            self.dx = <char *>address(self.by_inputs)
        if self.below is not None or self.dx != NULL:
            if self.W_x_back == NULL:
                self.W_x_back = self.room.take(
                    self.input_blocks * self.panels * k.width * k.width * k.itemsize)
            k.pack_transposed(address(W_x), self.W_x_back, inputs_width, H, G)
        memset(self.W_h_sums, 0, self.panels * H * k.width * sizeof(double))
        memset(self.W_x_sums, 0, self.panels * inputs_width * k.width * sizeof(double))
        memset(self.b_sums, 0, self.panels * k.width * sizeof(double))
        memset(self.dstate, 0, self.hidden_row * self.batch)
        for index, array in enumerate(state):
            array = np.ascontiguousarray(array)
            memcpy(self.initial + index * size, address(array), size)
        self.projected_from = self.projected_to = self.horizon = 0
        self.arena_array = arena
        self.arena = <char *>address(arena)
        self.head.begin(bound, self.steps, self.live)
        self._restart(INITIAL, 0, 0)

    def extend(self, inputs):
        """Go on with more steps: `inputs` holds those of before too, as they were in `begin`."""
        self.steps = self.horizon = inputs.shape[0]
        if self.below is None:
            self.inputs.begin("inputs", inputs, self.live)

    def end(self, bound):
        """Learn the targets of all steps, before the first backward."""
        self.head.begin(bound, self.steps, self.live)

    def finish(self):
        """Return loss, first step whose loss is not finite or 0, gradients, state, its gradient."""
        return (self.head.loss, self.head.first_bad_step,
                self.gradients() | self.head.gradients(),
                self._state_arrays(self.last), self._state_arrays(self.dstate))

    def ended(self):
        """Return the states of the rows that have ended so far, in arrays [B, H] for all rows."""
        return self._state_arrays(self.last)

    def gradients(self):
        """Return the gradients of the cell's parameters by name."""
        cdef long H = self.hidden_size, G = self.gates
        grads = {name: np.empty(shape, self.dtype)
                 for name, shape in self.cell.param_shapes().items()}
        self.k.unpack(self.W_x_sums, address(grads["W_x"]), self.input_size, H, G)
        self.k.unpack(self.W_h_sums, address(grads["W_h"]), H, H, G)
        self.k.unpack(self.b_sums, address(grads["b"]), 1, H, G)
        return grads

    cdef long most_shares(self):
        return self.blocks

    cdef tuple _state_arrays(self, const char *data):
        cdef long size = self.batch * self.hidden_size * self.k.itemsize
        shape = (self.batch, self.hidden_size)
        return tuple(
            np.frombuffer(data[i * size:(i + 1) * size], self.dtype).reshape(shape).copy()
            for i in range(self.states)
        )

    cdef void _restart(self, int source, long at, long place) noexcept nogil:
        """Make the working hidden state the one that `source` names; `at` is in the arena."""
        self.live_rows = self.live.rows(place + (source != LEAVING))
        if source == INITIAL:
            memcpy(self.working, self.initial, self.hidden_row * self.live_rows)
        elif source == LEAVING:
            self.cell_hidden(self.arena + at, self.working)
            self.narrow(self.live.rows(place + 1))
        else:  # a hidden state, or the first part of an internal state: h_prev (, c_prev)
            memcpy(self.working, self.arena + at, self.hidden_row * self.live_rows)
        self.going_on = self.live.rows(place + 1)

    cdef void narrow(self, long rows) noexcept nogil:
        """Leave only the first `rows` of the working state's rows."""
        cdef long j, row = self.hidden_size * self.k.itemsize
        if rows < self.live_rows:
            for j in range(1, self.states):
                memmove(self.working + j * rows * row, self.working + j * self.live_rows * row,
                        rows * row)

    cdef void _save_hidden(self, long at) noexcept nogil:
        """Copy the working hidden state into the arena."""
        memcpy(self.arena + at, self.working, self.hidden_row * self.going_on)

    cdef int _forward(self, long start, long stop, long internal_at) except -1 nogil:
        """Run the steps start+1 ... stop; save the internal state of `stop` unless at < 0."""
        cdef long step
        if self.horizon < stop:
            self.horizon = stop
        for step in range(start + 1, stop + 1):
            self.forward_step(step, internal_at if step == stop else -1)
            if self.sums is not None:
                self.sums.check_at(step, self.working, self.hidden_row * self.live_rows)
            self.leave(step)
        return 0

    cdef int forward_step(self, long step, long internal_at) except -1 nogil:
        """Run one step; save its internal state unless at < 0."""
        cdef char *spare
        self.live_rows = self.live.rows(step)
        if self.below is not None:
            self.project_rows(self.below.working, self.live_rows)
            self.projected_from = step - 1
        elif self.live.lengths is not None and not self.tokens:
            self.project_rows(self.inputs.row(step, AHEAD), self.live_rows)
            self.projected_from = step - 1
        elif not self.tokens and not self.projected_from < step <= self.projected_to:
            self.project_steps(step)
        self.pick_rows(step, self.pick)
        self.saved = self.arena + internal_at if internal_at >= 0 else NULL
        team_run(self.forward_team, forward_phase, <void *>self)
        spare = self.working
        self.working = self.other
        self.other = spare
        return 0

    cdef void leave(self, long step) noexcept nogil:
        """Keep the state of the rows that end with `step`; the others go on."""
        cdef long j, row = self.hidden_size * self.k.itemsize
        cdef long ended_from = self.live.rows(step + 1) if step < self.steps else 0
        if ended_from == self.live_rows:
            return
        for j in range(self.states):
            memcpy(self.last + (j * self.batch + ended_from) * row,
                   self.working + (j * self.live_rows + ended_from) * row,
                   (self.live_rows - ended_from) * row)
        self.going_on = self.live.rows(step + 1)  # after the last step too, should more come
        self.narrow(self.going_on)

    cdef int pick_rows(self, long step, int64_t *pick) except -1 nogil:
        """Note where the chains of the step's rows start: rows of W_x, or projected inputs."""
        cdef long b, B = self.live_rows
        if self.tokens:
            self.inputs.integers(self.inputs.row(step, AHEAD), B, pick)
            self.start = self.W_x
            self.start_rows = self.input_size
            return 0
        for b in range(B):
            pick[b] = (step - 1 - self.projected_from) * B + b
        self.start = self.projected
        self.start_rows = self.projected_stride
        return 0

    def take_expand_room(self):
        """Take the workspace of expansions, before the first one."""
        cdef long nbytes = self.expand_rows * self.hidden_size * self.k.itemsize
        self.entering = <char *>self.room.take(self.states * nbytes)
        self.leaving = <char *>self.room.take(self.states * nbytes)
        self.expanded = <char *>self.room.take(self.internals * nbytes)
        self.expand_pick = <int64_t *>self.room.take(self.expand_rows * sizeof(int64_t))

    cdef int _expand(self, long start, long stop, int source, long at, long hidden_at,
                     long internal_at) except -1 nogil:
        """Compute internal states of several steps at once; membptt.chains.plain says which.

        As many steps as `expand_rows` holds are one step of so many rows, from the last to the
        first: what is written never covers what is still to be read.
        """
        cdef long begin, end = stop, i, j, size = self.batch * self.hidden_size * self.k.itemsize
        cdef long hidden = self.batch * self.hidden_row, internal = self.batch * self.internal_row
        if self.live.lengths is not None:
            return self.expand_singly(start, stop, source, at, hidden_at, internal_at)
        while end > start:
            begin = self.expand_from(start, end)
            self.gather(start, begin, end, source, at, hidden_at, hidden)
            self.expand_gathered(begin, end)
            self.scatter(begin, end, internal_at + (begin - start) * internal, internal)
            if self.sums is not None:
                for i in range(end - begin):
                    for j in range(self.states):
                        memcpy(self.other + j * size,
                               self.leaving + (j * (end - begin) + i) * size, size)
                    self.sums.check_at(begin + i + 1, self.other, hidden)
            end = begin
        return 0

    cdef long expand_from(self, long start, long end) except -1 nogil:
        """Return where to begin so that the steps up to `end` fit, with their inputs projected."""
        cdef long begin = max(start, end - self.expand_rows // self.batch)
        if not self.tokens and not self.projected_from <= begin < end <= self.projected_to:
            self.horizon = end
            self.project_steps((start if end - start <= self.block_steps else begin) + 1)
            if self.projected_to < end:  # the block of inputs ends in between
                begin = self.projected_to
                self.project_steps(begin + 1)
        return begin

    cdef int gather(self, long start, long begin, long end, int source, long at, long hidden_at,
                    long stride) except -1 nogil:
        """Put the states before the steps begin+1 ... end beside one another, row after row.

        h_start is had as in `_restart`, those after it lie `stride` apart from `hidden_at` on.
        """
        cdef long step, j, size = self.batch * self.hidden_size * self.k.itemsize
        cdef const char *state
        if self.entering == NULL:
            with gil:
                self.take_expand_room()
        for step in range(begin, end):
            state = self.arena + hidden_at + (step - start - 1) * stride
            if step == start:
                self._restart(source, at, start)
                state = self.working
            for j in range(self.states):
                memcpy(self.entering + (j * (end - begin) + step - begin) * size,
                       state + j * size, size)
        return 0

    cdef int expand_gathered(self, long begin, long end) except -1 nogil:
        """Run the steps begin+1 ... end as one step of so many rows, from the gathered states."""
        cdef long step, B = self.batch, rows = (end - begin) * B
        cdef char *working = self.working
        cdef char *other = self.other
        cdef int64_t *pick = self.pick
        if self.below is not None:
            self.project_rows(self.below.leaving, rows)
            self.projected_from = begin
        for step in range(begin + 1, end + 1):
            self.pick_rows(step, self.expand_pick + (step - begin - 1) * B)
        self.working, self.other, self.saved = self.entering, self.leaving, self.expanded
        self.pick, self.live_rows = self.expand_pick, rows
        team_run(self.forward_team, forward_phase, <void *>self)
        self.working, self.other, self.pick, self.live_rows = working, other, pick, B
        return 0

    cdef void scatter(self, long begin, long end, long internal_at, long stride) noexcept nogil:
        """Put the internal states of these steps into the arena, `stride` apart."""
        cdef long i, j, count = end - begin, size = self.batch * self.hidden_size * self.k.itemsize
        for i in range(count):
            for j in range(self.internals):
                memcpy(self.arena + internal_at + i * stride + j * size,
                       self.expanded + (j * count + i) * size, size)
        if end == self.steps:
            for j in range(self.states):
                memcpy(self.last + j * size, self.leaving + ((j + 1) * count - 1) * size, size)

    cdef int project_steps(self, long step) except -1 nogil:
        """Project the inputs of `step` and of those after it that will be run, at most a block."""
        cdef const char *rows
        self.projected_to = step - 1  # nothing, should the inputs fail
        rows = self.inputs.row(step, AHEAD)
        self.projected_from = step - 1
        self.projected_to = min(self.horizon, step - 1 + self.block_steps, self.inputs.last[AHEAD])
        return self.project_rows(rows, (self.projected_to - self.projected_from) * self.batch)

    cdef int project_rows(self, const char *rows, long count) except -1 nogil:
        """Project so many rows of inputs that stand one after the other."""
        self.to_project, self.rows_to_project = rows, count
        team_run(self.forward_team, project_phase, <void *>self)
        return 0

    cdef int _backward(self, long step, long at) except -1 nogil:
        """Back-propagate one step: the head, the cell, and the weights at a block's end."""
        self.join(step)
        return self.backward_step(step, at)

    cdef void join(self, long step) noexcept nogil:
        """Take in the rows that end with `step`: their derivative begins at 0, their h is known."""
        cdef long j, row = self.hidden_size * self.k.itemsize, rows = self.live.rows(step)
        cdef long there = self.live.rows(step + 1) if step < self.steps else 0
        self.live_rows = rows
        if there == rows:
            return
        for j in range(self.states - 1, -1, -1):
            memmove(self.dstate + j * rows * row, self.dstate + j * there * row, there * row)
            memset(self.dstate + (j * rows + there) * row, 0, (rows - there) * row)
        memcpy(self.head_state + there * row, self.last + there * row, (rows - there) * row)

    cdef int backward_step(self, long step, long at) except -1 nogil:
        """Back-propagate one step, whose rows are all there."""
        self.now = step
        self.first = self.live.rows_between(
            (step - 1) // self.block_steps * self.block_steps, step - 1)
        self.internal = self.arena + at
        self.keep_inputs(step)
        # h of this step entered the step after it, which was back-propagated just before.
        self.head.losses_and_deltas(step, self.head_state, self.dstate, self.backward_team)
        team_run(self.backward_team, delta_phase, <void *>self)
        self.head.add_to_gradients(self.flush_team)
        team_run(self.backward_team, back_phase, <void *>self)
        self.down_to = NULL
        if self.below is not None:
            self.down_to = self.below.dstate
        elif self.dx != NULL:
            self.down_to = self.dx + (step - 1) * self.batch * self.input_size * self.k.itemsize
        if self.down_to != NULL:
            team_run(self.backward_team, down_phase, <void *>self)
        memcpy(self.head_state, self.internal,
               self.live_rows * self.hidden_size * self.k.itemsize)
        if self.first == 0:
            team_run(self.flush_team, flush_phase, <void *>self)
        return 0

    cdef int keep_inputs(self, long step) except -1 nogil:
        """Put the step's inputs beside its deltas, for the gradient of W_x."""
        cdef const char *row
        if self.below is not None:  # h of this step entered the one after it
            row = self.below.head_state
        else:
            row = self.inputs.row(step, BACK)
        if self.tokens:
            self.inputs.integers(row, self.live_rows, self.block_tokens + self.first)
        else:
            self.k.to_panels(row, self.x_panels, self.live_rows, self.input_size, self.rows,
                             self.first, 0, self.input_blocks)
        return 0

    cdef void project_share(self, long lo, long hi) noexcept nogil:
        """Projected inputs x W_x + b, panels lo ... hi - 1."""
        self.k.project(self.to_project, self.W_x, self.bias, self.projected, self.rows_to_project,
                       self.input_size, self.projected_stride, lo, hi)

    cdef void delta_share(self, long lo, long hi) noexcept nogil:
        """Deltas of one step, unit blocks lo ... hi - 1, when the head has added its part of dh."""
        self.head.add_to_dh(self.dstate, lo, hi)
        self.cell_backward(lo, hi)

    cdef void back_share(self, long lo, long hi) noexcept nogil:
        """dh_prev = da W_h transposed, panels lo ... hi - 1."""
        self.k.product_back(self.d_h, self.W_h_back, self.dstate, self.live_rows, self.blocks,
                            self.gates, self.hidden_size, self.rows, self.first, self.keeps_dh,
                            lo, hi)

    cdef void down_share(self, long lo, long hi) noexcept nogil:
        """dx = da W_x transposed, panels lo ... hi - 1; added to dh of a layer beneath."""
        self.k.product_back(self.d, self.W_x_back, self.down_to, self.live_rows, self.blocks,
                            self.gates, self.input_size, self.rows, self.first,
                            self.below is not None, lo, hi)

    cdef void flush_share(self, long lo, long hi) noexcept nogil:
        """Add the block that begins at this step to the weight gradients, panels lo ... hi - 1."""
        cdef const membptt_kernels *k = self.k
        cdef long rows = self.live.rows_between(
            self.now - 1, min(self.now - 1 + self.block_steps, self.steps))
        k.weight_gradient(self.h_panels, self.d_h, self.W_h_sums, self.d_h_sums, rows,
                          self.hidden_size, self.rows, lo, hi)
        if self.tokens:
            k.token_gradient(self.block_tokens, self.d, self.W_x_sums, self.b_sums, rows,
                             self.input_size, self.rows, lo, hi)
        else:
            k.weight_gradient(self.x_panels, self.d, self.W_x_sums, self.b_sums, rows,
                              self.input_size, self.rows, lo, hi)

    cdef void cell_forward(self, long lo, long hi) noexcept nogil:
        pass

    cdef void cell_hidden(self, const void *internal, void *state) noexcept nogil:
        pass

    cdef void cell_backward(self, long lo, long hi) noexcept nogil:
        pass


cdef void project_phase(void *chain, int member, int members) noexcept nogil:
    cdef long n = (<Layer>chain).panels
    (<Layer>chain).project_share(share(n, member, members), share(n, member + 1, members))


cdef void forward_phase(void *chain, int member, int members) noexcept nogil:
    cdef long n = (<Layer>chain).blocks
    (<Layer>chain).cell_forward(share(n, member, members), share(n, member + 1, members))


cdef void delta_phase(void *chain, int member, int members) noexcept nogil:
    cdef long n = (<Layer>chain).blocks
    (<Layer>chain).delta_share(share(n, member, members), share(n, member + 1, members))


cdef void back_phase(void *chain, int member, int members) noexcept nogil:
    cdef long n = (<Layer>chain).blocks
    (<Layer>chain).back_share(share(n, member, members), share(n, member + 1, members))


cdef void down_phase(void *chain, int member, int members) noexcept nogil:
    cdef long n = (<Layer>chain).input_blocks
    (<Layer>chain).down_share(share(n, member, members), share(n, member + 1, members))


cdef void flush_phase(void *chain, int member, int members) noexcept nogil:
    cdef long n = (<Layer>chain).panels
    (<Layer>chain).flush_share(share(n, member, members), share(n, member + 1, members))


cdef class RNNChain(Layer):
    """The vanilla RNN: see membptt.cells.rnn for the equations."""

    cdef void cell_forward(self, long lo, long hi) noexcept nogil:
        self.k.rnn_forward(self.working, self.W_h, self.start, self.start_rows, self.pick,
                           self.other, self.saved, self.live_rows, self.hidden_size, lo, hi)

    cdef void cell_hidden(self, const void *internal, void *state) noexcept nogil:
        self.k.rnn_hidden(internal, state, self.live_rows, self.hidden_size)

    cdef void cell_backward(self, long lo, long hi) noexcept nogil:
        self.k.rnn_backward(self.internal, self.dstate, self.d, self.h_panels, self.live_rows,
                            self.hidden_size, self.rows, self.first, lo, hi)


cdef class GRUChain(Layer):
    """The GRU: see membptt.cells.gru for the equations."""

    def __init__(self, cell, bound, steps, batch, isa=None, Layer below=None):
        cdef long width
        Layer.__init__(self, cell, bound, steps, batch, isa, below)
        width = self.k.width
        self.keeps_dh = True
        self.bias_h = self.room.take(self.blocks * width * self.k.itemsize)
        self.d_h = self.room.take(self.panels * self.rows * width * self.k.itemsize)
        self.d_h_sums = <double *>self.room.take(self.panels * width * sizeof(double))

    def begin(self, inputs, bound, state, arena, lengths=None):
        """Pack b_h besides what every chain packs."""
        Layer.begin(self, inputs, bound, state, arena, lengths)
        bias_h = np.ascontiguousarray(self.cell.params["b_h"])
        self.k.pack(NULL, address(bias_h), self.bias_h, 1, self.hidden_size, 1)
        memset(self.d_h_sums, 0, self.panels * self.k.width * sizeof(double))

    def gradients(self):
        """Return what every chain does, with the gradient of b_h: the sums of gate n's deltas."""
        grads = Layer.gradients(self)
        sums = np.empty(self.gates * self.hidden_size, self.dtype)
        self.k.unpack(self.d_h_sums, address(sums), 1, self.hidden_size, self.gates)
        grads["b_h"] = sums[-self.hidden_size:].copy()
        return grads

    cdef void cell_forward(self, long lo, long hi) noexcept nogil:
        self.k.gru_forward(self.working, self.W_h, self.bias_h, self.start, self.start_rows,
                           self.pick, self.other, self.saved, self.live_rows, self.hidden_size,
                           lo, hi)

    cdef void cell_hidden(self, const void *internal, void *state) noexcept nogil:
        self.k.gru_hidden(internal, state, self.live_rows, self.hidden_size)

    cdef void cell_backward(self, long lo, long hi) noexcept nogil:
        self.k.gru_backward(self.internal, self.dstate, self.d, self.d_h, self.h_panels,
                            self.live_rows, self.hidden_size, self.rows, self.first, lo, hi)


cdef class LSTMChain(Layer):
    """The LSTM: see membptt.cells.lstm for the equations. States are h, then c."""

    cdef long _size(self) noexcept nogil:
        return self.live_rows * self.hidden_size * self.k.itemsize

    cdef void cell_forward(self, long lo, long hi) noexcept nogil:
        cdef long size = self._size()
        self.k.lstm_forward(self.working, self.working + size, self.W_h, self.start,
                            self.start_rows, self.pick, self.other, self.other + size, self.saved,
                            self.live_rows, self.hidden_size, lo, hi)

    cdef void cell_hidden(self, const void *internal, void *state) noexcept nogil:
        self.k.lstm_hidden(internal, state, <char *>state + self._size(), self.live_rows,
                           self.hidden_size)

    cdef void cell_backward(self, long lo, long hi) noexcept nogil:
        self.k.lstm_backward(self.internal, self.dstate, self.dstate + self._size(), self.d,
                             self.h_panels, self.live_rows, self.hidden_size, self.rows, self.first,
                             lo, hi)
