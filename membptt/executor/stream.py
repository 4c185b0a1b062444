"""Trains on a stream whose length is not known until it ends.

While the stream runs, `OnlineSchedule` says which hidden states to keep, and the states stand in
slots of one size inside the budget. When it has ended, the steps between two kept states are run
again and back-propagated, from the last on; from then on memory is a stack as for any schedule. The
head runs at backward time only, when the number of steps is known: the loss is the mean over the
steps as always.

What grows with the stream is its own content: inputs and targets are read again and therefore kept,
each in one array that doubles when it is full (3 bytes for each byte while it is copied, 2 at most
afterwards). Nothing else does.
"""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from membptt.arrays import array_module
from membptt.cells import Cell
from membptt.chains.registry import Team, device_peak, make_chain, runs_compiled
from membptt.checks import shown
from membptt.executor import _executor, readable  # type: ignore[attr-defined]
from membptt.executor.arena import HiddenSlots
from membptt.executor.result import Result, Stats
from membptt.executor.window import check_finite, check_inputs, check_window
from membptt.kernels.threads import useful_threads
from membptt.memory import parse_bytes
from membptt.schedules.online import OnlineSchedule
from membptt.types import State

SHARED_STEPS = 16  # fewer steps at once are not worth starting threads for


def bptt_stream(
    cell: Cell,
    stream: Iterable[tuple[ArrayLike, ArrayLike]],
    head: Any,
    memory: str | int,
    state: State | None = None,
    record: bool = False,
    threads: int | None = None,
) -> Result:
    """Back-propagate through a stream of unknown length: the gradients of full BPTT, to the bit.

    Parameters
    ----------
    cell : membptt.Cell
    stream : iterable of (input, target)
        Each a step, [B, I] or tokens [B] with targets [B] or [B, V]; or a block of steps,
        [n, B, I] or tokens [n, B] with targets of n steps. Blocks may differ in length. Read once;
        what it yields is copied.
    head : membptt.SoftmaxHead or membptt.LinearHead
        Not bound to targets; or an object of yours with the method ``with_targets``.
    memory : str or int
        Bytes for all saved states, such as "2 MiB": at least one internal state.
    state : tuple of numpy.ndarray, optional
        The initial hidden state; zeros by default.
    record : bool
        Keep what really ran as ``Result.trace``.
    threads : int, optional
        As for `membptt.Executor`. Threads help with blocks of at least 16 steps, and after the end.

    Returns
    -------
    Result
        As from `membptt.bptt`; the loss is the mean over all steps of the stream.

    Raises
    ------
    ValueError, TypeError
        If the stream is empty, the budget too small, or an item does not fit; as `membptt.bptt`.

    Notes
    -----
    Inputs and targets are kept, since steps are run again: their bytes grow with the stream, and
    nothing else does. The forward steps are those of `membptt.schedules.OnlineSchedule`.
    """
    started = time.perf_counter()
    run = None
    for number, item in enumerate(stream, start=1):
        try:
            inputs, targets = steps_of(cell, item)
            if run is not None:
                run.extend(inputs, targets)
        except (ValueError, TypeError) as error:
            raise type(error)(f"item {number} of the stream: {error}") from None
        if run is None:
            run = Run(cell, head, inputs, targets, memory, state, record, threads)
        run.forward()
    if run is None:
        raise ValueError("the stream is empty; give at least 1 step")
    return run.finish(started)


def steps_of(cell, item):
    """Return the item as a block: inputs [n, B, ...] and targets [n, B, ...]."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError(f"it is of type {type(item).__name__}; give pairs (input, target)")
    inputs, targets = map(np.asarray, item)
    if inputs.ndim == (1 + len(cell.input_shape) if inputs.dtype.kind == "f" else 1):
        inputs, targets = inputs[None], targets[None]
    inputs = check_inputs(cell, inputs)
    if targets.shape[:1] != inputs.shape[:1]:
        raise ValueError(
            f"inputs have {inputs.shape[0]} steps, targets the shape {targets.shape}; give as many"
        )
    return inputs, targets


class Run:
    """One stream on its way: chain, slots and schedule, and what was read so far."""

    def __init__(self, cell, head, inputs, targets, memory, state, record, threads):
        self.cell, self.head, self.record = cell, head, record
        steps, self.batch = inputs.shape[:2]
        bound = head.with_targets(targets)
        self.state = check_window(cell, inputs, bound, state, steps, self.batch)
        sizes = cell.hidden_nbytes(self.batch), cell.internal_nbytes(self.batch)
        nbytes = budget(memory, sizes[1])
        self.threads = useful_threads(cell, self.batch, threads)
        self.arena = HiddenSlots(nbytes, *sizes, xp=array_module(cell.backend))
        self.schedule = OnlineSchedule(1 + len(self.arena.free))
        self.inputs, self.targets = Tape(inputs), Tape(targets)
        self.chain = make_chain(cell, bound, steps, self.batch)
        self.chain.begin(self.inputs.seen, bound, self.state, self.arena.buffer)
        self.machine = readable.Machine(self.chain, self.arena)
        self.trace = []

    def extend(self, inputs, targets):
        """Take one more block of steps in."""
        if inputs.shape[1] != self.batch:
            raise ValueError(f"inputs have batch {inputs.shape[1]}; give {self.batch} as before")
        self.head.with_targets(targets)  # wrong ones are named now, not at the end
        self.inputs.append(inputs, "inputs")
        self.targets.append(targets, "targets")
        self.chain.extend(self.inputs.seen)

    def forward(self):
        """Run the steps that have come in."""
        ahead = self.inputs.steps - self.schedule.steps
        with Team(self.chain, self.threads if ahead >= SHARED_STEPS else 1):
            for _ in range(ahead):
                for action in self.schedule.step():
                    self.machine.act(action)
                    if self.record:
                        self.trace.append((*action.row, self.arena.used))

    def finish(self, started):
        """Back-propagate all steps and return the result."""
        chain, forward_steps = self.chain, self.machine.forward_steps
        bound = self.head.with_targets(self.targets.seen)
        chain.end(bound)
        peak, saved = self.arena.peak, [step for _, step, _ in self.arena.stack]
        arena, schedule = self.arena.stacked(), self.schedule
        if runs_compiled(self.cell):
            with Team(chain, self.threads):
                ran = _executor.run(
                    schedule.finish_codes(), chain, *arena.sizes, self.record, saved=saved
                )
        else:
            ran = readable.run(schedule.finish(), chain, arena, self.record)
        loss, bad_step, grads, last, state_grad = chain.finish()
        check_finite(self.cell, self.inputs.seen, bound, self.state, bad_step, grads)
        stats = Stats(
            forward_steps + ran[0],
            ran[1],
            max(peak, ran[2]),
            len(arena.buffer),
            chain.workspace_nbytes,
            time.perf_counter() - started,
            device_peak_bytes=device_peak(chain),
        )
        trace = None
        if self.record:
            before = np.array(self.trace, np.int64).reshape(-1, 4)
            trace = np.concatenate((before, ran[3]))
        return Result(loss, grads, last, state_grad, stats, trace)


class Tape:
    """Inputs or targets of all steps so far, in an array that doubles when it is full.

    Attributes
    ----------
    steps : int
        How many there are.
    """

    def __init__(self, block):
        self.array = np.array(block)
        self.steps = len(block)

    @property
    def seen(self):
        """What there is, [steps, ...]."""
        return self.array[: self.steps]

    def append(self, block, name):
        """Copy a block behind what there is."""
        if block.dtype != self.array.dtype or block.shape[1:] != self.array.shape[1:]:
            raise ValueError(
                f"{name} are {block.dtype} of shape {block.shape}; give {self.array.dtype} "
                f"[steps, {', '.join(map(str, self.array.shape[1:]))}] as before"
            )
        steps = self.steps + len(block)
        if steps > len(self.array):
            grown = np.empty((max(steps, 2 * self.steps), *self.array.shape[1:]), self.array.dtype)
            grown[: self.steps] = self.seen
            self.array = grown
        self.array[self.steps : steps] = block
        self.steps = steps


def budget(memory, least):
    """Return the bytes that `memory` states, or say that they are too few."""
    nbytes = parse_bytes(memory)
    if nbytes < least:
        raise ValueError(
            f"memory is {shown(memory)}, {nbytes} bytes; a stream needs at least {least}"
        )
    return nbytes
