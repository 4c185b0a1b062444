"""The loss without gradients: the steps run forward once, and one hidden state is all that stays.

    for t = 1 ... T: the hidden state after the step to the arena, the head on what lies there

The head is asked by its `forward_backward`, as at backward time; the gradients that it adds to go
nowhere.
"""

import numpy as np

from membptt.arrays import array_module, from_host, to_host
from membptt.cells import Cell
from membptt.chains.plain import views
from membptt.chains.registry import NoHead, Team, begin, make_chain
from membptt.executor.window import check_finite, check_inputs, check_window
from membptt.kernels.threads import useful_threads
from membptt.sequences.lengths import check_lengths
from membptt.types import Inputs, LossHead, RowLengths, State


def evaluate(
    cell: Cell,
    inputs: Inputs,
    head: LossHead,
    state: State | None = None,
    lengths: RowLengths | None = None,
) -> tuple[float, State]:
    """Return the loss of a window and the hidden state after it, in memory independent of T.

    Without noise, whatever masks the cell is set to (`Cell.set_noise`); they stay set.

    Parameters
    ----------
    cell : membptt.Cell
    inputs : numpy.ndarray or reader
        [T, B, I] of the cell's dtype, or tokens [T, B]. Readers, and arrays that are not in C
        order, are read block by block.
    head : membptt.heads.BoundHead
        A head with its targets, or an object of yours with the same methods.
    state : tuple of numpy.ndarray, optional
        The initial hidden state; zeros by default.
    lengths : sequence of int, optional
        [B]: how many of the steps each row has; as for `membptt.bptt`.

    Returns
    -------
    loss : float
        What `membptt.full_bptt` gives without noise, up to the rounding of a sum: it adds up from
        the last step on, this from the first.
    state : tuple of numpy.ndarray
        After each row's last step, to go on with; the bits of `membptt.full_bptt`.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        As `membptt.bptt`.
    """
    inputs = check_inputs(cell, inputs, lengths)
    cell = cell.without_noise()  # the caller's keeps its masks
    steps, batch = inputs.shape[:2]
    lengths = check_lengths(lengths, steps, batch)
    state = check_window(cell, inputs, head, state, steps, batch, lengths)
    xp = array_module(cell.backend)
    unused = {name: xp.zeros_like(value) for name, value in head.params.items()}
    loss, bad_step = 0.0, 0
    last = tuple(xp.zeros_like(array) for array in state)
    for step, hidden, *rows in hidden_states(cell, inputs, state, lengths=lengths):
        # A copy: a user's head may keep it.
        share, _ = head.forward_backward(step, xp.array(hidden[0]), unused, *rows)
        loss = loss + share  # on a device: reading it would wait
        bad_step = xp.where(xp.isfinite(share) | (bad_step > 0), bad_step, step)
        if rows:
            for kept, array in zip(last, hidden, strict=True):
                kept[rows[0]] = array
    if lengths is None:
        last = tuple(xp.array(array) for array in hidden)
    check_finite(cell, inputs, head, state, int(to_host(bad_step)), {}, lengths)
    return float(to_host(loss)), last


def hidden_states(cell, inputs, state, threads=None, lengths=None):
    """Run all steps forward, and yield the number of each with the hidden state after it.

    Inputs, state and lengths are what `check_inputs`, `check_window` and `check_lengths` returned.
    Where rows have lengths, the third thing that is yielded are the numbers of those that ran. The
    arrays are written over by the next step.
    """
    steps, batch = inputs.shape[:2]
    xp = array_module(cell.backend)
    chain = make_chain(cell, NoHead(), steps, batch, packed=lengths is not None)
    arena = xp.empty(cell.hidden_nbytes(batch), dtype=np.uint8)
    hidden = views(arena, 0, cell.hidden_shapes(batch), cell.dtype)
    begin(chain, inputs, NoHead(), state, arena, lengths)
    order = None if lengths is None else from_host(lengths.order, xp)
    with Team(chain, useful_threads(cell, batch, threads)):
        for step in range(1, steps + 1):
            chain.forward(step - 1, step)
            chain.save_hidden(0)
            if lengths is None:
                yield step, hidden
            else:
                ran, going_on = lengths.live(step), lengths.live(step + 1)
                saved = views(arena, 0, cell.hidden_shapes(going_on), cell.dtype)
                if going_on < ran:  # the others have ended with this step
                    pairs = zip(saved, chain.ended(), strict=True)
                    saved = tuple(xp.concat((part, end[going_on:ran])) for part, end in pairs)
                yield step, saved, order[:ran]
