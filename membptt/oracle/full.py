"""Full BPTT: the oracle. Every internal state is stored; there is no schedule and no budget.

    forward:  t = 1 ... T, store the internal state of step t
    backward: t = T ... 1, head and backward of step t from its internal state

Nothing of the solver, the schedules or the executor's loop is used here, only the cell's own steps.
"""

import time

import numpy as np

from membptt.arrays import array_module
from membptt.cells import Cell
from membptt.executor.chain import device_peak, make_chain
from membptt.executor.result import Result, Stats
from membptt.executor.window import check_finite, check_inputs, check_window, room_for_input_grads
from membptt.types import Inputs, LossHead, State


def full_bptt(
    cell: Cell,
    inputs: Inputs,
    head: LossHead,
    state: State | None = None,
    input_grads: bool = False,
) -> Result:
    """Back-propagate with everything stored.

    Parameters
    ----------
    cell, inputs, head, state, input_grads
        As in `membptt.bptt`.

    Returns
    -------
    Result
        As from `membptt.bptt`; ``stats.peak_bytes`` is T times the internal state.
    """
    started = time.perf_counter()
    inputs = check_inputs(cell, inputs)
    steps, batch = inputs.shape[:2]
    state = check_window(cell, inputs, head, state, steps, batch)
    size = cell.internal_nbytes(batch)
    stored = array_module(cell.backend).empty(steps * size, dtype=np.uint8)
    chain = make_chain(cell, head, steps, batch, input_grads=input_grads)
    by_inputs = room_for_input_grads(cell, inputs) if input_grads else None
    chain.by_inputs = by_inputs
    chain.begin(inputs, head, state, stored)
    for step in range(1, steps + 1):
        chain.forward(step - 1, step, (step - 1) * size)
    for step in range(steps, 0, -1):
        chain.backward(step, (step - 1) * size)
    loss, bad_step, grads, last, state_grad = chain.finish()
    check_finite(cell, inputs, head, state, bad_step, grads)
    seconds = time.perf_counter() - started
    sizes = stored.nbytes, stored.nbytes, chain.workspace_nbytes
    stats = Stats(steps, steps, *sizes, seconds, device_peak_bytes=device_peak(chain))
    return Result(loss, grads, last, state_grad, stats, input_grads=by_inputs)
