"""Forward, and forward with backward, of one dense window: ours compiled and plain, and PyTorch's.

All compute every weight gradient, with the same output layer of one number and the mean squared
error at each step. No strategy: everything is stored.
"""

import numpy as np

import membptt as mb
from membptt.chains.registry import make_chain

from . import pytorch

STEPS = 100
CELLS = {"rnn": mb.RNN, "gru": mb.GRU, "lstm": mb.LSTM}
SIZES = {"B1 H64": (1, 64), "B16 H256": (16, 256)}
CODES = ("cython float32", "cython float64", "numpy float32", "pytorch float32")


class Window:
    """T = 100 steps; as many inputs as hidden units."""

    params = (tuple(CELLS), CODES, tuple(SIZES))
    param_names = ("cell", "code", "size")

    def setup(self, cell, code, size):
        backend, dtype = code.split()
        batch, hidden = SIZES[size]
        x = np.random.default_rng(0).standard_normal((STEPS, batch, hidden)).astype(dtype)
        make = torch_window if backend == "pytorch" else our_window
        self.forward, self.forward_backward = make(cell, x, backend, dtype)
        self.forward(), self.forward_backward()  # allocate what later runs use again

    def time_forward(self, cell, code, size):
        self.forward()

    def time_forward_backward(self, cell, code, size):
        self.forward_backward()


def our_window(kind, x, backend, dtype):
    """Return the two functions to time."""
    batch, hidden = x.shape[1:]
    cell = CELLS[kind](hidden, hidden, dtype, backend=backend)
    head = mb.LinearHead(hidden, 1, dtype).with_targets(np.zeros((STEPS, batch, 1), dtype))
    size = cell.internal_nbytes(batch)
    plan = mb.schedule(STEPS, STEPS * size, "full", cell, batch)
    executor = mb.Executor(cell, plan, batch, threads=1)
    chain = make_chain(cell, head, STEPS, batch)
    arena = np.zeros(STEPS * size, np.uint8)

    def forward():
        chain.begin(x, head, cell.zero_state(batch), arena)
        for step in range(1, STEPS + 1):
            chain.forward(step - 1, step, (step - 1) * size)

    return forward, lambda: executor.run(x, head)


def torch_window(kind, x, backend, dtype):
    """Return the same from PyTorch."""
    torch = pytorch()
    batch, hidden = x.shape[1:]
    layer = getattr(torch.nn, kind.upper())(hidden, hidden)
    output = torch.nn.Linear(hidden, 1)
    x, zeros = torch.from_numpy(x), torch.zeros(STEPS, batch, 1)

    def forward_backward():
        layer.zero_grad()
        output.zero_grad()
        torch.nn.functional.mse_loss(output(layer(x)[0]), zeros).backward()

    return lambda: layer(x), forward_backward
