"""The head at backward time: outputs, loss and their gradients, one step after the other.

CompiledHead is the twin of membptt.training.heads without the GIL; PythonHead calls a head of the
user's own, once a step.

Weight gradients are flushed in blocks of steps aligned to multiples of the block's length, so that
their bits do not depend on the order of the recomputations in between.
"""

import numpy as np

from libc.math cimport isfinite
from libc.stdint cimport int64_t
from libc.string cimport memset

from membptt.kernels._kernels cimport select
from membptt.kernels._room cimport Integers, Room, address
from membptt.kernels.kernels cimport membptt_kernels


cdef class Head:
    """What the chain asks of a head."""

    cdef int step(self, long step, const void *h, void *dh) except -1 nogil:
        """Add this step's loss to `loss` and its derivative by h to dh."""
        return 0

    def begin(self, bound):
        """Prepare for one iteration with this head and these targets."""
        self.loss = 0
        self.first_bad_step = 0

    def gradients(self):
        """Return the gradients of the head's parameters by name."""
        return {}


cdef class CompiledHead(Head):
    """Softmax cross-entropy, or the squared error, on an output layer."""

    def __init__(self, Room room, bound, long steps, long batch, long hidden_size, isa):
        cdef long itemsize = bound.params["W_y"].itemsize
        self.k = select(itemsize, isa)
        cdef long width = self.k.width
        cdef long hidden_panels = (hidden_size + width - 1) // width
        self.steps = steps
        self.batch = batch
        self.hidden_size = hidden_size
        self.outputs = bound.params["b_y"].size
        self.panels = (self.outputs + width - 1) // width
        # About a quarter million outputs a block: it stays in the second cache.
        self.block_steps = max(1, min(512, (1 << 18) // (self.panels * width)) // batch)
        self.rows = self.block_steps * batch
        self.packed = room.take(self.panels * hidden_size * width * itemsize)
        self.packed_back = room.take(hidden_panels * self.panels * width * width * itemsize)
        self.bias = room.take(self.panels * width * itemsize)
        self.d = room.take(self.panels * self.rows * width * itemsize)
        self.h_panels = room.take(hidden_panels * self.rows * width * itemsize)
        self.sums = <double *>room.take(self.panels * hidden_size * width * sizeof(double))
        self.bias_sums = <double *>room.take(self.panels * width * sizeof(double))
        self.classes_now = <int64_t *>room.take(batch * sizeof(int64_t))

    def begin(self, bound):
        """Pack the weights and clear the sums."""
        cdef const membptt_kernels *k = self.k
        Head.begin(self, bound)
        weights = np.ascontiguousarray(bound.params["W_y"])
        bias = np.ascontiguousarray(bound.params["b_y"])
        k.pack(address(weights), NULL, self.packed, self.hidden_size, self.outputs, 1)
        k.pack(NULL, address(bias), self.bias, 1, self.outputs, 1)
        k.pack_transposed(address(weights), self.packed_back, self.hidden_size, self.outputs, 1)
        memset(self.sums, 0, self.panels * self.hidden_size * k.width * sizeof(double))
        memset(self.bias_sums, 0, self.panels * k.width * sizeof(double))
        self.scale = bound.scale
        if bound.kernel == "softmax":
            self.classes = Integers(bound.targets)
        else:
            self.classes = None
            self.dense_array = np.ascontiguousarray(bound.targets)
            self.dense = <const char *>address(self.dense_array)

    cdef int step(self, long step, const void *h, void *dh) except -1 nogil:
        cdef const membptt_kernels *k = self.k
        cdef long B = self.batch, H = self.hidden_size, rows = self.rows, b
        cdef long first = (step - 1) % self.block_steps * B
        cdef char *d = <char *>self.d + first * k.width * k.itemsize
        cdef double loss
        k.project(h, self.packed, self.bias, d, B, H, rows, 0, self.panels)
        if self.classes is not None:
            for b in range(B):
                self.classes_now[b] = self.classes.at((step - 1) * B + b)
            loss = k.softmax(d, self.classes_now, B, self.outputs, rows, 0, self.scale)
        else:
            loss = k.squared_error(d, self.dense + (step - 1) * B * self.outputs * k.itemsize,
                                   B, self.outputs, rows, 0, self.scale)
        self.loss += loss * self.scale
        if not isfinite(loss):
            self.first_bad_step = step
        k.product_back(self.d, self.packed_back, dh, B, self.panels, H, rows, first, True,
                       0, (H + k.width - 1) // k.width)
        k.to_panels(h, self.h_panels, B, H, rows, first)
        if first == 0:
            k.weight_gradient(self.h_panels, self.d, self.sums, self.bias_sums,
                              min(self.block_steps, self.steps - step + 1) * B, H, rows,
                              0, self.panels)
        return 0

    def gradients(self):
        """Return the gradients of W_y [H, V] and b_y [V]."""
        dtype = np.float32 if self.k.itemsize == 4 else np.float64
        weights = np.empty((self.hidden_size, self.outputs), dtype)
        bias = np.empty(self.outputs, dtype)
        self.k.unpack(self.sums, address(weights), self.hidden_size, self.outputs, 1)
        self.k.unpack(self.bias_sums, address(bias), 1, self.outputs, 1)
        return {"W_y": weights, "b_y": bias}


cdef class PythonHead(Head):
    """A head of the user's own: `forward_backward(step, h, grads)` is called once a step."""

    def __init__(self, long batch, long hidden_size, dtype):
        self.dtype = dtype
        self.shape = (batch, hidden_size)

    def begin(self, bound):
        """Clear the gradients."""
        Head.begin(self, bound)
        self.bound = bound
        self.grads = {name: np.zeros_like(value) for name, value in bound.params.items()}

    cdef int step(self, long step, const void *h, void *dh) except -1 nogil:
        with gil:
            self._call(step, h, dh)
        return 0

    cdef _call(self, long step, const void *h, void *dh):
        cdef long nbytes = self.shape[0] * self.shape[1] * self.dtype.itemsize
        # A copy of h: the user's code may keep it, or write into it.
        h_now = np.frombuffer((<const char *>h)[:nbytes], self.dtype).reshape(self.shape)
        loss, dh_step = self.bound.forward_backward(step, h_now, self.grads)
        dh_total = np.frombuffer(<char[:nbytes]><char *>dh, self.dtype).reshape(self.shape)
        dh_total += dh_step
        self.loss += loss
        if not isfinite(<double>loss):
            self.first_bad_step = step

    def gradients(self):
        """Return what the user's head added up."""
        return self.grads
