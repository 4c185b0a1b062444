"""Uneven chains: readable twin, compiled tables, replay, and all schedules there are."""

import random
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from membptt.oracle.exhaustive import least_cost
from membptt.schedules.uneven import chain_schedule
from membptt.solver import chains, forward_steps
from membptt.solver.chains import MOST_UNITS, Chain, ChainRule


def random_chain(seed, steps, proven):
    """Return a chain with random costs and sizes; `proven`: of the kind the proof covers."""
    draw = random.Random(seed)
    hidden = [draw.randint(1, 3) for _ in range(steps)]
    if proven:
        hidden.sort(reverse=True)
    internal = [hidden[t] + (hidden[t - 1] if t else 0) + draw.randint(0, 2) for t in range(steps)]
    if proven:
        internal = [max(internal[t:]) for t in range(steps)]
    return Chain(
        tuple(draw.randint(1, 4) for _ in range(steps)),
        tuple(hidden),
        tuple(internal),
        backward=tuple(draw.randint(1, 4) for _ in range(steps)),
        save_hidden=draw.choice([0, 0.5]),
        save_internal=draw.choice([1, 1.5]),
        restore=draw.choice([0, 1]),
    )


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_twins_replay_and_exhaustive_search(seed, proven):
    chain = random_chain(seed, steps=2 + seed % 4, proven=proven)
    assert chain.is_proven or not proven
    for budget in range(max(chain.internal), max(chain.internal) + 7):
        free, _ = chains.readable(chain, budget)
        made = chain_schedule(chain, budget)
        assert made.exact
        assert made.cost == pytest.approx(free(0, chain.steps, budget) + sum(chain.backward))
        assert made.replay().peak <= budget
        assert priced(made) == pytest.approx(made.cost)
        least = least_cost(chain, budget) + sum(chain.backward)
        if chain.is_proven:
            assert made.cost == pytest.approx(least)
        else:
            assert made.cost >= least - 1e-9


def priced(made):
    """Return what the actions of a schedule cost, one by one."""
    chain, total = made.chain, 0.0
    for action in made:
        name = type(action).__name__
        if name.startswith("Advance"):
            total += sum(chain.forward[action.start : action.stop])
        total += {
            "AdvanceSaveHidden": chain.save_hidden,
            "AdvanceSaveInternal": chain.save_internal,
            "Restore": chain.restore,
            "Backward": chain.backward[action.step - 1] if name == "Backward" else 0,
        }.get(name, 0)
    return total


@pytest.mark.parametrize(("steps", "units", "alpha"), [(30, 12, 3), (60, 20, 2), (25, 7, 1)])
def test_an_even_chain_is_optimal(steps, units, alpha):
    made = chain_schedule(Chain.even(steps, 1, alpha), units)
    assert made.cost == forward_steps(steps, units, "optimal", alpha)
    assert made.replay().forward_steps == made.cost


@pytest.mark.parametrize(
    ("changed", "proven"),
    [
        ({}, True),
        ({"restore": 2}, True),
        ({"restore": 2.5}, False),
        ({"save_hidden": 0.5, "save_internal": 1}, True),
        ({"save_hidden": 0.5, "save_internal": 0.9}, False),
        ({"hidden": (1, 2, 1)}, False),
        ({"internal": (2, 2, 3)}, False),
        ({"internal": (2, 2, 1)}, False),
        ({"hidden": (2, 1, 1), "internal": (3, 3, 2)}, True),
        ({"hidden": (4, 1, 1), "internal": (3, 3, 2)}, False),
    ],
)
def test_each_condition_of_the_proof(changed, proven):
    even = {"forward": (2, 3, 4), "hidden": (1, 1, 1), "internal": (2, 2, 2)}
    assert Chain(**even | changed).is_proven == proven


def test_the_first_step_holds_no_state_before_it():
    assert Chain((1,), (1,), (1,)).is_proven
    assert not Chain((1,), (2,), (1,)).is_proven


@pytest.mark.parametrize("internal", [1, 2])
def test_twins_where_an_internal_state_takes_no_more_than_a_hidden_one(internal):
    chain = Chain.even(7, 2, internal)
    for budget in range(internal, 9):
        free, _ = chains.readable(chain, budget)
        assert chain_schedule(chain, budget).cost == free(0, 7, budget)


@pytest.mark.parametrize("seed", range(20))
def test_twins_where_either_state_may_take_less(seed):
    draw = random.Random(seed)
    steps = 3 + seed % 4
    sizes = [[draw.randint(1, 5) for _ in range(steps)] for _ in range(2)]
    costs = [draw.randint(1, 4) for _ in range(steps)]
    chain = Chain(costs, *sizes, save_hidden=draw.choice([0, 2]), save_internal=draw.choice([1, 3]))
    for budget in range(max(chain.internal), max(chain.internal) + 7):
        free, _ = chains.readable(chain, budget)
        made = chain_schedule(chain, budget)
        assert made.cost == priced(made) == free(0, steps, budget) >= least_cost(chain, budget)
        assert made.replay().peak <= budget


def test_an_even_chain_counts_steps_and_states_unless_told():
    ones = (1, 1, 1)
    assert Chain.even(3) == Chain(ones, ones, ones, (0.0, 0.0, 0.0))


def test_the_smallest_chain_found_where_the_recurrence_is_not_the_least():
    """An internal state is worth exchanging for the smaller hidden state that it holds."""
    chain = Chain((3, 4, 1, 2), (2, 2, 1, 1), (4, 3, 3, 2))
    assert not chain.is_proven
    assert chain_schedule(chain, 5).cost == 20
    assert least_cost(chain, 5) == 18


def test_packed_batches_that_shrink():
    """Sizes in bytes of an LSTM's states as sequences end; planned exactly, in their unit."""
    batch = [8] * 20 + [5] * 20 + [3] * 20
    chain = Chain(
        tuple(batch), tuple(2 * 64 * 4 * b for b in batch), tuple(6 * 64 * 4 * b for b in batch)
    )
    made = chain_schedule(chain, 100_000)
    assert chain.is_proven and made.exact
    assert made.replay().peak <= 100_000
    largest = chain_schedule(Chain.even(60, chain.hidden[0], chain.internal[0]), 100_000)
    assert made.cost < 8 * largest.cost


def test_sizes_too_fine_are_rounded_up_and_the_budget_holds():
    draw = np.random.default_rng(0)
    hidden = draw.integers(1000, 2000, 40).tolist()
    chain = Chain((1,) * 40, tuple(hidden), tuple(3 * size for size in hidden))
    made = chain_schedule(chain, 30_000)
    assert not made.exact
    assert made.replay().peak <= 30_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((), (), ()), "forward is empty"),
        (((1, 1), (1, 1), (1, 1, 1)), "internal has 3 entries and forward has 2"),
        (((1, 1), (1,), (1, 1)), "hidden has 1 entries and forward has 2"),
        (((1, -1), (1, 1), (1, 1)), "forward holds a negative"),
        (((1, float("nan")), (1, 1), (1, 1)), "forward holds a negative"),
        (((1, 1), (1, 0), (1, 1)), "hidden is 0"),
        (((1, 1), (1, 1), (1, 1), (1, 1), -1), "save_hidden is -1"),
    ],
)
def test_bad_chains(arguments, words):
    with pytest.raises(ValueError, match=words):
        Chain(*arguments)


def test_budgets_too_small_and_chains_too_long():
    with pytest.raises(ValueError, match=r"budget is 2; .* at least its largest internal state, 3"):
        chain_schedule(Chain.even(3, 1, 3), 2)
    with pytest.raises(ValueError, match="budget is 0"):
        chain_schedule(Chain.even(3, 1, 3), 0)
    too_fine = Chain((1, 1, 1), (7, 7, 7), (1001, 1001, 1003))  # for a table: its unit is 4
    with pytest.raises(ValueError, match=r"budget is 1002; .* largest internal state, 1003$"):
        chain_schedule(too_fine, 1002)
    assert chain_schedule(too_fine, 1003).cost == 6
    with pytest.raises(ValueError, match=r"3000 uneven steps needs tables of .* above the limit"):
        chain_schedule(Chain.even(3000, 1, 3), 100)


def test_the_limit_is_on_what_the_tables_take(monkeypatch):
    chain = Chain.even(9, 1, 3)
    rule = ChainRule(chain, 11)
    monkeypatch.setattr(chains, "TABLE_LIMIT", rule.free.nbytes + rule.held.nbytes)
    assert ChainRule(chain, 11).cost == rule.cost
    monkeypatch.setattr(chains, "TABLE_LIMIT", chains.TABLE_LIMIT - 1)
    with pytest.raises(ValueError, match="a chain of 9 uneven steps needs tables of"):
        ChainRule(chain, 11)


@settings(max_examples=60, deadline=None)
@given(largest=st.integers(1, 3000), more=st.integers(0, 3000), hidden=st.integers(1, 50))
def test_the_unit_is_the_finest_in_which_the_largest_state_fits(largest, more, hidden):
    budget = largest + more
    rule = ChainRule(Chain.even(3, min(hidden, largest), largest), budget)
    budget = min(budget, 3 * largest)
    finest = max(gcd(min(hidden, largest), largest), -(-budget // MOST_UNITS))
    units = range(finest, largest + 1)
    assert rule.unit == next(u for u in units if -(-largest // u) <= budget // u)


def test_states_of_any_size_have_a_unit():
    largest = 10**12 + 39  # a prime
    for budget in (largest, largest + 1, 2 * largest - 1):
        planned = chain_schedule(Chain.even(4, 10**11 + 3, largest), budget)
        assert planned.replay().peak <= budget
    with pytest.raises(ValueError, match="needs at least its largest internal state"):
        chain_schedule(Chain.even(4, 10**11 + 3, largest), largest - 1)
