"""The packed products of the kernels against NumPy's matmul on the same shapes.

Ours are timed where they work, in the steps of an LSTM on tokens, whose input product is a look-up
of rows: a forward step is h W_h and the gates, a backward step da W_h', its share of h' da, and the
gates again. NumPy's products run alone, from operands that are ready in memory. That flatters them,
the more so the smaller H is: the gates cost B H, the products B H².
"""

import numpy as np

import membptt as mb
from membptt.chains.registry import make_chain

STEPS = 100
SHAPES = {"B1 H128": (1, 128), "B16 H256": (16, 256), "B16 H512": (16, 512), "B64 H64": (64, 64)}


class Products:
    """One hundred steps of recurrent products, four gates wide."""

    params = (("membptt", "numpy"), tuple(SHAPES))
    param_names = ("code", "shape")
    number = 1  # the backward needs the forward that setup makes
    warmup_time = 0

    def setup(self, code, shape):
        batch, hidden = SHAPES[shape]
        generator = np.random.default_rng(0)
        if code == "numpy":
            self.h = generator.standard_normal((batch, hidden), np.float32)
            self.W = generator.standard_normal((hidden, 4 * hidden), np.float32)
            self.da = generator.standard_normal((batch, 4 * hidden), np.float32)
            self.numpy_forward(), self.numpy_backward()
            return
        cell = mb.LSTM(2, hidden)
        head = mb.LinearHead(hidden, 1).with_targets(np.zeros((STEPS, batch, 1), np.float32))
        tokens = generator.integers(0, 2, (STEPS, batch), np.uint8)
        self.size = cell.internal_nbytes(batch)
        self.chain = make_chain(cell, head, STEPS, batch)
        self.chain.begin(
            tokens, head, cell.zero_state(batch), np.zeros(STEPS * self.size, np.uint8)
        )
        self.membptt_forward()
        self.chain.restart(0)  # the initial state

    def numpy_forward(self):
        for _ in range(STEPS):
            self.h @ self.W

    def numpy_backward(self):
        for _ in range(STEPS):
            self.da @ self.W.T
            self.h.T @ self.da

    def membptt_forward(self):
        for step in range(1, STEPS + 1):
            self.chain.forward(step - 1, step, (step - 1) * self.size)

    def membptt_backward(self):
        for step in range(STEPS, 0, -1):
            self.chain.backward(step, (step - 1) * self.size)

    def time_forward(self, code, shape):
        self.numpy_forward() if code == "numpy" else self.membptt_forward()

    def time_backward(self, code, shape):
        self.numpy_backward() if code == "numpy" else self.membptt_backward()
