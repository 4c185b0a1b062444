"""Plans for batches whose states shrink: legal, within the budget, and as cheap as can be."""

from functools import cache
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import membptt as mb
from membptt.lengths import Lengths
from membptt.schedules.packed import counted

CELL = mb.LSTM(2, 4)  # 32 bytes a row of h and c, 96 of an internal state


def cheapest(lengths, budget):
    """Return the fewest rows that any of the recurrence's schedules runs, by trying them all."""
    sizes = Lengths(lengths)
    hidden, internal = sizes.sizes(CELL)
    rows = [sizes.live(step) for step in range(1, sizes.steps + 1)]

    @cache
    def node(i, j, free, held):
        if i == j:
            return 0
        best = inf
        for p in range(i + 1, j + 1):
            run = sum(rows[i:p])
            if p < j and free >= hidden[p - 1]:
                right = node(p, j, free - hidden[p - 1], True)
                best = min(best, run + right + node(i, p, free, held))
            if free >= internal[p - 1]:
                right = node(p, j, free - internal[p - 1], False)
                best = min(best, run + right + node(i, p - 1, free, held))
        if held and i > 0 and free + hidden[i - 1] >= internal[i]:
            right = node(i + 1, j, free + hidden[i - 1] - internal[i], False)
            best = min(best, rows[i] + right)
        return best

    return node(0, sizes.steps, budget, False)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_short_plans_are_the_cheapest(data):
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    least, full = Lengths(lengths).sizes(CELL)[1][0], sum(Lengths(lengths).sizes(CELL)[1])
    budget = data.draw(st.integers(least, full + 100))
    plan = mb.packed_schedule(lengths, budget, CELL)
    replayed = plan.replay()
    rows = [plan.lengths.live(step) for step in range(1, plan.steps + 1)]
    assert plan.row_steps == int(replayed.executions @ rows)
    assert plan.peak_bytes == replayed.peak <= budget
    assert plan.forward_steps == replayed.forward_steps
    assert len(plan) == len(list(plan)) == sum(len(chunk) for chunk in plan.codes())
    wanted = cheapest(lengths, budget)
    if budget < 256 * 32:  # sizes are not rounded: they are whole numbers of a row of h
        assert plan.row_steps == wanted
    assert wanted <= plan.row_steps


@pytest.mark.parametrize("steps", [129, 400, 1500])
def test_long_plans_use_the_room_that_shrinking_states_leave(steps):
    numbers = np.random.default_rng(0)
    lengths = np.clip(numbers.exponential(steps / 4, 16).astype(int), 1, steps)
    lengths[3] = steps
    full = sum(Lengths(lengths).sizes(CELL)[1])
    for share in (50, 20, 5):
        budget = max(full // share, 16 * 96)
        plan = mb.packed_schedule(lengths, budget, CELL)
        even = mb.schedule(steps, budget, cell=CELL, batch=16)
        hidden, internal = plan.lengths.sizes(CELL)
        rows = counted(even, plan.lengths, hidden, internal).row_steps
        assert plan.full_row_steps <= plan.row_steps < rows
        assert plan.replay().peak == plan.peak_bytes <= budget


def test_a_budget_for_everything_recomputes_nothing():
    for steps in (40, 300):
        lengths = [steps, steps // 2, 1]
        full = sum(Lengths(lengths).sizes(CELL)[1])
        plan = mb.packed_schedule(lengths, full, CELL)
        assert plan.row_steps == plan.full_row_steps == sum(lengths)
        assert plan.peak_bytes == plan.full_bytes == full
        assert plan.saved_fraction == 0
        less = mb.packed_schedule(lengths, full - 1, CELL)
        assert less.row_steps > less.full_row_steps


def test_rows_of_one_length_are_planned_as_ever():
    plan = mb.packed_schedule([30] * 4, 4 * 96 * 5, CELL)
    even = mb.schedule(30, 4 * 96 * 5, cell=CELL, batch=4)
    assert plan.row_steps == 4 * even.forward_steps


def test_the_least_budget_is_one_internal_state():
    for cell in (CELL, mb.LayerNormLSTM(3, 5)):
        least = cell.internal_nbytes(4)
        plan = mb.packed_schedule([3, 7, 1, 5], least, cell)
        assert plan.peak_bytes == least
        with pytest.raises(ValueError, match=f"a batch of 4 rows needs at least {least} bytes"):
            mb.packed_schedule([3, 7, 1, 5], least - 1, cell)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 0"):
        mb.packed_schedule([3, 0], "1 MiB", CELL)
    with pytest.raises(ValueError, match="memory is '1 QiB'"):
        mb.packed_schedule([3, 1], "1 QiB", CELL)


def test_it_says_what_it_is():
    plan = mb.packed_schedule([30, 10], 2000, CELL)
    assert repr(plan) == (
        f"<PackedSchedule: 2 rows of up to 30 steps, {plan.row_steps} rows forward for 40, "
        "budget 2000 bytes>"
    )
