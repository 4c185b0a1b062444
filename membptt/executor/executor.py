"""Executes a schedule: the readable loop, and the entry points that choose between it and Cython.

`run_plain` is the readable twin of `_executor.run`; both drive a chain (see membptt.executor.plain)
over an arena and can record what really ran, one row an action: code, start, stop, bytes in use.
"""

import time

import numpy as np

from membptt.checks import integer
from membptt.executor import _executor, plain
from membptt.executor.arena import HIDDEN, INTERNAL, Arena
from membptt.executor.chain import make_chain
from membptt.executor.result import Result, Stats
from membptt.executor.window import check_window, raise_not_finite
from membptt.kernels.threads import useful_threads
from membptt.schedules.actions import (
    Advance,
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Free,
    Restore,
)


class Executor:
    """Runs one schedule again and again, over one arena and one workspace.

    Parameters
    ----------
    cell : membptt.Cell
    schedule : membptt.Schedule
    batch : int
        Rows of every window.
    record : bool
        Keep what really ran as `Result.trace`; it grows with the schedule.
    threads : int, optional
        For compiled cells; by default MEMBPTT_NUM_THREADS or every core. No bit depends on it.
    readable : bool
        Run the loop in Python even for compiled cells, to step through it or to compare.

    Raises
    ------
    ValueError
        If the schedule was planned for states of other sizes.
    """

    def __init__(self, cell, schedule, batch, record=False, threads=None, readable=False):
        self.cell = cell
        self.schedule = schedule
        self.batch = integer("batch", batch, minimum=1)
        self.record = record
        self.threads = useful_threads(cell, self.batch, threads)
        self.compiled = cell.backend == "cython" and not readable
        sizes = cell.hidden_nbytes(self.batch), cell.internal_nbytes(self.batch)
        self.arena = Arena(arena_nbytes(schedule, *sizes), *sizes)
        self.chain = None

    def run(self, inputs, head, state=None):
        """Back-propagate through one window.

        Parameters
        ----------
        inputs : numpy.ndarray
            [T, B, I] of the cell's dtype, or tokens [T, B].
        head : membptt.training.heads.BoundHead
            A head with its targets, or an object of yours with the same methods.
        state : tuple of numpy.ndarray, optional
            The initial hidden state; zeros by default.

        Returns
        -------
        Result

        Raises
        ------
        ValueError, TypeError
            If a shape or dtype does not fit, or an input or parameter is not finite.
        FloatingPointError
            If the loss stops being finite although inputs and parameters are.
        """
        started = time.perf_counter()
        cell, steps, batch = self.cell, self.schedule.steps, self.batch
        inputs = np.asarray(inputs)
        state = check_window(cell, inputs, head, state, steps, batch)
        if self.chain is None:
            self.chain = make_chain(cell, head, steps, batch)
        self.chain.begin(inputs, head, state, self.arena.buffer)
        forward_steps, backward_steps, peak, trace = self.execute()
        loss, bad_step, grads, last, state_grad = self.chain.finish()
        if bad_step:
            raise_not_finite(cell, inputs, head, state, bad_step)
        stats = Stats(
            forward_steps,
            backward_steps,
            peak,
            len(self.arena.buffer),
            self.chain.workspace_nbytes,
            time.perf_counter() - started,
        )
        return Result(loss, grads, last, state_grad, stats, trace)


    def execute(self):
        """Run the loop that fits; return forward steps, backward steps, peak bytes, trace."""
        if not self.compiled:
            self.arena.clear()
            return run_plain(self.schedule, self.chain, self.arena, self.record)
        self.chain.open_team(self.threads)
        try:
            return _executor.run(
                self.schedule.codes(), self.chain, *self.arena.sizes, record=self.record
            )
        finally:
            self.chain.close_team()


def bptt(cell, inputs, head, schedule, state=None, record=False, threads=None):
    """Back-propagate through time under `schedule`: the gradients of full BPTT, to the bit.

    Parameters
    ----------
    cell : membptt.Cell
    inputs : numpy.ndarray
        [T, B, I] of the cell's dtype, or tokens [T, B].
    head : membptt.training.heads.BoundHead
        ``SoftmaxHead(H, V).with_targets(targets)``, or an object of yours with the same methods.
    schedule : membptt.Schedule
        For T steps.
    state : tuple of numpy.ndarray, optional
        The initial hidden state; zeros by default.
    record : bool
        Keep what really ran as ``Result.trace``.
    threads : int, optional
        As for `membptt.Executor`.

    Returns
    -------
    Result
        loss, grads, state, state_grad, stats, trace.

    See Also
    --------
    membptt.full_bptt : the same without a schedule, everything stored.
    """
    inputs = np.asarray(inputs)
    if inputs.ndim not in (2, 3):
        raise ValueError(
            f"inputs have shape {inputs.shape}; give tokens [steps, batch] or dense rows "
            "[steps, batch, input_size]"
        )
    return Executor(cell, schedule, inputs.shape[1], record, threads).run(inputs, head, state)


def run_plain(schedule, chain, arena, record=False):
    """Execute the actions one by one; return forward steps, backward steps, peak bytes, trace."""
    forward_steps = backward_steps = 0
    trace = [] if record else None
    for action in schedule:
        match action:
            case Advance(start, stop):
                chain.forward(start, stop)
            case AdvanceSaveHidden(start, stop):
                chain.forward(start, stop)
                chain.save_hidden(arena.push(HIDDEN, stop))
            case AdvanceSaveInternal(start, stop):
                chain.forward(start, stop, arena.push(INTERNAL, stop))
            case Restore(step):
                chain.restart(*find_source(arena, step))
            case Backward(step):
                kind, top, at = arena.stack[-1] if arena.stack else (None, None, None)
                if (kind, top) != (INTERNAL, step):
                    raise LookupError(f"the internal state of step {step} is not on top")
                chain.backward(step, at)
                backward_steps += 1
            case Free(step, internal):
                arena.pop(INTERNAL if internal else HIDDEN, step)
        if isinstance(action, Advance | AdvanceSaveHidden | AdvanceSaveInternal):
            forward_steps += action.stop - action.start
        if record:
            trace.append((*action.row, arena.used))
    rows = None if trace is None else np.array(trace, np.int64).reshape(-1, 4)
    return forward_steps, backward_steps, arena.peak, rows


def find_source(arena, step):
    """Return where the hidden state after `step` is to be had: the topmost state that has it."""
    for kind, saved, at in reversed(arena.stack):
        if saved == step:
            return (plain.LEAVING if kind == INTERNAL else plain.HIDDEN), at
        if kind == INTERNAL and saved == step + 1:
            return plain.ENTERING, at
    if step == 0:
        return plain.INITIAL, 0
    raise LookupError(f"no saved state gives the hidden state after step {step}")


def arena_nbytes(schedule, hidden_nbytes, internal_nbytes):
    """Return the arena's size: the budget, but no more than full BPTT could ever use."""
    if schedule.unit == "units":
        return schedule.peak(hidden_nbytes, internal_nbytes)
    if (schedule.hidden, schedule.internal) != (hidden_nbytes, internal_nbytes):
        raise ValueError(
            f"schedule is for states of {schedule.hidden} and {schedule.internal} bytes, this cell "
            f"and batch have {hidden_nbytes} and {internal_nbytes}; plan it with "
            "schedule(..., cell=cell, batch=batch)"
        )
    return min(schedule.budget, schedule.full_bytes)
