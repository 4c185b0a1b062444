"""Predicted, executed, least of all: three counts of one schedule that must agree.

The solver predicts. The program's executor runs the schedule on a chain that counts, and on a
network where there is one with states of these sizes. The exhaustive search looks at every schedule
there is.
"""

from dataclasses import dataclass

import numpy as np

from membptt.cells import GRU, LSTM, RNN
from membptt.chains.plain import ENTERING, INITIAL
from membptt.executor import Executor, readable
from membptt.executor.arena import Arena, SlotArena
from membptt.oracle.differences import Direction
from membptt.oracle.exhaustive import least_cost
from membptt.oracle.full import full_bptt
from membptt.solver.chains import Chain
from membptt.solver.expand import TICKS

MOST_STEPS = 8  # all schedules of more take minutes


@dataclass(frozen=True)
class Proof:
    """What was found about one schedule.

    Attributes
    ----------
    predicted : int or float
        Forward steps, as the solver says; with the price of its expansions for strategy expand.
    executed : int or float
        Forward steps that the executor ran, and the price of what it expanded.
    exhaustive : int or float
        The least of all schedules within the budget.
    optimal : bool
        Whether the schedule claims to be the least.
    forward_steps : int
        Of `predicted`, those that run one after the other.
    network : str or None
        On which the compiled executor ran it; None where no cell has states of these sizes.
    network_steps : int or None
        Forward steps that it ran there.
    same_bits : bool or None
        Whether its gradients there have the bits of full BPTT.
    """

    predicted: float
    executed: float
    exhaustive: float
    optimal: bool
    forward_steps: int
    network: str | None = None
    network_steps: int | None = None
    same_bits: bool | None = None

    @property
    def holds(self):
        """Whether nothing contradicts: equal counts, equal bits, nothing below the least."""
        least = self.exhaustive == self.predicted if self.optimal else True
        return (
            self.executed == self.predicted >= self.exhaustive
            and least
            and self.network_steps in (None, self.forward_steps)
            and self.same_bits is not False
        )

    def __str__(self):
        text = (
            f"predicted {self.predicted:g}, executed {self.executed:g}, "
            f"least of all schedules {self.exhaustive:g}"
        )
        if self.network is not None:
            bits = "the bits" if self.same_bits else "NOT the bits"
            article = "an" if self.network[0] in "LR" else "a"
            text += (
                f"\non {article} {self.network}: executed {self.network_steps}, "
                f"gradients with {bits} of full BPTT"
            )
        return text


def prove(schedule, cell=None, batch=1):
    """Execute a small schedule, and compare it with every schedule there is.

    Parameters
    ----------
    schedule : membptt.Schedule
        Of at most eight steps.
    cell : membptt.Cell, optional
        To run it on, with `batch` rows; by default the smallest cell whose internal state is that
        many times its hidden state: an RNN for 2, an LSTM for 3, a GRU for 5.
    batch : int

    Returns
    -------
    Proof

    Raises
    ------
    ValueError
        If the schedule is too long to be compared with all others, or uses a disk, which they have
        not.
    """
    if schedule.intervals is not None:
        raise ValueError(
            f"strategy is {schedule.strategy} for a proof that looks at every schedule without a "
            "disk; give another strategy"
        )
    if schedule.steps > MOST_STEPS:
        raise ValueError(
            f"steps is {schedule.steps} for a proof that looks at every schedule; give at most "
            f"{MOST_STEPS}"
        )
    if cell is None:
        cell = tiny_cell(schedule.internal / schedule.hidden)
    found = () if cell is None else on_network(schedule, cell, batch)
    predicted, price = schedule.forward_steps, schedule.expand_cost
    if price is not None:
        predicted = round(predicted + price.total(schedule.expansions, schedule.expanded_steps), 2)
    return Proof(
        predicted,
        count(schedule),
        least(schedule),
        schedule.strategy in ("optimal", "expand"),
        schedule.forward_steps,
        *found,
    )


def least(schedule):
    """Return the least cost within the schedule's budget, in forward steps."""
    price, sizes = schedule.expand_cost, (schedule.hidden, schedule.internal)
    if price is None:
        return least_cost(Chain.even(schedule.steps, *sizes), schedule.budget)
    chain = Chain.even(schedule.steps, *sizes, forward=TICKS)
    return least_cost(chain, schedule.budget, price.prices(schedule.steps)) / TICKS


def tiny_cell(alpha):
    """Return a cell whose states have these relative sizes, or None."""
    for kind in (RNN, LSTM, GRU):
        cell = kind(input_size=3, hidden_size=2)
        if cell.internal_nbytes(1) == alpha * cell.hidden_nbytes(1):
            return cell
    return None


def on_network(schedule, cell, batch):
    """Return the cell's name, forward steps executed, and whether the bits are full BPTT's."""
    generator = np.random.default_rng(0)
    shape = schedule.steps, batch
    inputs = generator.integers(cell.input_size, size=shape)
    along = generator.standard_normal((*shape, cell.hidden_size)).astype(cell.dtype)
    head = Direction(along)
    ran = Executor(cell, schedule, batch).run(inputs, head)
    full = full_bptt(cell, inputs, head)
    same = ran.loss == full.loss and all(
        ran.grads[name].tobytes() == value.tobytes() for name, value in full.grads.items()
    )
    name = f"{cell.kind} with {cell.hidden_size} hidden units"
    return name, ran.stats.forward_steps, same


def count(schedule):
    """Return what the executor runs, on a `CountingChain`: forward steps, priced expansions."""
    kind = Arena if schedule.lanes == 1 else SlotArena
    size = min(schedule.budget, schedule.full_bytes)
    arena = kind(size, schedule.hidden, schedule.internal)
    chain = CountingChain(schedule.steps, schedule.hidden, schedule.internal, arena.buffer)
    readable.run(schedule, chain, arena)
    if schedule.expand_cost is None:
        return chain.forward_steps
    return round(chain.forward_steps + sum(map(schedule.expand_cost.of, chain.expanded)), 2)


class CountingChain:
    """A chain without numbers: the hidden state after step t is t itself, in every byte of it.

    It has the moves of membptt.chains.plain.PlainChain, and notices at once when what it finds in
    the arena is not what should be there. Up to 127 steps: an internal state is marked by 128.
    """

    def __init__(self, steps, hidden, internal, arena):
        self.steps = steps
        self.hidden, self.internal = hidden, internal
        self.arena = arena
        self.working = 0
        self.forward_steps = 0
        self.expanded = []  # the length of each expansion

    def restart(self, source, at=0, place=0):
        """Make the working hidden state the one that stands `at` in the arena."""
        if source == INITIAL:
            self.working = 0
            return
        marked = self.arena[at] >= 128
        self.working = self.read(at, self.internal if marked else self.hidden) & 127
        if source == ENTERING:
            self.working -= 1

    def forward(self, start, stop, internal_at=-1):
        """Run the steps start+1 ... stop one by one."""
        for step in range(start + 1, stop + 1):
            if self.working != step - 1:
                raise LookupError(f"step {step} ran from the state after step {self.working}")
            self.working = step
            self.forward_steps += 1
        if internal_at >= 0:
            self.arena[internal_at : internal_at + self.internal] = stop | 128

    def save_hidden(self, at):
        """Copy the working hidden state into the arena."""
        self.arena[at : at + self.hidden] = self.working

    def expand(self, start, stop, source, at, hidden_at, internal_at):
        """Check the hidden states before the steps, and put internal states in their places."""
        self.expanded.append(stop - start)
        for step in range(stop - 1, start, -1):
            if self.read(hidden_at + (step - start - 1) * self.hidden, self.hidden) != step:
                raise LookupError(f"h_{step} was overwritten")
        self.restart(source, at, start)
        if self.working != start:
            raise LookupError(f"step {start + 1} expanded from the state after {self.working}")
        for step in range(start + 1, stop + 1):
            internal = internal_at + (step - start - 1) * self.internal
            self.arena[internal : internal + self.internal] = step | 128

    def backward(self, step, at):
        """Back-propagate one step: its internal state must be whole."""
        if self.read(at, self.internal) != step | 128:
            raise LookupError(f"the internal state of step {step} was overwritten")

    def read(self, at, size):
        """Return what every byte of a state says."""
        found = self.arena[at : at + size]
        if (found != found[0]).any():
            raise LookupError(f"the state at {at} was overwritten in part")
        return int(found[0])
