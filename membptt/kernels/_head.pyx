"""The head at backward time: outputs, loss and their gradients, one step after the other.

CompiledHead is the twin of membptt.heads without the GIL; PythonHead calls a head of the
user's own, once a step. A step at which no row has a loss costs no product.

Weight gradients are flushed in blocks of steps aligned to multiples of the block's length, so that
their bits do not depend on the order of the recomputations in between.
"""

import numpy as np

from libc.math cimport isfinite
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from membptt.kernels._kernels cimport select
from membptt.kernels._live cimport Live
from membptt.kernels._room cimport Room, address, share
from membptt.kernels._steps cimport BACK, Steps
from membptt.kernels.kernels cimport membptt_kernels, team, team_run


cdef class Head:
    """What the chain asks of a head, in this order, once a step."""

    def begin(self, bound, long steps, Live live):
        """Prepare for one iteration of so many steps with this head and these targets."""
        self.live = live
        self.loss = 0
        self.first_bad_step = 0

    def gradients(self):
        """Return the gradients of the head's parameters by name."""
        return {}

    cdef int losses_and_deltas(self, long step, const void *h, void *dh,
                               team *threads) except -1 nogil:
        """Add the step's loss to `loss`; make ready what the next two need."""
        return 0

    cdef void add_to_dh(self, void *dh, long lo, long hi) noexcept nogil:
        """Add the derivative by h to the panels lo ... hi - 1 of dh."""
        pass

    cdef void add_to_gradients(self, team *threads) noexcept nogil:
        """Add this step, or the block that ends with it, to the gradients."""
        pass


cdef class CompiledHead(Head):
    """Softmax cross-entropy, or the squared error, on an output layer."""

    def __init__(self, Room room, bound, long batch, long hidden_size, isa):
        cdef long itemsize = bound.params["W_y"].itemsize
        self.k = select(itemsize, isa)
        cdef long width = self.k.width
        cdef long hidden_panels = (hidden_size + width - 1) // width
        self.batch = batch
        self.hidden_size = hidden_size
        self.outputs = bound.params["b_y"].size
        self.panels = (self.outputs + width - 1) // width
        # Enough rows that reading and writing the sums at a block's end is small beside the work;
        # at most four million outputs. No panel's width enters: the blocks are part of the bits.
        self.block_steps = max(1, min(512, (1 << 22) // self.outputs) // batch)
        self.rows = self.block_steps * batch
        self.packed = room.take(self.panels * hidden_size * width * itemsize)
        self.packed_back = room.take(hidden_panels * self.panels * width * width * itemsize)
        self.bias = room.take(self.panels * width * itemsize)
        self.d = room.take(self.panels * self.rows * width * itemsize)
        self.h_panels = room.take(hidden_panels * self.rows * width * itemsize)
        self.sums = <double *>room.take(self.panels * hidden_size * width * sizeof(double))
        self.bias_sums = <double *>room.take(self.panels * width * sizeof(double))
        self.targets = Steps(room, max(1, 512 // batch))
        self.classes_now = <int64_t *>room.take(batch * sizeof(int64_t))
        self.losses = <double *>room.take(batch * sizeof(double))
        self.mask = Steps(room, max(1, 512 // batch))
        self.ends = <int64_t *>room.take(batch * sizeof(int64_t))
        self.ends_now = <uint8_t *>room.take(batch)

    def begin(self, bound, long steps, Live live):
        """Pack the weights and clear the sums."""
        cdef const membptt_kernels *k = self.k
        cdef long b
        Head.begin(self, bound, steps, live)
        weights = np.ascontiguousarray(bound.params["W_y"])
        bias = np.ascontiguousarray(bound.params["b_y"])
        k.pack(address(weights), NULL, self.packed, self.hidden_size, self.outputs, 1)
        k.pack(NULL, address(bias), self.bias, 1, self.outputs, 1)
        k.pack_transposed(address(weights), self.packed_back, self.hidden_size, self.outputs, 1)
        memset(self.sums, 0, self.panels * self.hidden_size * k.width * sizeof(double))
        memset(self.bias_sums, 0, self.panels * k.width * sizeof(double))
        self.scale = bound.scale
        self.steps = steps
        self.classes = bound.kernel == "softmax"
        self.targets.begin("targets", bound.targets, live)
        self.masked = bound.mask is not None
        if self.masked:
            self.mask.begin("mask", bound.mask, live)
        self.ending = bound.ends is not None
        if self.ending:
            ends = bound.ends if live.lengths is None else bound.ends[live.lengths.order]
            for b in range(self.batch):
                self.ends[b] = ends[b]
        self.block_idle = True

    cdef int losses_and_deltas(self, long step, const void *h, void *dh,
                               team *threads) except -1 nogil:
        cdef long b
        cdef double loss = 0
        self.now = step
        self.live_rows = self.live.rows(step)
        self.first = self.live.rows_between(
            (step - 1) // self.block_steps * self.block_steps, step - 1)
        self.h = h
        self.choose_rows(step)
        if self.idle:
            self.clear_rows()
            return 0
        self.block_idle = False
        self.targets_now = self.targets.row(1 if self.ending else step, BACK)
        if self.classes:
            self.targets.integers(self.targets_now, self.live_rows, self.classes_now)
        team_run(threads, project, <void *>self)
        team_run(threads, compare, <void *>self)
        for b in range(self.live_rows):
            loss += self.losses[b]
        self.loss += loss * self.scale
        if not isfinite(loss):
            self.first_bad_step = step
        return 0

    cdef int choose_rows(self, long step) except -1 nogil:
        """Note which rows of the step have a loss."""
        cdef long b
        self.scored = NULL
        self.idle = False
        if self.masked:
            self.scored = <const uint8_t *>self.mask.row(step, BACK)
        elif self.ending:
            for b in range(self.live_rows):
                self.ends_now[b] = self.ends[b] == step
            self.scored = self.ends_now
        if self.scored != NULL:
            self.idle = True
            for b in range(self.live_rows):
                if self.scored[b]:
                    self.idle = False
        return 0

    cdef void clear_rows(self) noexcept nogil:
        """Put zeros where the step's rows stand in the block: its products are for all rows."""
        cdef long i, nbytes = self.live_rows * self.k.width * self.k.itemsize
        cdef long panel = self.rows * self.k.width * self.k.itemsize
        cdef long at = self.first * self.k.width * self.k.itemsize
        for i in range(self.panels):
            memset(<char *>self.d + i * panel + at, 0, nbytes)
        for i in range((self.hidden_size + self.k.width - 1) // self.k.width):
            memset(<char *>self.h_panels + i * panel + at, 0, nbytes)

    cdef void project(self, int member, int members) noexcept nogil:
        """Share of the outputs: panels of y = h W_y + b_y, and of h for the weights' gradient."""
        cdef const membptt_kernels *k = self.k
        cdef char *d = <char *>self.d + self.first * k.width * k.itemsize
        cdef long panels = (self.hidden_size + k.width - 1) // k.width
        k.project(self.h, self.packed, self.bias, d, self.live_rows, self.hidden_size, self.rows,
                  share(self.panels, member, members), share(self.panels, member + 1, members))
        k.to_panels(self.h, self.h_panels, self.live_rows, self.hidden_size, self.rows, self.first,
                    share(panels, member, members), share(panels, member + 1, members))

    cdef void compare(self, int member, int members) noexcept nogil:
        """Share of the losses: rows of y become the derivative by y."""
        cdef const membptt_kernels *k = self.k
        cdef long lo = share(self.live_rows, member, members)
        cdef long hi = share(self.live_rows, member + 1, members)
        if self.classes:
            k.softmax(self.d, self.classes_now, self.scored, self.losses, self.outputs, self.rows,
                      self.first, self.scale, lo, hi)
        else:
            k.squared_error(self.d, self.targets_now, self.scored, self.losses, self.outputs,
                            self.rows, self.first, self.scale, lo, hi)

    cdef void add_to_dh(self, void *dh, long lo, long hi) noexcept nogil:
        if self.idle:
            return
        self.k.product_back(self.d, self.packed_back, dh, self.live_rows, self.panels, 1,
                            self.hidden_size, self.rows, self.first, True, lo, hi)

    cdef void add_to_gradients(self, team *threads) noexcept nogil:
        if self.first != 0:
            return
        if not self.block_idle:
            team_run(threads, flush, <void *>self)
        self.block_idle = True

    cdef void flush(self, int member, int members) noexcept nogil:
        """Share of the gradients of the block that begins at this step."""
        cdef long rows = self.live.rows_between(
            self.now - 1, min(self.now - 1 + self.block_steps, self.steps))
        self.k.weight_gradient(
            self.h_panels, self.d, self.sums, self.bias_sums, rows, self.hidden_size,
            self.rows, share(self.panels, member, members), share(self.panels, member + 1, members))

    def gradients(self):
        """Return the gradients of W_y [H, V] and b_y [V]."""
        dtype = np.float32 if self.k.itemsize == 4 else np.float64
        weights = np.empty((self.hidden_size, self.outputs), dtype)
        bias = np.empty(self.outputs, dtype)
        self.k.unpack(self.sums, address(weights), self.hidden_size, self.outputs, 1)
        self.k.unpack(self.bias_sums, address(bias), 1, self.outputs, 1)
        return {"W_y": weights, "b_y": bias}


cdef void project(void *head, int member, int members) noexcept nogil:
    (<CompiledHead>head).project(member, members)


cdef void compare(void *head, int member, int members) noexcept nogil:
    (<CompiledHead>head).compare(member, members)


cdef void flush(void *head, int member, int members) noexcept nogil:
    (<CompiledHead>head).flush(member, members)


cdef class PythonHead(Head):
    """A head of the user's own: `forward_backward(step, h, grads)` is called once a step."""

    def __init__(self, long hidden_size, dtype):
        self.dtype = dtype
        self.hidden_size = hidden_size

    def begin(self, bound, long steps, Live live):
        """Clear the gradients."""
        Head.begin(self, bound, steps, live)
        self.bound = bound
        self.grads = {name: np.zeros_like(value) for name, value in bound.params.items()}

    cdef int losses_and_deltas(self, long step, const void *h, void *dh,
                               team *threads) except -1 nogil:
        with gil:
            self._call(step, h, dh)
        return 0

    cdef _call(self, long step, const void *h, void *dh):
        cdef long count = self.live.rows(step)
        cdef long nbytes = count * self.hidden_size * self.dtype.itemsize
        shape = (count, self.hidden_size)
        lengths = self.live.lengths
        # A copy of h: the user's code may keep it, or write into it.
        h_now = np.frombuffer((<const char *>h)[:nbytes], self.dtype).reshape(shape).copy()
        rows = () if lengths is None else (lengths.order[:count],)
        loss, dh_step = self.bound.forward_backward(step, h_now, self.grads, *rows)
        if np.shape(dh_step) != shape:
            raise ValueError(
                f"the head's dh has shape {np.shape(dh_step)} at step {step}; give {shape}")
        dh_total = np.frombuffer(<char[:nbytes]><char *>dh, self.dtype).reshape(shape)
        dh_total += dh_step
        self.loss += loss
        if not isfinite(<double>loss):
            self.first_bad_step = step

    def gradients(self):
        """Return what the user's head added up."""
        return self.grads
