"""Schedules for chains whose steps differ in cost or size."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from membptt.checks import integer
from membptt.schedules.actions import (
    AdvanceSaveHidden,
    AdvanceSaveInternal,
    Backward,
    Free,
    Restore,
)
from membptt.schedules.replay import replay
from membptt.solver.chains import Chain, ChainRule


@dataclass(frozen=True)
class ChainSchedule:
    """The plan for an uneven chain.

    `membptt.Executor` and `membptt.bptt` run it like a `membptt.Schedule` if the sizes are bytes
    and the same at every step, as those of this package's cells are.

    Attributes
    ----------
    chain : membptt.solver.chains.Chain
        What was planned for.
    budget : int
        Most that all saved states may take.
    actions : tuple
        See `membptt.schedules.actions`; iterate over the schedule itself.
    cost : float
        Of all forward runs, saves and restores, and of one backward of each step.
    exact : bool
        Whether sizes were counted exactly; otherwise they were rounded up, to a grid of the budget.
    """

    chain: Chain
    budget: int
    actions: tuple
    cost: float
    exact: bool

    def __iter__(self):
        return iter(self.actions)

    def __len__(self):
        return len(self.actions)

    # What the executor asks of a schedule.

    lanes: ClassVar[int] = 1
    buffers: ClassVar[int] = 0
    intervals: ClassVar[None] = None
    unit: ClassVar[str] = "bytes"
    strategy: ClassVar[str] = "chain"

    @property
    def steps(self):
        """T, the number of steps."""
        return self.chain.steps

    @property
    def hidden(self):
        """Size of a hidden state; a ValueError where the steps differ in it."""
        return _only(self.chain.hidden, "hidden")

    @property
    def internal(self):
        """Size of an internal state; a ValueError where the steps differ in it."""
        return _only(self.chain.internal, "internal")

    @property
    def full_bytes(self):
        """What full BPTT saves: all internal states."""
        return sum(self.chain.internal)

    def codes(self):
        """Yield the actions as one int64 array [n, 3] of rows (code, start, stop)."""
        yield self._rows

    @cached_property
    def _rows(self):
        rows = np.array([action.row for action in self.actions], np.int64)
        rows.flags.writeable = False
        return rows

    @cached_property
    def _replayed(self):
        return self.replay()

    @property
    def forward_steps(self):
        """Steps run in all."""
        return self._replayed.forward_steps

    @property
    def peak_bytes(self):
        """Most that the saved states take at any action."""
        return self._replayed.peak

    def replay(self):
        """Prove the schedule legal and within its budget; see `membptt.schedules.replay`."""
        chain = self.chain
        return replay(self, chain.steps, chain.hidden, chain.internal, self.budget)


def chain_schedule(chain, budget):
    """Plan an uneven chain within a budget.

    Parameters
    ----------
    chain : membptt.solver.chains.Chain
        Up to some hundred steps.
    budget : int
        In the unit of the chain's sizes.

    Returns
    -------
    ChainSchedule
        The cheapest, in the sense of `Chain.is_proven`.

    Raises
    ------
    ValueError
        If the budget is below the largest internal state, or the chain too long.
    """
    budget = integer("budget", budget, minimum=1)
    rule = ChainRule(chain, budget)
    actions = tuple(_node(rule, 0, chain.steps, rule.units, False))
    return ChainSchedule(chain, budget, actions, rule.cost + sum(chain.backward), rule.exact)


def _only(sizes, name):
    """Return the one size that all steps have."""
    if len(set(sizes)) > 1:
        raise ValueError(
            f"{name} states take {min(sizes)} to {max(sizes)} in this chain; cells have states of "
            "one size, so such a plan cannot be executed"
        )
    return sizes[0]


def _node(rule, i, j, free, held):
    """Yield the actions of the steps i + 1...j; as `membptt.schedules.plan.plan`, with a place."""
    while True:
        p = rule.split(i, j, free, held)
        if p > 0:
            yield AdvanceSaveHidden(i, p)
            yield from _node(rule, p, j, free - int(rule.hidden[p]), True)
            yield Restore(i)
            j = p
            continue
        if p == 0:
            yield Free(i, internal=False)
            free, held, p = free + int(rule.hidden[i]), False, -(i + 1)
        p = -p
        yield AdvanceSaveInternal(i, p)
        if p < j:
            yield from _node(rule, p, j, free - int(rule.internal[p]), False)
        yield Backward(p)
        yield Free(p, internal=True)
        if p == i + 1:
            break
        yield Restore(i)
        j = p - 1
    if held:
        yield Free(i, internal=False)
