"""Executes schedules: the entry points, one arena and one workspace for many runs.

The loop over the actions stands twice: readable in membptt.executor.readable, compiled in
membptt.executor._executor. Both drive a chain (see membptt.chains.plain) over the arena and can
record what really ran, one row an action: code, start, stop, bytes in use.
"""

import threading
import time

import numpy as np

from membptt.arrays import array_module
from membptt.cells.base import Cell, check_cell
from membptt.chains.registry import (
    Team,
    begin,
    device_peak,
    finish,
    make_chain,
    runs_compiled,
)
from membptt.checks import integer, shown
from membptt.executor import _executor, _lookahead, readable  # type: ignore[attr-defined]
from membptt.executor._spill import Spill
from membptt.executor.arena import Arena, PackedArena, SlotArena
from membptt.executor.result import Result, Stats
from membptt.executor.tier import HostTier
from membptt.executor.window import (
    check_finite,
    check_inputs,
    check_window,
    room_for_input_grads,
)
from membptt.kernels._sums import Sums
from membptt.kernels.threads import thread_count, useful_threads
from membptt.memory import Ledger
from membptt.schedules import AnySchedule, PackedSchedule
from membptt.sequences.lengths import check_lengths
from membptt.types import FilePath, Inputs, LossHead, RowLengths, State

# Strategies that run on the host alone, and why.
HOST_ONLY = {
    "lookahead": "it runs two lanes on two threads of the CPU",
}


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
    step_through : bool
        Run the readable loop even for compiled cells, to step through it or to compare.

    disk : path, optional
        Folder for strategy disk; by default the system's folder for temporary files. A device's
        states go to the host's memory instead: leave it out there.
    disk_rate : float
        Bytes a second at most to and from it, to try slow storage; 0 for no limit.
    verify : bool
        To debug steps and readers of your own: compare a checksum of every hidden state with that
        of the step's first run, and raise where they differ. Takes 8 bytes a step.
    input_grads : bool
        Give the derivative by dense inputs too, as `Result.input_grads`; it is as large as they
        are, beside the budget.

    Attributes
    ----------
    ledger : membptt.memory.Ledger or None
        Who holds how many bytes of the device's memory; None on the host.

    Raises
    ------
    ValueError
        If the schedule was planned for states of other sizes, or the backend cannot run it.
    TypeError
        If `cell` or `schedule` is something else.

    Notes
    -----
    It runs one window at a time: give each thread an Executor of its own. Cell, head and schedule
    may be the same for all, as long as no thread changes a parameter or the cell's noise meanwhile.
    """

    def __init__(
        self,
        cell: Cell,
        schedule: AnySchedule,
        batch: int,
        record: bool = False,
        threads: int | None = None,
        step_through: bool = False,
        disk: FilePath | None = None,
        disk_rate: float = 0.0,
        verify: bool = False,
        input_grads: bool = False,
    ) -> None:
        check_cell(cell)
        if not isinstance(schedule, AnySchedule):
            raise TypeError(
                f"schedule is {shown(schedule)}; give one that mb.schedule(steps, memory, ...) made"
            )
        check_runs_on(cell.backend, schedule, disk)
        self.cell = cell
        self.schedule = schedule
        self.batch = integer("batch", batch, minimum=1)
        self.record = record
        self.threads = useful_threads(cell, self.batch, threads)
        self.lanes = min(schedule.lanes, thread_count(threads))
        self.compiled = runs_compiled(cell) and not step_through
        sizes = cell.hidden_nbytes(self.batch), cell.internal_nbytes(self.batch)
        arena = Arena if schedule.lanes == 1 else SlotArena
        reserved = schedule.buffers * sizes[0]
        xp = array_module(cell.backend)
        if isinstance(schedule, PackedSchedule):
            check_planned_for(schedule, cell, self.batch)
            nbytes = min(schedule.budget, schedule.full_bytes)
        else:
            nbytes = arena_nbytes(schedule, *sizes)
        self.arena = arena(nbytes, *sizes, reserved, xp)
        self.ledger = Ledger() if cell.backend == "cupy" else None
        self.disk, self.disk_rate = disk, disk_rate
        self.verify = verify
        self.input_grads = input_grads
        self.spill = None
        self.chain = self.fitted = None
        self.free = threading.Lock()  # one run at a time: the arena and the chain are its own

    def run(
        self,
        inputs: Inputs,
        head: LossHead,
        state: State | None = None,
        lengths: RowLengths | None = None,
    ) -> Result:
        """Back-propagate through one window.

        Parameters
        ----------
        inputs : numpy.ndarray or reader
            [T, B, I] of the cell's dtype, or tokens [T, B]; a reader is an object with ``shape``,
            ``dtype`` and ``reader[start:stop]``, of which only blocks are in memory.
        head : membptt.heads.BoundHead
            A head with its targets, or an object of yours with the same methods.
        state : tuple of numpy.ndarray, optional
            The initial hidden state; zeros by default.
        lengths : sequence of int, optional
            [B]: how many of the steps each row has, at least one of them all; see `membptt.bptt`.

        Returns
        -------
        Result

        Raises
        ------
        ValueError, TypeError
            If a shape or dtype does not fit, or an input or parameter is not finite; with `verify`,
            if a step that is run again gives another hidden state than before.
        FloatingPointError
            If the loss stops being finite although inputs and parameters are.
        """
        if not self.free.acquire(blocking=False):
            raise RuntimeError(
                "this Executor is running already; give each thread an Executor of its own"
            )
        try:
            return self._run(check_inputs(self.cell, inputs, lengths), head, state, lengths)
        finally:
            self.free.release()

    def _run(self, inputs, head, state, lengths):
        started = time.perf_counter()
        cell, steps, batch = self.cell, self.schedule.steps, self.batch
        lengths = check_lengths(lengths, *inputs.shape[:2])
        check_runs_packed(self.schedule, lengths)
        state = check_window(cell, inputs, head, state, steps, batch, lengths)
        fitted = {name: value.shape for name, value in head.params.items()}
        fitted[""] = getattr(head, "kernel", None), lengths is not None
        if self.chain is None or fitted != self.fitted:  # a chain's workspace fits one kind of head
            self.chain = None  # what it holds on a device goes before the next one takes as much
            self.chain = make_chain(
                cell,
                head,
                steps,
                batch,
                self.ledger,
                input_grads=self.input_grads,
                packed=lengths is not None,
            )
            self.fitted = fitted
        by_inputs = room_for_input_grads(cell, inputs) if self.input_grads else None
        self.chain.by_inputs = by_inputs
        begin(self.chain, inputs, head, state, self.arena.buffer, lengths)
        self.chain.sums = Sums(steps) if self.verify else None
        disk, transfers = None, None
        if self.schedule.intervals is None:
            forward_steps, backward_steps, peak, trace, expanded = self.execute(lengths)
        else:
            self.spill = self.open_spill()
            try:
                forward_steps, backward_steps, peak, trace, expanded = self.execute(lengths)
            finally:
                self.spill.close()
            disk, transfers = self.spill.report(), self.spill.log()
        loss, bad_step, grads, last, state_grad = finish(self.chain, lengths)
        check_finite(cell, inputs, head, state, bad_step, grads, lengths)
        stats = Stats(
            forward_steps,
            backward_steps,
            peak,
            len(self.arena.buffer),
            self.chain.workspace_nbytes,
            time.perf_counter() - started,
            expanded,
            device_peak(self.chain),
            **(disk or {}),
        )
        return Result(loss, grads, last, state_grad, stats, trace, transfers, by_inputs)

    def open_spill(self):
        """Reserve room for one run's states in a file, or of a device's on the host."""
        if self.cell.backend == "cupy":
            return HostTier(
                self.schedule.steps,
                self.schedule.intervals.interval,
                self.arena.sizes[0],
                self.arena.buffer,
                self.schedule.buffers,
                array_module("cupy"),
                self.chain.stream,
            )
        return Spill(
            self.disk,
            self.schedule.steps,
            self.schedule.intervals.interval,
            self.arena.sizes[0],
            self.arena.buffer,
            self.schedule.buffers,
            self.disk_rate,
            self.record,
        )

    def execute(self, lengths):
        """Run the loop that fits; return what readable.run does."""
        if not self.compiled:
            arena = self.arena
            if lengths is not None:
                arena = PackedArena(arena, self.cell, lengths)
            arena.clear()
            return readable.run(self.schedule, self.chain, arena, self.record, self.spill)
        with Team(self.chain, self.threads):
            if self.schedule.lanes == 2:
                return _lookahead.run(
                    self.chain,
                    self.schedule.segments,
                    *self.arena.sizes,
                    self.lanes,
                    self.threads > 1,
                    self.record,
                )
            return _executor.run(
                self.schedule.codes(),
                self.chain,
                *self.arena.sizes,
                self.record,
                self.spill,
                self.arena.reserved,
            )


def bptt(
    cell: Cell,
    inputs: Inputs,
    head: LossHead,
    schedule: AnySchedule,
    state: State | None = None,
    record: bool = False,
    threads: int | None = None,
    verify: bool = False,
    input_grads: bool = False,
    lengths: RowLengths | None = None,
) -> Result:
    """Back-propagate through time under `schedule`: the gradients of full BPTT, to the bit.

    Parameters
    ----------
    cell : membptt.Cell
    inputs : numpy.ndarray or reader
        [T, B, I] of the cell's dtype, or tokens [T, B]; a reader is an object with ``shape``,
        ``dtype`` and ``reader[start:stop]``, of which only blocks are in memory.
    head : membptt.heads.BoundHead
        ``SoftmaxHead(H, V).with_targets(targets)``, or an object of yours with the same methods.
    schedule : membptt.Schedule
        For T steps.
    state : tuple of numpy.ndarray, optional
        The initial hidden state; zeros by default.
    record : bool
        Keep what really ran as ``Result.trace``.
    threads : int, optional
    verify : bool
        As for `membptt.Executor`.
    input_grads : bool
        Give the derivative by dense inputs too, as ``Result.input_grads``; it grows with T.
    lengths : sequence of int, optional
        [B]: how many of the T steps each row has, at least one of them all. What inputs and targets
        hold behind them is not used: NaN, or anything. A step runs on the rows that it has, and
        saves no more; ``Result.state`` is each row's at its own end. Give the same lengths to
        `head.with_targets`, or to `head.at_last`; a head of yours is called as
        ``forward_backward(step, h, grads, rows)`` with the numbers of the rows. Any schedule will
        do but look-ahead; `membptt.packed_schedule` plans for the shrinking states.

    Returns
    -------
    Result
        loss, grads, state, state_grad, stats, trace.

    See Also
    --------
    membptt.full_bptt : the same without a schedule, everything stored.
    """
    inputs = check_inputs(cell, inputs, lengths)
    executor = Executor(
        cell, schedule, inputs.shape[1], record, threads, verify=verify, input_grads=input_grads
    )
    return executor._run(inputs, head, state, lengths)


def check_runs_on(backend, schedule, disk):
    """Raise if the schedule needs what a device does not have."""
    if backend == "cupy" and disk is not None:
        raise ValueError(
            f"disk is {disk!r} with backend 'cupy', whose states go to the host's memory; leave it "
            "out"
        )
    if backend != "cupy" or schedule.strategy not in HOST_ONLY:
        return
    raise ValueError(
        f"strategy is {schedule.strategy!r}, which backend 'cupy' does not have: "
        f"{HOST_ONLY[schedule.strategy]}; give another strategy, such as 'optimal', or backend "
        "'cython'"
    )


def check_planned_for(schedule, cell, batch):
    """Raise unless a packed schedule was planned for this cell and so many rows."""
    if batch != schedule.lengths.batch:
        raise ValueError(f"batch is {batch}; give {schedule.lengths.batch}, as the schedule's")
    if tuple(map(tuple, schedule.lengths.sizes(cell))) != (schedule.hidden, schedule.internal):
        raise ValueError(
            f"schedule is for internal states of {schedule.internal[0]} bytes at first, this "
            f"cell's have {cell.internal_nbytes(batch)}; plan it with packed_schedule(lengths, "
            "memory, cell)"
        )


def check_runs_packed(schedule, lengths):
    """Raise unless the schedule can run a window whose rows have these lengths, or all of them."""
    if isinstance(schedule, PackedSchedule):
        if lengths is None or not np.array_equal(lengths.falling, schedule.lengths.falling):
            given = "none" if lengths is None else lengths
            raise ValueError(
                f"schedule is for {schedule.lengths}, in any order, and given are {given}; "
                "plan it with packed_schedule(lengths, memory, cell)"
            )
    elif lengths is not None and schedule.lanes == 2:
        raise ValueError(
            "lengths are given with strategy 'lookahead', which has states of one size; give "
            "packed_schedule(lengths, memory, cell)"
        )


def arena_nbytes(schedule, hidden_nbytes, internal_nbytes):
    """Return the arena's size: the budget, but no more than full BPTT could ever use."""
    if schedule.lanes == 2 and schedule.unit == "units":
        if internal_nbytes != schedule.internal * hidden_nbytes:
            raise ValueError(
                f"schedule is for alpha {schedule.internal}, this cell's is "
                f"{internal_nbytes / hidden_nbytes:g}; look-ahead needs the cell's own"
            )
        return schedule.budget * hidden_nbytes
    if schedule.unit == "units":
        return schedule.peak(hidden_nbytes, internal_nbytes)
    if (schedule.hidden, schedule.internal) != (hidden_nbytes, internal_nbytes):
        raise ValueError(
            f"schedule is for states of {schedule.hidden} and {schedule.internal} bytes, this cell "
            f"and batch have {hidden_nbytes} and {internal_nbytes}; plan it with "
            "schedule(..., cell=cell, batch=batch)"
        )
    if schedule.budget <= schedule.full_bytes:
        return schedule.budget
    # Full BPTT needs no more, but a schedule made by hand may.
    return min(schedule.budget, max(schedule.full_bytes, schedule.peak_bytes))
