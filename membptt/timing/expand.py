"""Plans strategy expand for this machine: what an expansion costs, in forward steps.

Forward steps that save their internal states are timed against expansions of short and of long
blocks into the same internal states, in turn; the least time of each counts, since whatever else
runs only adds to it. The ratios give the two numbers of an `ExpandCost`.
"""

import time

import numpy as np

from membptt.arrays import array_module, synchronize
from membptt.cells.base import Cell, check_cell
from membptt.chains.plain import INITIAL, SAVED
from membptt.chains.registry import NoHead, Team, blank_inputs, make_chain
from membptt.kernels.threads import useful_threads
from membptt.schedules import Schedule, schedule
from membptt.solver.expand import MOST_STEPS, ExpandCost

SHORT = 4  # steps of the short blocks
ROUNDS = 15
SECONDS = 2  # no round begins after so long: cells in plain code take their time


def expand_schedule(
    steps: int, memory: str | int, cell: Cell, batch: int = 1, cost: ExpandCost | None = None
) -> tuple[Schedule, ExpandCost]:
    """Plan strategy expand for what expansions cost on this machine.

    Parameters
    ----------
    steps : int
        T.
    memory : str or int
        The budget in bytes.
    cell : membptt.Cell
    batch : int
    cost : ExpandCost, optional
        By default measured now.

    Returns
    -------
    schedule : membptt.Schedule
    cost : ExpandCost

    Raises
    ------
    ValueError
        If the budget is too small.
    """
    if cost is None:
        cost = measure(cell, batch)
    return schedule(steps, memory, "expand", cell, batch, expand_cost=cost), cost


def measure(cell, batch):
    """Return the `ExpandCost` of a cell on this machine."""
    check_cell(cell)
    steps, hidden, internal = MOST_STEPS, cell.hidden_nbytes(batch), cell.internal_nbytes(batch)
    xp = array_module(cell.backend)
    arena = xp.zeros(steps * (hidden + internal), dtype=np.uint8)
    head = NoHead()
    chain = make_chain(cell, head, steps, batch)
    chain.begin(blank_inputs(cell, steps, batch), head, cell.zero_state(batch), arena)

    def forward():
        chain.restart(INITIAL)
        for step in range(steps):
            chain.forward(step, step + 1, step * internal)
        synchronize(xp)

    def expand(block):
        for start in range(0, steps, block):
            source = (SAVED, at + (start - 1) * hidden) if start else (INITIAL, 0)
            chain.expand(start, start + block, *source, at + start * hidden, start * internal)
        synchronize(xp)

    at = steps * internal  # the hidden states stand behind the internal ones
    with Team(chain, useful_threads(cell, batch)):  # as the executor runs it
        chain.restart(INITIAL)
        for step in range(steps):
            chain.forward(step, step + 1)
            chain.save_hidden(at + step * hidden)
        rounds, until = [], time.perf_counter() + SECONDS
        while len(rounds) < ROUNDS and (not rounds or time.perf_counter() < until):
            rounds.append((seconds(forward), seconds(expand, SHORT), seconds(expand, steps)))
    base, short, long = map(min, zip(*rounds, strict=True))
    short, long = short / base, long / base
    # A step's price in a block of q steps is per_step + fixed / q.
    fixed = max(0.0, (short - long) / (1 / SHORT - 1 / steps))
    return ExpandCost(round(fixed, 2), round(max(0.01, long - fixed / steps), 2))


def seconds(move, *arguments):
    """Return how long a call takes."""
    began = time.perf_counter()
    move(*arguments)
    return time.perf_counter() - began
