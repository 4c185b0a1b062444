"""Two chains over one sequence, one in each direction, whose states meet in one output layer.

    forward    f_t = cell_f(x_t, f_{t-1})   t = 1 ... T
    backward   b_t = cell_b(x_t, b_{t+1})   t = T ... 1
    outputs    y_t = f_t W_f + b_t W_b + b_y           W_f: the first rows of the head's W_y

Back-propagation comes to f_T first in one chain and to b_1 first in the other: nobody ever has both
states of a step. To keep one of them at every step would take memory that grows as T times H. So
what is kept is one array of outputs [T, B, V], V being the classes or outputs of the head:

    1. cell_f runs forward once:     outputs_t = f_t W_f + b_y, no state stays
    2. BPTT of cell_b in its budget: y_t = outputs_t + b_t W_b, its loss; outputs_t = dL/dy_t
    3. BPTT of cell_f in its budget: reads dL/dy_t

The gradients are those of the whole network, for one forward sweep more than two BPTTs take.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from membptt.arrays import all_finite, array_module, from_host, namespace
from membptt.cells.base import Cell, check_cell
from membptt.checks import shown
from membptt.executor.evaluate import hidden_states
from membptt.executor.executor import Executor
from membptt.executor.result import BidirectionalResult, Stats
from membptt.executor.window import (
    check_head_lengths,
    check_inputs,
    check_window,
    raise_not_finite,
)
from membptt.schedules import AnySchedule
from membptt.sequences.blocks import Blocks
from membptt.sequences.lengths import check_lengths
from membptt.types import Array, Inputs, RowLengths, State

DIRECTIONS = "forward", "backward"


def bptt_bidirectional(
    cells: Sequence[Cell],
    inputs: Inputs,
    head: Any,
    schedule: AnySchedule | Sequence[AnySchedule],
    state: Sequence[State | None] = (None, None),
    outputs: Array | None = None,
    threads: int | None = None,
    lengths: RowLengths | None = None,
) -> BidirectionalResult:
    """Back-propagate through a network that reads the sequence in both directions.

    Parameters
    ----------
    cells : pair of membptt.Cell
        The one that reads from step 1 on, and the one that reads from step T on. Of one dtype and
        one backend, and of any kinds and sizes.
    inputs : numpy.ndarray or reader
        As for `membptt.bptt`: both cells read them.
    head : membptt.heads.BoundHead
        ``SoftmaxHead(H_f + H_b, V).with_targets(targets)``. The first H_f rows of its ``W_y`` read
        the forward cell.
    schedule : membptt.Schedule, or a pair of them
        For each cell. They run one after the other: the budget in use is that of the larger one.
    state : pair of tuples of numpy.ndarray
        What enters step 1 of the forward cell, and step T of the backward cell; zeros by default.
    outputs : numpy.ndarray, optional
        [T, B, V] of the cells' dtype, to work in: a `numpy.memmap` where it is too large for
        memory. It stands beside the budget.
    threads : int, optional
        As for `membptt.Executor`.
    lengths : sequence of int, optional
        [B]: how many of the steps each row has, as for `membptt.bptt`; the backward cell begins at
        each row's own end. Inputs and targets must be arrays then.

    Returns
    -------
    BidirectionalResult
        Its ``stats`` add up both chains and the sweep; ``peak_bytes`` and ``arena_bytes`` are the
        larger ones, ``outputs_bytes`` is the size of the array of outputs.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        As `membptt.bptt`, and if cells, head or outputs do not fit together.

    Notes
    -----
    Bidirectional networks: Schuster and Paliwal (1997). Loss and gradients have the same bits under
    every schedule.

    Cells with noise have masks of their own in each direction, also where both were given one seed:
    the backward cell's are not those that it has in `membptt.bptt`.
    """
    started = time.perf_counter()
    cells, states = pair("cells", cells), pair("state", state)
    both = schedule if isinstance(schedule, tuple | list) else (schedule, schedule)
    schedules = pair("schedule", both)
    check_alike(cells)
    cells = cells[0], cells[1].reseeded()
    checked = [check_inputs(cell, inputs, lengths) for cell in cells]
    steps, batch = checked[0].shape[:2]
    check_together(cells, head, steps, batch)
    ending = check_lengths(lengths, steps, batch)
    if ending is not None:
        check_reversible(checked[0], head, ending)
    outputs = room(outputs, (steps, batch, head.head.outputs), cells[0])
    first = cells[0].hidden_size
    inner = Inner(head, outputs, first)
    outer = Outer(head if ending is None else from_ends(head, ending), outputs, first, ending)
    windows = []
    for cell, plan, each, half, enters in zip(
        cells, schedules, checked, (inner, outer), states, strict=True
    ):  # what does not fit is named before anything runs
        Executor(cell, plan, batch)
        enters = check_window(cell, each, half, enters, plan.steps, batch, ending)
        windows.append((each, half, enters, ending))
    sweep(cells[0], *windows[0], threads)
    first, second = cells[0].params | inner.params, cells[1].params | outer.params
    kept = [outputs, *first.values(), *windows[0][2]]  # by others, while the backward cell runs
    try:
        turned = backwards(checked[1], ending)
        back = run(cells[1], schedules[1], (turned, *windows[1][1:]), threads, kept)
    except (ValueError, FloatingPointError) as error:
        raise type(error)(f"the backward cell, whose step 1 is the last one: {error}") from None
    kept = [outputs, *second.values(), *windows[1][2]]
    kept += [*back.grads.values(), *back.state, *back.state_grad]
    forth = run(cells[0], schedules[0], windows[0], threads, kept)
    return joined(forth, back, outputs.nbytes, time.perf_counter() - started)


def run(cell, plan, window, threads, kept):
    """Return the result of one chain; `kept` are the arrays that others hold on a device."""
    executor = Executor(cell, plan, window[0].shape[1], threads=threads)
    if executor.ledger is not None:
        executor.ledger.hold("the other chain", sum(array.nbytes for array in kept))
    return executor.run(*window)


def pair(name, values):
    """Return the two values, or raise."""
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise TypeError(f"{name} is {shown(values)}; give a pair, the forward cell's first")
    return tuple(values)


def check_alike(cells):
    """Raise unless both are cells, of one dtype and one backend."""
    forward, backward = cells
    check_cell(forward)
    check_cell(backward)
    for name in ("dtype", "backend"):
        ours, theirs = getattr(forward, name), getattr(backward, name)
        if ours != theirs:
            raise ValueError(f"cells have {name} {ours} and {theirs}; give two of one {name}")


def check_together(cells, head, steps, batch):
    """Raise unless both cells, the head and its targets make one network."""
    forward, backward = cells
    if not hasattr(head, "loss_of"):
        raise TypeError(
            f"head is {shown(head)}; give a SoftmaxHead or LinearHead with its targets, as "
            "head.with_targets(targets)"
        )
    wanted = forward.hidden_size + backward.hidden_size
    if head.head.hidden_size != wanted:
        raise ValueError(
            f"the head's hidden_size is {head.head.hidden_size}; give {wanted}, both cells' "
            "together"
        )
    shape = head.targets.shape[:2]
    if shape != ((steps, batch) if head.ends is None else (1, batch)):
        raise ValueError(
            f"targets have shape {head.targets.shape}; give {steps} steps and batch {batch}, as "
            "inputs"
        )


def room(outputs, shape, cell):
    """Return the array of outputs: the caller's if it fits, or a new one."""
    xp = array_module(cell.backend)
    if outputs is None:
        return xp.empty(shape, dtype=cell.dtype)
    if not isinstance(outputs, xp.ndarray) or (outputs.shape, outputs.dtype) != (shape, cell.dtype):
        what = f"{getattr(outputs, 'dtype', type(outputs))} {getattr(outputs, 'shape', '')}"
        raise ValueError(f"outputs are {what}; give {cell.dtype.name} {shape}")
    return outputs


def check_reversible(inputs, head, lengths):
    """Raise unless rows of several lengths can each be read from their end, and the head agrees."""
    check_head_lengths(head, lengths)
    for name, source in (("inputs", inputs), ("targets", head.targets)):
        if not isinstance(source, np.ndarray):
            raise ValueError(
                f"{name} are a reader, and with lengths each row is read from its own end; give "
                "an array, such as a numpy.memmap"
            )


def from_ends(head, lengths):
    """Return the head with the targets of each row from its last step to its first."""
    if head.ends is not None:
        return head.head.at_last(head.targets[0], lengths.given + 1 - head.ends)
    targets, mask = FromEnds(head.targets, lengths, head.mask), FromEnds(head.mask, lengths)
    return head.head.with_targets(targets, mask[:], lengths)


class FromEnds:
    """A reader of an array [T, B, ...], each row from its last step to its first, then any.

    Where a `mask` is False it reads 0.
    """

    def __init__(self, array, lengths, mask=None):
        self.array, self.ends, self.mask = array, lengths.given, mask
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, steps):
        """Return the steps of a slice."""
        step = np.arange(self.shape[0])[steps, None]
        place = np.maximum(self.ends - 1 - step, 0), np.arange(self.shape[1])
        block = self.array[place]
        if self.mask is None:
            return block
        mask = self.mask[place].reshape(block.shape[:2] + (1,) * (block.ndim - 2))
        return np.where(mask, block, 0).astype(self.dtype)


def backwards(inputs, lengths):
    """Return the inputs, an array or Blocks, from their last step to their first."""
    if lengths is not None:
        return Blocks("inputs", FromEnds(inputs, lengths), inputs.dtype)
    return inputs[::-1] if isinstance(inputs, np.ndarray) else Reversed(inputs.source)


class Reversed:
    """A reader of another one's steps in the opposite order; see `membptt.sequences.blocks`."""

    def __init__(self, reader):
        self.reader = reader
        self.shape, self.dtype = reader.shape, reader.dtype

    def __getitem__(self, steps):
        """Return the steps of a slice."""
        start, stop, _ = steps.indices(self.shape[0])
        return self.reader[self.shape[0] - stop : self.shape[0] - start][::-1]


@dataclass
class Half:
    """The part of an output layer that reads one of the two cells.

    Attributes
    ----------
    bound : membptt.heads.BoundHead
        The whole layer with its targets.
    outputs : array
        [T, B, V]
    first : int
        How many rows of ``W_y`` read the forward cell.
    lengths : membptt.sequences.lengths.Lengths or None
        Of the rows, where they differ, for the half that reads them from their ends.
    """

    bound: object
    outputs: object
    first: int
    lengths: object = None

    @property
    def rows(self):
        """What serves the targets of a step; see `membptt.heads.BoundHead`."""
        return self.bound.rows


class Outer(Half):
    """The backward cell's half: adds its share to the outputs, and leaves dL/dy in their place."""

    @property
    def params(self):
        """``W_y`` [H_b, V] and ``b_y`` [V], parts of the layer's own."""
        params = self.bound.params
        return {"W_y": params["W_y"][self.first :], "b_y": params["b_y"]}

    def forward_backward(self, step, h, grads, rows=None):
        """Return the loss at this step of the backward chain, and its derivative by h."""
        W_b, t = self.params["W_y"], len(self.outputs) + 1 - step
        if rows is None:
            place = t - 1
            loss, dy = self.bound.loss_of(t, self.outputs[place] + h @ W_b)
        else:  # each row at its own step, and its targets are turned around as its inputs are
            ends = self.lengths.falling[: len(rows)]
            place = from_host(ends - step, namespace(h)), rows
            loss, dy = self.bound.loss_of(step, self.outputs[place] + h @ W_b, rows)
        self.outputs[place] = dy
        grads["W_y"] += h.T @ dy
        grads["b_y"] += dy.sum(axis=0)
        return loss, dy @ W_b.T


class Inner(Half):
    """The forward cell's half, once dL/dy of every step stands in the outputs."""

    @property
    def params(self):
        """``W_y`` [H_f, V], a part of the layer's own."""
        return {"W_y": self.bound.params["W_y"][: self.first]}

    def forward_backward(self, step, h, grads, rows=None):
        """Return no loss, which the other half has counted, and its derivative by h."""
        dy = self.outputs[step - 1] if rows is None else self.outputs[step - 1][rows]
        grads["W_y"] += h.T @ dy
        return namespace(h).zeros((), dtype=np.float64), dy @ self.params["W_y"].T


def sweep(cell, inputs, inner, state, lengths, threads):
    """Run the forward cell, and leave its share of the outputs, the bias with it."""
    W_f, b_y = inner.params["W_y"], inner.bound.params["b_y"]
    if lengths is not None:
        inner.outputs[...] = 0  # behind the ends of rows nothing will be written
    for step, hidden, *rows in hidden_states(cell, inputs, state, threads, lengths):
        inner.outputs[(step - 1, *rows)] = hidden[0] @ W_f + b_y
    if not all_finite(inner.outputs):
        step = next(step for step, y in enumerate(inner.outputs, 1) if not all_finite(y))
        begin = f"the outputs of the forward cell stop being finite at step {step}"
        raise_not_finite(cell, inputs, inner, state, step, begin, lengths)


def joined(forth, back, outputs_bytes, seconds):
    """Return the result of the network from those of its two chains."""
    grads = {
        f"{direction}.{name}": value
        for direction, result in zip(DIRECTIONS, (forth, back), strict=True)
        for name, value in result.grads.items()
        if name not in ("W_y", "b_y")
    }
    halves = forth.grads["W_y"], back.grads["W_y"]
    grads["W_y"] = namespace(halves[0]).concat(halves)
    grads["b_y"] = back.grads["b_y"]
    sums = {
        field.name: getattr(forth.stats, field.name) + getattr(back.stats, field.name)
        for field in fields(Stats)
    }
    largest = {
        name: max(getattr(forth.stats, name), getattr(back.stats, name))
        for name in ("peak_bytes", "arena_bytes", "workspace_bytes", "device_peak_bytes")
    }
    sums["forward_steps"] += forth.stats.backward_steps  # the sweep
    stats = Stats(**sums | largest | {"outputs_bytes": outputs_bytes, "seconds": seconds})
    return BidirectionalResult(
        back.loss,
        grads,
        (forth.state, back.state),
        (forth.state_grad, back.state_grad),
        stats,
    )
