"""Schedules for a batch whose rows have different lengths: its states shrink as rows end.

What a plan costs is counted in rows: a forward step on b live rows costs b. Several are made, and
the cheapest is taken:

    exact     the recurrence of chains whose steps differ (membptt.solver.chains), for short ones
    patched   even plans for parts of a longer chain, put together (membptt.solver.patches)
    even      the plan for rows of one length: states that shrink need no more room than its own
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from membptt.cells.base import Cell, check_cell
from membptt.checks import shown
from membptt.memory import parse_bytes
from membptt.schedules._emit import Emitter
from membptt.schedules.actions import (
    FREE,
    SAVE_HIDDEN,
    SAVE_INTERNAL,
    Action,
    AdvanceSaveHidden,
    Restore,
    from_chunks,
)
from membptt.schedules.replay import Replayed, replay
from membptt.schedules.schedule import Schedule, schedule
from membptt.schedules.uneven import ChainSchedule, chain_schedule
from membptt.sequences.lengths import Lengths
from membptt.solver import patches
from membptt.solver.chains import Chain
from membptt.solver.strategies import Sizes
from membptt.types import RowLengths

EXACT_STEPS = 128  # longer chains take the recurrence more than a fraction of a second
MOST_STEPS = 2**22  # what is kept of every step is then a gigabyte, and planned in half a minute


@dataclass(frozen=True)
class PackedSchedule:
    """The plan for a batch whose rows have these lengths; `packed_schedule` makes it.

    `membptt.bptt` and `membptt.Executor` run it like a `membptt.Schedule`, with the same lengths.

    Attributes
    ----------
    lengths : membptt.sequences.lengths.Lengths
    hidden, internal : tuple of int, length T
        Bytes of h_t and of the internal state of step t.
    budget : int
        Most bytes that all saved states may take.
    plan : membptt.Schedule, membptt.schedules.ChainSchedule or Patchwork
        Whose actions these are.
    counts : Counts
        What they do.
    """

    lengths: Lengths = field(hash=False)
    hidden: tuple[int, ...]
    internal: tuple[int, ...]
    budget: int
    plan: "Schedule | ChainSchedule | Patchwork" = field(compare=False)  # follows from the others
    counts: "Counts"

    # What the executor asks of a schedule.
    lanes: ClassVar[int] = 1
    buffers: ClassVar[int] = 0
    intervals: ClassVar[None] = None
    strategy: ClassVar[str] = "packed"

    @property
    def steps(self) -> int:
        """T, the length of the longest row."""
        return self.lengths.steps

    def codes(self) -> Iterator[np.ndarray]:
        """Yield the actions as int64 arrays [n, 3] of rows (code, start, stop), in chunks."""
        return self.plan.codes()

    def __iter__(self) -> Iterator[Action]:
        return from_chunks(self.codes())

    def __len__(self) -> int:
        return self.counts.actions

    @property
    def forward_steps(self) -> int:
        """Steps run in all, whatever their rows."""
        return self.counts.forward_steps

    @property
    def row_steps(self) -> int:
        """Rows run forward, of all steps together."""
        return self.counts.row_steps

    @property
    def full_row_steps(self) -> int:
        """Rows that full BPTT runs forward: the lengths together."""
        return int(self.lengths.given.sum())

    @property
    def peak_bytes(self) -> int:
        """Most that the saved states take at any action."""
        return self.counts.peak

    @property
    def full_bytes(self) -> int:
        """What full BPTT saves: all internal states, each of its live rows."""
        return sum(self.internal)

    @property
    def saved_fraction(self) -> float:
        """Share of full BPTT's memory that is not needed."""
        return 1 - self.peak_bytes / self.full_bytes

    def replay(self) -> Replayed:
        """Prove the schedule legal and within its budget; see `membptt.schedules.replay`."""
        return replay(self, self.steps, self.hidden, self.internal, self.budget)

    def __repr__(self):
        return (
            f"<PackedSchedule: {self.lengths.batch} rows of up to {self.steps} steps, "
            f"{self.row_steps} rows forward for {self.full_row_steps}, budget {self.budget} bytes>"
        )


def packed_schedule(lengths: RowLengths, memory: str | int, cell: Cell) -> PackedSchedule:
    """Plan one training iteration for a batch whose rows have different lengths.

    Parameters
    ----------
    lengths : sequence of int
        [B]: how many steps each row has.
    memory : str or int
        Bytes for all saved states, the working internal state included: "2 MiB" or 2097152.
    cell : membptt.Cell

    Returns
    -------
    PackedSchedule
        Up to 128 steps the one that runs the fewest rows forward, in the sense of
        `membptt.solver.chains.Chain.is_proven`, sizes being rounded up to a 256th of the budget
        where a finer count would take too long. For more steps a good one, never one that runs
        more rows than strategy near-optimal plans for the same budget; above 128,000 steps it is
        that one.

    Raises
    ------
    ValueError, TypeError
        If the budget is too small, which names the least that works; or a length is not a whole
        number from 1 on.

    Examples
    --------
    >>> import membptt as mb
    >>> cell = mb.LSTM(8, 32)
    >>> packed_schedule([100, 60, 20, 10], "20 KiB", cell)
    <PackedSchedule: 4 rows of up to 100 steps, 354 rows forward for 190, budget 20480 bytes>
    """
    batch_of = Lengths(lengths)
    budget = parse_bytes(memory)
    check_cell(cell)
    if batch_of.steps > MOST_STEPS:
        raise ValueError(
            f"lengths[{int(batch_of.order[0])}], the largest, is {batch_of.steps}; give at most "
            f"{MOST_STEPS}, or plan with mb.schedule(steps, memory, cell=cell, batch=batch)"
        )
    hidden, internal = batch_of.sizes(cell)
    if budget < internal[0]:
        raise ValueError(
            f"memory is {shown(memory)}, {budget} bytes; a batch of {batch_of.batch} rows needs at "
            f"least {internal[0]} bytes, one internal state"
        )
    plans = candidates(batch_of, budget, hidden, internal, cell)
    found = [(plan, counted(plan, batch_of, hidden, internal)) for plan in plans]
    cheapest = min(found, key=lambda pair: pair[1].row_steps)
    return PackedSchedule(batch_of, tuple(hidden), tuple(internal), budget, *cheapest)


def candidates(lengths, budget, hidden, internal, cell):
    """Yield plans that fit into the budget, the cheapest among them."""
    steps, batch = lengths.steps, lengths.batch
    if budget >= sum(internal):  # nothing is run again
        yield schedule(steps, steps * internal[0], "near-optimal", cell=cell, batch=batch)
        return
    yield schedule(steps, budget, "near-optimal", cell=cell, batch=batch)
    rows = [lengths.live(step) for step in range(1, steps + 1)]
    if steps <= EXACT_STEPS:
        # Nobody saves h_T, from which nothing goes on; a chain wants a size all the same.
        sizes = *hidden[:-1], cell.hidden_nbytes(1)
        yield chain_schedule(Chain(tuple(map(float, rows)), sizes, tuple(internal)), budget)
        return
    row = Sizes(cell.hidden_nbytes(1), cell.internal_nbytes(1))
    if row.hidden < row.internal and steps <= patches.PATCHED_STEPS:  # else h_t is of no use
        rule = patches.PatchRule(rows, *row.counts, budget // row.unit)
        if rule.cost < inf:
            yield Patchwork(rule)


class Patchwork:
    """The actions of a `PatchRule`: those of its patches, and what puts them together."""

    def __init__(self, rule):
        self.rule = rule

    def codes(self):
        """Yield the actions as int64 arrays [n, 3] of rows (code, start, stop), in chunks."""
        return self._node(0, len(self.rule.begins) - 1, self.rule.levels, False)

    def _node(self, i, j, levels, held):
        rule, begins = self.rule, self.rule.begins
        while (p := rule.split(i, j, levels, held)) is not None:
            yield np.array([AdvanceSaveHidden(begins[i], begins[p]).row])
            yield from self._node(p, j, levels - int(rule.saved[p]), True)
            yield np.array([Restore(begins[i]).row])
            j = p
        free = int(rule.units(i, levels, held)) - (rule.even.hidden if held else 0)
        yield from Emitter(rule.even, begins[j] - begins[i], t0=begins[i], free=free, held=held)


class Counts(NamedTuple):
    """What a plan does: actions, forward steps, rows of all of them, most bytes saved at once."""

    actions: int
    forward_steps: int
    row_steps: int
    peak: int


def counted(plan, lengths, hidden, internal):
    """Return the `Counts` of a plan for these lengths and sizes of states."""
    live = [lengths.live(step) for step in range(1, lengths.steps + 1)]
    rows_until = np.concatenate(([0], np.cumsum(live)))
    sizes = np.array([[0, *hidden], [0, *internal]])
    length = forward_steps = row_steps = used = peak = 0
    for chunk in plan.codes():
        code, start, stop = chunk.T
        runs = code <= SAVE_INTERNAL
        forward_steps += int((stop[runs] - start[runs]).sum())
        row_steps += int((rows_until[stop[runs]] - rows_until[start[runs]]).sum())
        changes = np.zeros(len(chunk), np.int64)
        for kind, saves in enumerate((SAVE_HIDDEN, SAVE_INTERNAL)):
            saved = code == saves
            changes[saved] = sizes[kind, stop[saved]]
            freed = (code == FREE) & (stop == kind)
            changes[freed] = -sizes[kind, start[freed]]
        over_time = used + np.cumsum(changes)
        length += len(chunk)
        used, peak = int(over_time[-1]), max(peak, int(over_time.max()))
    return Counts(length, forward_steps, row_steps, peak)
