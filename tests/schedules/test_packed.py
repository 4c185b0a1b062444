"""Plans for batches whose states shrink: legal, within the budget, and as cheap as can be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import membptt as mb
from membptt.schedules import packed
from membptt.schedules.actions import from_chunks
from membptt.schedules.packed import Patchwork, candidates, counted
from membptt.schedules.replay import replay
from membptt.sequences.lengths import Lengths
from membptt.solver.chains import Chain, readable
from membptt.solver.patches import PATCHED_STEPS, PatchRule, coarse_unit

CELL = mb.LSTM(2, 4)  # 32 bytes a row of h and c, 96 of an internal state


def cheapest(lengths, budget):
    """Return the fewest rows that any of the recurrence's schedules runs."""
    sizes = Lengths(lengths)
    hidden, internal = sizes.sizes(CELL)
    rows = tuple(sizes.live(step) for step in range(1, sizes.steps + 1))
    # Nobody saves h_T, from which nothing goes on; a chain wants a size all the same.
    chain = Chain(rows, (*hidden[:-1], 32), tuple(internal))
    free, _ = readable(chain, budget)
    return free(0, sizes.steps, budget)


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


ODD = {  # units of h and of an internal state: 81 and 277, 16 and 49, 3 and 5, 7 and 15
    "stack": mb.Stack([mb.LSTM(8, 32), mb.GRU(32, 17)]),
    "ln": mb.LayerNormLSTM(8, 32),
    "int8": mb.Reduced(mb.LSTM(8, 33), "int8"),
    "ln-rnn": mb.LayerNormRNN(4, 7),
}


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_candidate_keeps_to_the_budget(data):
    """Whatever the sizes of states, which the patches round to a coarser unit."""
    cell = ODD[data.draw(st.sampled_from(sorted(ODD)))]
    lengths = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=6))
    lengths = Lengths([*lengths, data.draw(st.integers(129, 300))])
    hidden, internal = lengths.sizes(cell)
    budget = data.draw(st.integers(internal[0], 20 * internal[0]))
    plans = list(candidates(lengths, budget, hidden, internal, cell))
    for plan in plans:
        sizes = tuple(hidden), tuple(internal)
        counts = counted(plan, lengths, *sizes)
        made = packed.PackedSchedule(lengths, *sizes, budget, plan, counts)
        assert made.replay().peak == made.peak_bytes <= budget
    patched = [plan for plan in plans if isinstance(plan, Patchwork)]
    if budget >= 2 * internal[0] and budget < sum(internal):
        assert patched


@pytest.mark.parametrize("hidden, internal", [(1, 3), (2, 6), (81, 277), (99, 100), (7, 15)])
@pytest.mark.parametrize("budget", [3, 10, 40])
def test_what_patches_cost_is_what_they_run(hidden, internal, budget):
    """To the step where no row ends; and never less than the optimum."""
    steps, rows = 200, 3
    rule = PatchRule([rows] * steps, hidden, internal, budget * rows * internal)
    plan = Patchwork(rule)
    actions = list(from_chunks(plan.codes()))
    done = replay(actions, steps, rows * hidden, rows * internal, budget * rows * internal)
    assert rows * done.forward_steps == rule.cost
    cell = ChainOf(hidden, internal)
    least = mb.schedule(steps, budget * internal, cell=cell).forward_steps
    assert least <= done.forward_steps
    if rule.unit == 1 or internal % hidden == 0:  # nothing is rounded: one patch is the optimum
        assert done.forward_steps == least


class ChainOf:
    """The sizes of states, and nothing else of a cell."""

    def __init__(self, hidden, internal):
        self.hidden_nbytes, self.internal_nbytes = hidden.__mul__, internal.__mul__


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_coarse_unit_rounds_up_little(hidden, more):
    internal = hidden + more
    unit = coarse_unit(hidden, internal)
    counts = -(-hidden // unit), -(-internal // unit)
    assert counts[1] <= 16
    assert counts[1] * unit < internal + unit
    assert counts[0] * unit < hidden + unit
    same = min(internal, 16)
    assert coarse_unit(1, same) == 1 or same == 1


def test_no_plan_sees_more_steps_than_it_can_hold(monkeypatch):
    with pytest.raises(ValueError, match=r"lengths\[1\], the largest, is 4194305; give at most"):
        mb.packed_schedule([3, 2**22 + 1], "1 MiB", CELL)
    monkeypatch.setattr(packed.patches, "PatchRule", None)  # is not asked
    plan = mb.packed_schedule([PATCHED_STEPS + 1, 5], "64 KiB", CELL)
    assert plan.peak_bytes <= 65536


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
    with pytest.raises(TypeError, match="cell is 'lstm'; give a cell"):
        mb.packed_schedule([3, 1], "1 MiB", "lstm")
    with pytest.raises(ValueError, match="memory is '1 QiB'"):
        mb.packed_schedule([3, 1], "1 QiB", CELL)


def test_it_says_what_it_is():
    plan = mb.packed_schedule([30, 10], 2000, CELL)
    again = mb.packed_schedule(plan.lengths, 2000, CELL)
    assert list(again) == list(plan) and again.lengths == plan.lengths
    assert repr(plan.lengths) == "Lengths([30, 10])"
    assert repr(plan) == (
        f"<PackedSchedule: 2 rows of up to 30 steps, {plan.row_steps} rows forward for 40, "
        "budget 2000 bytes>"
    )


def test_it_is_a_value():
    made, again, other = (mb.packed_schedule([9, 5, n], "4 KiB", mb.LSTM(3, 4)) for n in (2, 2, 3))
    assert made == again and hash(made) == hash(again)
    assert made != other and made != list(made)
    assert made != mb.packed_schedule([9, 5, 2], "3 KiB", mb.LSTM(3, 4))
