"""The same bits under every strategy, budget and thread count; never a byte over the budget."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import membptt as mb
from membptt.schedules import replay

STRATEGIES = ["full", "hsm", "ism", "msm", "optimal", "expand"]
# (T, B, H): lengths of one to three, primes, several flush blocks, odd and single hidden units
SIZES = [(1, 1, 1), (2, 3, 5), (3, 1, 33), (13, 2, 8), (29, 20, 40), (61, 17, 7)]


def budgets(cell, batch, steps):
    """Byte budgets from the minimum to beyond full BPTT, odd ones among them."""
    hidden, internal = cell.hidden_nbytes(batch), cell.internal_nbytes(batch)
    full = steps * internal
    amounts = {internal, internal + hidden, 2 * internal + 1, full // 3, full - 1, full, 2 * full}
    return sorted(amount for amount in amounts if amount >= internal)


def plan(steps, budget, strategy, cell, batch):
    """Return the schedule, or None where the budget is below the strategy's minimum."""
    try:
        return mb.schedule(steps, budget, strategy, cell, batch)
    except ValueError as error:
        assert "at least" in str(error) or "minimum" in str(error)
        return None


def check(case, bits, schedule, wanted, **options):
    executor = mb.Executor(case.cell, schedule, case.inputs.shape[1], record=True, **options)
    result = executor.run(case.inputs, case.head, case.state)
    stats = result.stats
    assert bits(result) == wanted
    assert stats.forward_steps == schedule.forward_steps
    assert stats.backward_steps == schedule.steps
    assert stats.peak_bytes == schedule.peak_bytes <= stats.arena_bytes
    assert stats.arena_bytes == min(schedule.budget, schedule.full_bytes)
    assert len(executor.arena.buffer) == stats.arena_bytes
    # What really ran is what was planned, and it is legal.
    planned = np.concatenate(list(schedule.codes()))
    assert (result.trace[:, :3] == planned).all()
    assert result.trace[:, 3].max() == stats.peak_bytes
    ran = mb.Schedule.from_actions(
        list(schedule), schedule.steps, schedule.hidden, schedule.internal, "bytes", schedule.budget
    )
    assert ran.forward_steps == stats.forward_steps


@pytest.mark.parametrize("backend", ["numpy", "cython"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_bits_do_not_depend_on_strategy_or_budget(window, bits, cell, size, dtype, backend):
    steps, batch, hidden = size
    tokens, head = ((True, "softmax"), (False, "linear"))[steps % 2]
    case = window(cell, steps, batch, 5, hidden, 6, dtype, backend, tokens, head, seed=steps)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    ran = 0
    for strategy in STRATEGIES:
        for budget in budgets(case.cell, batch, steps):
            schedule = plan(steps, budget, strategy, case.cell, batch)
            if schedule is not None:
                check(case, bits, schedule, wanted)
                ran += 1
    assert ran >= len(STRATEGIES)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
@pytest.mark.parametrize("tokens, head", [(True, "softmax"), (False, "linear")])
def test_bits_do_not_depend_on_the_number_of_threads(window, bits, cell, tokens, head):
    case = window(cell, 25, 16, 9, 100, 70, tokens=tokens, head=head)
    wanted = bits(mb.full_bptt(*case.arguments(), case.state))
    schedule = mb.schedule(25, 5 * case.cell.internal_nbytes(16), "optimal", case.cell, 16)
    for threads in (1, 2, 3, 5):
        result = mb.bptt(*case.arguments(), schedule, case.state, threads=threads)
        assert bits(result) == wanted


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "stack"])
def test_the_readable_executor_and_the_compiled_one_are_twins(window, bits, cell):
    case = window(cell, 31, 3)
    for strategy in STRATEGIES:
        budget = 31 * case.cell.internal_nbytes(3) // 4
        schedule = mb.schedule(
            31, budget if strategy != "full" else 4 * budget + 3 * 31 * 64, strategy, case.cell, 3
        )
        runs = [
            mb.Executor(case.cell, schedule, 3, record=True, step_through=slow).run(
                case.inputs, case.head, case.state
            )
            for slow in (False, True)
        ]
        assert bits(runs[0]) == bits(runs[1])
        assert (runs[0].trace == runs[1].trace).all()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_networks_and_budgets(window, bits, data):
    steps, batch, hidden = (data.draw(st.integers(1, n)) for n in (40, 9, 40))
    case = window(
        data.draw(st.sampled_from(["rnn", "lstm", "gru", "stack"])),
        steps,
        batch,
        4,
        hidden,
        5,
        tokens=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 9)),
    )
    internal = case.cell.internal_nbytes(batch)
    budget = data.draw(st.integers(internal, (steps + 1) * internal))
    schedule = plan(steps, budget, data.draw(st.sampled_from(STRATEGIES)), case.cell, batch)
    if schedule is not None:
        check(case, bits, schedule, bits(mb.full_bptt(*case.arguments(), case.state)))


def test_a_budget_above_the_need_recomputes_nothing(window):
    case = window(T=20)
    schedule = mb.schedule(20, "1 GiB", "optimal", case.cell, 2)
    assert mb.bptt(*case.arguments(), schedule).stats.forward_steps == 20


def test_an_executor_is_reused_with_other_parameters_inputs_and_states(window, bits):
    first = window(T=15, seed=1)
    schedule = mb.schedule(15, 4 * first.cell.internal_nbytes(2), "optimal", first.cell, 2)
    executor = mb.Executor(first.cell, schedule, 2)
    arena = executor.arena.buffer
    executor.run(first.inputs, first.head, first.state)
    other = window(T=15, seed=2)
    first.cell.params = other.cell.params
    first.head.head.params.update(other.head.params)
    head = first.head.head.with_targets(other.head.targets)
    result = executor.run(other.inputs, head, other.state)
    assert bits(result) == bits(mb.full_bptt(*other.arguments(), other.state))
    assert executor.arena.buffer is arena


def test_units_schedules_run_too(window, bits):
    case = window(T=30)
    wanted = bits(mb.full_bptt(*case.arguments()))
    schedule = mb.schedule(30, mb.Units(9, alpha=3), "optimal")
    result = mb.bptt(*case.arguments(), schedule)
    assert bits(result) == wanted
    assert result.stats.peak_bytes <= 9 * case.cell.hidden_nbytes(2)


def test_replay_of_what_ran_gives_the_same_counts(window):
    case = window(T=30)
    schedule = mb.schedule(30, 5 * case.cell.internal_nbytes(2), "optimal", case.cell, 2)
    result = mb.bptt(*case.arguments(), schedule, record=True)
    proved = replay(schedule, 30, schedule.hidden, schedule.internal, schedule.budget)
    assert proved.forward_steps == result.stats.forward_steps
    assert proved.peak == result.stats.peak_bytes
