"""The softmax head, forward and backward, at a small and a large vocabulary.

Ours is timed with the smallest cell that can carry it: an RNN of 128 units on tokens. At a
vocabulary of 100 that cell is a good part of the time, at 10,000 it is nothing.
"""

import numpy as np

import membptt as mb

from . import pytorch

STEPS, BATCH, HIDDEN = 50, 16, 128


class Softmax:
    """50 steps of batch 16."""

    params = (("cython", "numpy", "pytorch"), (100, 10_000))
    param_names = ("code", "vocabulary")

    def setup(self, code, vocabulary):
        targets = np.random.default_rng(0).integers(0, vocabulary, (STEPS, BATCH))
        make = torch_head if code == "pytorch" else our_head
        self.run = make(code, vocabulary, targets)
        self.run()

    def time_forward_backward(self, code, vocabulary):
        self.run()


def our_head(backend, vocabulary, targets):
    """Return the function to time."""
    cell = mb.RNN(2, HIDDEN, backend=backend)
    head = mb.SoftmaxHead(HIDDEN, vocabulary).with_targets(targets)
    plan = mb.schedule(STEPS, STEPS * cell.internal_nbytes(BATCH), "full", cell, BATCH)
    executor = mb.Executor(cell, plan, BATCH, threads=1)
    tokens = np.zeros((STEPS, BATCH), np.uint8)
    return lambda: executor.run(tokens, head)


def torch_head(backend, vocabulary, targets):
    """Return the same from PyTorch, all steps in one product."""
    torch = pytorch()
    layer = torch.nn.RNN(2, HIDDEN)
    output = torch.nn.Linear(HIDDEN, vocabulary)
    x, targets = torch.zeros(STEPS, BATCH, 2), torch.from_numpy(targets).flatten()

    def run():
        layer.zero_grad()
        output.zero_grad()
        y = output(layer(x)[0]).flatten(0, 1)
        torch.nn.functional.cross_entropy(y, targets).backward()

    return run
