"""Schedules for a batch whose rows have different lengths: its states shrink as rows end.

Two kinds of plan are tried, and the cheaper one is taken. What it costs is counted in rows: a
forward step on b live rows costs b.

    exact     the recurrence of chains whose steps differ (membptt.solver.chains), for short ones
    widened   `optimal` for rows of one length, within a larger budget than there is: since states
              shrink, there are such plans that need no more than the true one. The largest budget
              is searched for by bisection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from membptt.cells import Cell
from membptt.lengths import Lengths
from membptt.memory import parse_bytes
from membptt.schedules import actions as codes_of
from membptt.schedules.actions import Action
from membptt.schedules.replay import Replayed, replay
from membptt.schedules.schedule import Schedule, schedule
from membptt.schedules.uneven import ChainSchedule, chain_schedule
from membptt.solver.chains import Chain
from membptt.types import RowLengths

EXACT_STEPS = 128  # longer chains take the recurrence more than a fraction of a second
TRIALS = 16  # of the bisection


@dataclass(frozen=True, eq=False)
class PackedSchedule:
    """The plan for a batch whose rows have these lengths; `packed_schedule` makes it.

    `membptt.bptt` and `membptt.Executor` run it like a `membptt.Schedule`, with the same lengths.

    Attributes
    ----------
    lengths : membptt.lengths.Lengths
    hidden, internal : tuple of int, length T
        Bytes of h_t and of the internal state of step t.
    budget : int
        Most bytes that all saved states may take.
    plan : membptt.Schedule or membptt.schedules.ChainSchedule
        Whose actions these are.
    """

    lengths: Lengths
    hidden: tuple[int, ...]
    internal: tuple[int, ...]
    budget: int
    plan: Schedule | ChainSchedule

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
        return iter(self.plan)

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def forward_steps(self) -> int:
        """Steps run in all, whatever their rows."""
        return self.plan.forward_steps

    @property
    def row_steps(self) -> int:
        """Rows run forward, of all steps together."""
        return self._counts[0]

    @property
    def full_row_steps(self) -> int:
        """Rows that full BPTT runs forward: the lengths together."""
        return int(self.lengths.given.sum())

    @property
    def peak_bytes(self) -> int:
        """Most that the saved states take at any action."""
        return self._counts[1]

    @property
    def full_bytes(self) -> int:
        """What full BPTT saves: all internal states, each of its live rows."""
        return sum(self.internal)

    @property
    def saved_fraction(self) -> float:
        """Share of full BPTT's memory that is not needed."""
        return 1 - self.peak_bytes / self.full_bytes

    @cached_property
    def _counts(self):
        return row_steps_and_peak(self.plan, self.lengths, self.hidden, self.internal)

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
        where there are too many; for more steps a good one, never one that runs more rows than
        strategy optimal plans for the same budget.

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
    """
    batch_of = Lengths(lengths)
    budget = parse_bytes(memory)
    hidden, internal = batch_of.sizes(cell)
    if budget < internal[0]:
        raise ValueError(
            f"memory is {memory!r}, {budget} bytes; a batch of {batch_of.batch} rows needs at "
            f"least {internal[0]} bytes, one internal state"
        )
    found = [widened(batch_of, budget, hidden, internal, cell)]
    if batch_of.steps <= EXACT_STEPS:
        rows = [float(batch_of.live(step)) for step in range(1, batch_of.steps + 1)]
        # Nobody saves h_T, of which nothing goes on; a chain wants a size all the same.
        sizes = [max(1, size) for size in hidden]
        found.append(chain_schedule(Chain(tuple(rows), tuple(sizes), tuple(internal)), budget))
    cheapest = min(found, key=lambda plan: row_steps_and_peak(plan, batch_of, hidden, internal)[0])
    return PackedSchedule(batch_of, tuple(hidden), tuple(internal), budget, cheapest)


def widened(lengths, budget, hidden, internal, cell):
    """Return the plan for rows of one length that has the most room and fits all the same."""

    def planned(memory):
        return schedule(lengths.steps, memory, "optimal", cell=cell, batch=lengths.batch)

    def fits(plan):
        return row_steps_and_peak(plan, lengths, hidden, internal)[1] <= budget

    low, high = budget, lengths.steps * cell.internal_nbytes(lengths.batch)
    best = planned(low)
    if low >= high:
        return best
    if fits(everything := planned(high)):
        return everything
    for _ in range(TRIALS):
        middle = (low + high) // 2
        if fits(plan := planned(middle)):
            low, best = middle, plan
        else:
            high = middle
    return best


def row_steps_and_peak(plan, lengths, hidden, internal):
    """Return how many rows a plan runs forward, and the most bytes that are saved at once."""
    live = [lengths.live(step) for step in range(1, lengths.steps + 1)]
    rows_until = np.concatenate(([0], np.cumsum(live)))
    sizes = np.array([[0, *hidden], [0, *internal]])
    row_steps, used, peak = 0, 0, 0
    for chunk in plan.codes():
        code, start, stop = chunk.T
        runs = code <= codes_of.SAVE_INTERNAL
        row_steps += int((rows_until[stop[runs]] - rows_until[start[runs]]).sum())
        changes = np.zeros(len(chunk), np.int64)
        for kind, saves in enumerate((codes_of.SAVE_HIDDEN, codes_of.SAVE_INTERNAL)):
            saved = code == saves
            changes[saved] = sizes[kind, stop[saved]]
            freed = (code == codes_of.FREE) & (stop == kind)
            changes[freed] = -sizes[kind, start[freed]]
        over_time = used + np.cumsum(changes)
        used, peak = int(over_time[-1]), max(peak, int(over_time.max()))
    return row_steps, peak
