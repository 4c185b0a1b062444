"""Truncated BPTT (Williams and Peng 1990): every so many steps, back a fixed number of steps.

    loss of the steps     1 ... k1    k1+1 ... 2 k1    2 k1+1 ... 3 k1    ...
    reaches back to       h_0         h_{2 k1 - k2}    h_{3 k1 - k2}      ...

with k1 the stride and k2 >= k1 the window; k1 = k2 is what most programs do. The forward pass is
exact: the state goes on from window to window. The gradient is not: beyond the start of a window
the state counts as a constant, so what a step owes to anything more than k2 steps before it is left
out. No sequence is too long for it; a dependence can be.
"""

import time

import numpy as np

from membptt.arrays import array_module, namespace
from membptt.cells import Cell
from membptt.chains.plain import views
from membptt.chains.registry import make_chain
from membptt.checks import integer
from membptt.executor.result import Result, Stats
from membptt.executor.window import check_finite, check_inputs, check_window
from membptt.sequences.blocks import Blocks
from membptt.types import Inputs, LossHead, State


def truncated_bptt(
    cell: Cell,
    inputs: Inputs,
    head: LossHead,
    window: int,
    state: State | None = None,
    stride: int | None = None,
) -> Result:
    """Return the exact loss, and gradients that are cut at the start of every window.

    Parameters
    ----------
    cell, inputs, head
        As in `membptt.bptt`.
    window : int
        k2: how many steps the gradient goes back from the last step of a window.
    state : tuple of numpy.ndarray, optional
        The initial hidden state; zeros by default.
    stride : int, optional
        k1: how many steps a window's losses stand at, its last ones; at most `window`. By default
        `window`, so that windows do not overlap.

    Returns
    -------
    Result
        As from `membptt.bptt`. ``grads`` are the sums over all windows, to be used as if exact;
        ``stats.peak_bytes`` is what the internal states of one window take, and where windows
        overlap the steps in common are run again.

    Raises
    ------
    ValueError, TypeError
        As from `membptt.bptt`; or if `window` or `stride` is not a positive whole number, or
        `stride` is above `window`.

    Notes
    -----
    With `window` of T or more steps and no `stride` these are the gradients of full BPTT.

    Williams and Peng, "An efficient gradient-based algorithm for on-line training of recurrent
    network trajectories" (1990).
    """
    started = time.perf_counter()
    inputs = check_inputs(cell, inputs)
    steps, batch = inputs.shape[:2]
    initial = check_window(cell, inputs, head, state, steps, batch)
    window = integer("window", window, minimum=1)
    stride = window if stride is None else integer("stride", stride, minimum=1)
    if stride > window:
        raise ValueError(f"stride is {stride}; give at most {window}, the window")
    size = cell.internal_nbytes(batch)
    xp = array_module(cell.backend)
    stored = xp.empty(min(window, steps) * size, dtype=np.uint8)
    grads = {name: xp.zeros_like(value) for name, value in (cell.params | head.params).items()}
    state_grad = tuple(xp.zeros_like(array) for array in initial)
    loss, bad_step, forwards, workspace = 0.0, 0, 0, 0
    begin, done, entering = 0, 0, initial
    while done < steps:
        end = min(done + stride, steps)
        part = Part(head, begin, done)
        chain = make_chain(cell.at(begin), part, end - begin, batch)
        chain.begin(steps_of(inputs, begin, end), part, entering, stored)
        for step in range(1, end - begin + 1):
            chain.forward(step - 1, step, (step - 1) * size)
        following = max(0, end + stride - window)
        if following < end:  # the state that entered a step is a part of its internal state
            at = (following - begin) * size
            internal = views(stored, at, cell.internal_shapes(batch), cell.dtype)
            entering = tuple(array.copy() for array in cell.entering(internal))
        for step in range(end - begin, 0, -1):
            chain.backward(step, (step - 1) * size)
        share, bad, found, last, by_state = chain.finish()
        loss += share
        bad_step = bad_step or (bad and bad + begin)
        for name, gradient in found.items():
            grads[name] += gradient
        if begin == 0:
            for total, gradient in zip(state_grad, by_state, strict=True):
                total += gradient
        forwards += end - begin
        workspace = max(workspace, chain.workspace_nbytes)
        if following == end:
            entering = last
        begin, done = following, end
    check_finite(cell, inputs, head, initial, bad_step, grads)
    seconds = time.perf_counter() - started
    stats = Stats(forwards, forwards, stored.nbytes, stored.nbytes, workspace, seconds)
    return Result(loss, grads, last, state_grad, stats)


def steps_of(inputs, begin, end):
    """Return the inputs of the steps begin + 1 ... end, read from where they are."""
    if not isinstance(inputs, Blocks):
        return inputs[begin:end]
    block = np.empty((end - begin, *inputs.shape[1:]), inputs.dtype)
    inputs.read(begin, block)
    return block


class Part:
    """A head for the steps of one window, of which only those after step `done` have a loss."""

    def __init__(self, head, begin, done):
        self.whole, self.begin, self.done = head, begin, done
        self.params = head.params

    def forward_backward(self, step, h, grads):
        """Return the step's share of the loss and its derivative by h; see `BoundHead`."""
        if self.begin + step <= self.done:
            return 0.0, namespace(h).zeros_like(h)
        return self.whole.forward_backward(self.begin + step, h, grads)
