"""RTRL, real-time recurrent learning (Williams and Zipser 1989): exact gradients in forward mode.

The sensitivities S_t = ds_t/dθ of the hidden state s by every parameter θ are carried along with
it, from t = 1 to T. For a step s_t = f(θ, s_{t-1}),

    S_t = ∂f/∂s · S_{t-1} + ∂f/∂θ                  dL/dθ = Σ_t  dL_t/ds_t · S_t

Nothing is stored for a way back, so the memory does not depend on T, and gradients are known after
every step. The price is time and the size of S: H × P numbers a row instead of H.

Here both terms come from one complex step for each parameter p, in its direction:

    S_t[p] = Im f(θ + iε e_p, s_{t-1} + iε S_{t-1}[p]) / ε                 (error of order ε²)

No difference is taken, so ε can be as small as one likes and the result is exact to rounding. Only
`forward_step` is called, with complex arrays: nothing of a cell's backward is used, and RTRL is a
second exact method to hold full BPTT against.

Letters of shapes: B batch, S numbers of a hidden state's row, P parameters of the cell.
"""

import copy
import time

import numpy as np

from membptt.cells.base import Cell, check_cell
from membptt.cells.reduced import is_reduced
from membptt.checks import shown
from membptt.executor.result import Result, Stats
from membptt.executor.window import check_finite, check_inputs, check_window
from membptt.oracle.differences import (
    bound_in_double,
    check_in_double,
    doubled,
    in_double,
    state_in_double,
)
from membptt.sequences.blocks import sequence
from membptt.types import Array, Inputs, LossHead, State

EPSILON = 2.0**-200  # its square is lost beside any number; a power of two divides exactly


def rtrl(cell: Cell, inputs: Inputs, head: LossHead, state: State | None = None) -> Result:
    """Return loss and gradients by forward-mode differentiation, in float64.

    Parameters
    ----------
    cell : membptt.Cell
        Not changed; a float32 cell is run as a float64 copy. Its `forward_step` has to be made of
        analytic array code (sums, products, tanh, exp; no absolute value, no comparison).
    inputs, head, state
        As in `membptt.bptt`, on the host; they are taken to float64 too, but for a head of yours,
        whose parameters have to be float64.

    Returns
    -------
    Result
        As from `membptt.bptt`, in float64. ``stats.peak_bytes`` are the bytes of the sensitivities
        and ``stats.forward_steps`` counts the complex steps too: T (1 + P + S).

    Raises
    ------
    ValueError, TypeError
        As from `membptt.bptt`.

    Notes
    -----
    A step costs one forward for each parameter: for a cell of H units with as many inputs, of the
    order of H² P multiplications. Meant for small cells.

    Williams and Zipser, "A learning algorithm for continually running fully recurrent neural
    networks" (1989); Squire and Trapp, "Using complex variables to estimate derivatives of real
    functions" (1998).
    """
    started = time.perf_counter()
    check_cell(cell)
    if cell.backend == "cupy":
        raise ValueError("backend is 'cupy', RTRL runs on the host; give a cell of backend 'numpy'")
    if is_reduced(cell):
        raise ValueError(
            f"cell is {shown(cell)}; RTRL keeps no internal states: give the exact cell"
        )
    given, cell = cell, in_double(cell)
    inputs = doubled(np.asarray(sequence("inputs", inputs)))
    window: Array = check_inputs(cell, inputs)
    steps, batch = window.shape[:2]
    check_in_double(head, None, given, batch)
    if hasattr(head, "head"):
        head = bound_in_double(head)
    if state is not None:
        state = state_in_double(state, np)
    initial = check_window(cell, window, head, state, steps, batch)

    params = cell.params
    sensitivities = Sensitivities(cell, batch)
    grads = {name: np.zeros_like(value) for name, value in (params | head.params).items()}
    state_grad = tuple(np.zeros_like(array) for array in initial)
    loss, bad_step = 0.0, 0
    state = initial
    for step in range(1, steps + 1):
        x = window[step - 1]
        sensitivities.advance(step, x, state)
        state = cell.at(step).advance(x, state)
        share, dh = head.forward_backward(step, np.array(state[0]), grads)
        loss += share
        if not np.isfinite(share) and not bad_step:
            bad_step = step
        sensitivities.add_gradients(dh, grads, state_grad)
    check_finite(cell, window, head, initial, bad_step, grads)
    forwards = steps * (1 + len(sensitivities.directions))
    seconds = time.perf_counter() - started
    nbytes = sensitivities.nbytes
    return Result(loss, grads, state, state_grad, Stats(forwards, 0, nbytes, nbytes, 0, seconds))


class Sensitivities:
    """The derivatives of the hidden state by every parameter and by the initial hidden state.

    Attributes
    ----------
    directions : list of (name, index)
        What is moved, one after the other: each element of each parameter; then, with the array's
        number in place of a name, each element of the initial state's row. (Rows of a batch do not
        meet, so that all of them move at once.)
    values : list of numpy.ndarray
        For each array of the hidden state, [len(directions), *its shape].
    """

    def __init__(self, cell, batch):
        self.cell = copy.copy(cell)
        self.cell.dtype = np.dtype(np.complex128)
        self.cell.params = {name: a.astype(np.complex128) for name, a in cell.params.items()}
        shapes = cell.hidden_shapes(batch)
        rows = {k: shape[1:] for k, shape in enumerate(shapes)}
        arrays = {name: a.shape for name, a in cell.params.items()} | rows
        self.directions = [(name, at) for name, shape in arrays.items() for at in np.ndindex(shape)]
        self.values = [np.zeros((len(self.directions), *shape)) for shape in shapes]
        for number, (name, at) in enumerate(self.directions):
            if name in rows:
                self.values[name][(number, slice(None), *at)] = 1  # ds_0/ds_0

    @property
    def nbytes(self):
        """The bytes of all sensitivities: the same at every step."""
        return sum(value.nbytes for value in self.values)

    def advance(self, step, x, state):
        """Go from S_{t-1} to S_t, by the step t that reads x and the state s_{t-1}."""
        cell = self.cell.at(step)  # its parameters are the same arrays
        for number, (name, at) in enumerate(self.directions):
            parameter = self.cell.params.get(name)
            if parameter is not None:
                parameter[at] += 1j * EPSILON
            moved = tuple(
                array + 1j * EPSILON * value[number]
                for array, value in zip(state, self.values, strict=True)
            )
            after, _ = cell.forward_step(x, moved)
            for array, value in zip(after, self.values, strict=True):
                value[number] = array.imag / EPSILON
            if parameter is not None:
                parameter[at] = parameter[at].real

    def add_gradients(self, dh, grads, state_grad):
        """Add what the derivative dh by the hidden state's first array gives to the gradients."""
        products = self.values[0] * dh
        for (name, at), product in zip(self.directions, products, strict=True):
            if name in grads:
                grads[name][at] += product.sum()
            else:
                state_grad[name][(slice(None), *at)] += product.reshape(len(dh), -1).sum(axis=1)
