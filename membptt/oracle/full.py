"""Full BPTT: the oracle. Every internal state is stored; there is no schedule and no budget.

    forward:  t = 1 ... T, store the internal state of step t
    backward: t = T ... 1, head and backward of step t from its internal state

Nothing of the solver, the schedules or the executor's loop is used here, only the chain's moves.
"""

import time
from itertools import accumulate

import numpy as np

from membptt.arrays import array_module
from membptt.cells import Cell
from membptt.chains.registry import begin, device_peak, finish, make_chain
from membptt.executor.result import Result, Stats
from membptt.executor.window import check_finite, check_inputs, check_window, room_for_input_grads
from membptt.sequences.lengths import check_lengths
from membptt.types import Inputs, LossHead, RowLengths, State


def full_bptt(
    cell: Cell,
    inputs: Inputs,
    head: LossHead,
    state: State | None = None,
    input_grads: bool = False,
    lengths: RowLengths | None = None,
) -> Result:
    """Back-propagate with everything stored.

    Parameters
    ----------
    cell, inputs, head, state, input_grads, lengths
        As in `membptt.bptt`.

    Returns
    -------
    Result
        As from `membptt.bptt`; ``stats.peak_bytes`` is that of all internal states: T times one,
        or less where rows end before.
    """
    started = time.perf_counter()
    inputs = check_inputs(cell, inputs, lengths)
    steps, batch = inputs.shape[:2]
    rows = check_lengths(lengths, steps, batch)
    state = check_window(cell, inputs, head, state, steps, batch, rows)
    internal = [cell.internal_nbytes(batch)] * steps if rows is None else rows.sizes(cell)[1]
    at = [0, *accumulate(internal)]  # where each step's internal state begins, and their end
    stored = array_module(cell.backend).empty(at[steps], dtype=np.uint8)
    chain = make_chain(cell, head, steps, batch, input_grads=input_grads, packed=rows is not None)
    by_inputs = room_for_input_grads(cell, inputs) if input_grads else None
    chain.by_inputs = by_inputs
    begin(chain, inputs, head, state, stored, rows)
    for step in range(1, steps + 1):
        chain.forward(step - 1, step, at[step - 1])
    for step in range(steps, 0, -1):
        chain.backward(step, at[step - 1])
    loss, bad_step, grads, last, state_grad = finish(chain, rows)
    check_finite(cell, inputs, head, state, bad_step, grads, rows)
    seconds = time.perf_counter() - started
    sizes = stored.nbytes, stored.nbytes, chain.workspace_nbytes
    stats = Stats(steps, steps, *sizes, seconds, device_peak_bytes=device_peak(chain))
    return Result(loss, grads, last, state_grad, stats, input_grads=by_inputs)
