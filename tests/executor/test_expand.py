"""Strategy expand: blocks of steps at once, with the bits of full BPTT and inside the budget."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import membptt as mb
from membptt.schedules import AdvanceSaveHidden, Backward, Expand, Free, Schedule
from membptt.timing import expand as module
from membptt.timing.expand import measure
from membptt.timing.moves import Times

CHEAP = mb.ExpandCost(0, 0.02)


def hand_made(steps, hidden, internal):
    """Return a schedule that expands all steps but the last block of it at once, one by one."""
    actions = [AdvanceSaveHidden(step, step + 1) for step in range(steps - 1)]
    actions.append(Expand(0, steps))
    for step in range(steps, 0, -1):
        actions += [Backward(step), Free(step, internal=True)]
    return Schedule.from_actions(actions, steps, hidden, internal, "bytes")


# Batches below, at and above the rows that are expanded together; several projections of inputs.
@pytest.mark.parametrize(("steps", "batch", "hidden"), [(41, 1, 37), (23, 3, 8), (14, 40, 33)])
@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_every_loop_gives_the_bits_of_full_bptt(
    window, bits, cell, tokens, backend, steps, batch, hidden
):
    case = window(cell, steps, batch, 5, hidden, 6, "float32", backend, tokens, seed=steps)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    least = case.cell.internal_nbytes(batch)
    expanded = 0
    for memory in (2 * least, 3 * least, steps * least // 3, steps * least - 1):
        plan = mb.schedule(steps, memory, "expand", case.cell, batch, expand_cost=CHEAP)
        expanded += plan.expansions
        for options in ({}, {"step_through": True}, {"threads": 2}):
            executor = mb.Executor(case.cell, plan, batch, record=True, **options)
            result = executor.run(case.inputs, case.head, case.state)
            assert bits(result) == wanted
            assert result.stats.forward_steps == plan.forward_steps
            assert result.stats.expanded_steps == plan.expanded_steps
            assert result.stats.peak_bytes == plan.peak_bytes <= memory
            assert (result.trace[:, :3] == np.concatenate(list(plan.codes()))).all()
    assert expanded


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_the_last_step_may_come_from_a_block(window, bits, backend):
    """Then no forward step reaches the end: the last hidden state comes from the block too."""
    case = window("lstm", 70, 2, 4, 9, 5, backend=backend, tokens=False)
    plan = hand_made(70, case.cell.hidden_nbytes(2), case.cell.internal_nbytes(2))
    assert plan.forward_steps == 69
    result = mb.bptt(*case.arguments(), plan, case.state)
    assert bits(result) == bits(mb.full_bptt(*case.arguments(), case.state))


def test_inputs_in_blocks_that_end_inside_an_expansion(window, bits):
    """A reader gives blocks of 512 // B steps; an expansion may lie across two of them."""

    class Reader:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, key):
            return self.array[key]

    case = window("lstm", 60, 20, 4, 9, 5, tokens=False)
    plan = hand_made(60, case.cell.hidden_nbytes(20), case.cell.internal_nbytes(20))
    full = mb.full_bptt(*case.arguments(), case.state)
    result = mb.bptt(case.cell, Reader(case.inputs), case.head, plan, case.state)
    assert bits(result) == bits(full)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(0, 60),
    st.integers(2, 5),
    st.floats(0, 2),
    st.floats(0, 1.2),
)
def test_plans_are_legal_and_cost_what_the_tables_say(steps, extra, alpha, fixed, per_step):
    price = mb.ExpandCost(fixed, per_step)
    plan = mb.schedule(steps, mb.Units(alpha + extra, alpha), "expand", expand_cost=price)
    done = plan.replay()
    assert done.forward_steps == plan.forward_steps
    assert done.expanded_steps == plan.expanded_steps
    assert done.peak == plan.peak_bytes <= plan.budget
    assert plan.forward_steps == plan._rule.forward_steps
    assert plan.expanded_steps == plan._rule.expanded_steps
    cost = plan.forward_steps + price.total(plan.expansions, plan.expanded_steps)
    assert cost == pytest.approx(plan._rule.cost() / 100, abs=0.011 * (1 + plan.expanded_steps))
    plain = mb.schedule(steps, mb.Units(alpha + extra, alpha))
    assert plan._rule.cost() <= 100 * plain.forward_steps


def test_the_price_of_a_block():
    """min(q, fixed + per_step q), in hundredths, of every length that is planned."""
    price = mb.ExpandCost(3, 0.25)
    wanted = [0, 1, 2, 3, 4, 4.25, 4.5, 4.75, 5]
    assert [price.of(q) for q in range(9)] == wanted
    assert price.prices(8) == [100 * each for each in wanted]
    assert len(price.prices()) == 65 and price.prices()[64] == 100 * (3 + 16)
    assert price.total(3, 20) == 3 * 3 + 0.25 * 20


def test_the_headline():
    """T = 1000, one third more time: 47 units of 3000 where expansions are nearly free."""
    price = mb.ExpandCost(0, 0.02)
    plan = mb.schedule(1000, mb.Units(47, alpha=3), "expand", expand_cost=price)
    assert plan.time_factor() <= 4 / 3
    assert plan.saved_fraction > 0.984
    assert (
        mb.schedule(1000, mb.Units(46, alpha=3), "expand", expand_cost=price).time_factor() > 4 / 3
    )


def test_saved_pickled_and_loaded(tmp_path):
    plan = mb.schedule(30, mb.Units(9, alpha=3), "expand", expand_cost=CHEAP)
    assert plan.expansions
    plan.save(tmp_path / "plan.json")
    for again in (Schedule.load(tmp_path / "plan.json"), pickle.loads(pickle.dumps(plan))):
        assert again == plan
        assert again.expand_cost == CHEAP
        assert again.time_factor() == plan.time_factor()


@pytest.mark.parametrize("backend", ["numpy", "cython"])
def test_a_price_is_measured_and_used(backend):
    cell = mb.LSTM(5, 64, backend=backend)
    price = measure(cell, 1)
    assert price.fixed >= 0 < price.per_step < 10
    plan, price = mb.expand_schedule(100, "20 KiB", cell, 1)
    assert plan.expand_cost == price
    fixed, cost = mb.expand_schedule(100, "20 KiB", cell, 1, cost=CHEAP)
    assert fixed.expand_cost == cost == CHEAP
    times = Times(1.0, 2.0, 0.0, 0.0, 0.0, 0.0)
    predicted = fixed.forward_steps + CHEAP.total(fixed.expansions, fixed.expanded_steps) + 200
    assert times.seconds(fixed) == pytest.approx(predicted)


def test_hidden_states_that_are_not_smaller_are_not_kept():
    plan = mb.schedule(20, mb.Units(5, alpha=1), "expand", expand_cost=CHEAP)
    assert plan.expansions == 0
    assert plan.forward_steps == mb.forward_steps(20, 5, "ism")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0), "fixed is -1"),
        ((0, float("nan")), "per_step is nan"),
        ((float("inf"), 0), "fixed"),
    ],
)
def test_a_price_that_makes_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        mb.ExpandCost(*arguments)


def test_the_price_is_for_this_strategy():
    with pytest.raises(ValueError, match=r"expand_cost is .* with strategy optimal"):
        mb.schedule(10, mb.Units(5, 3), expand_cost=CHEAP)


@pytest.mark.parametrize(("seconds", "rounds"), [(0, 1), (1e9, module.ROUNDS)])
def test_a_slow_cell_is_measured_in_few_rounds(monkeypatch, seconds, rounds):
    """One in plain code takes long for each of them."""
    timed = []
    monkeypatch.setattr(module, "SECONDS", seconds)
    monkeypatch.setattr(module, "seconds", lambda *move: timed.append(move) or 1.0)
    measure(mb.LSTM(3, 4), 1)
    assert len(timed) == 3 * rounds
