"""The lower bound against exact costs, near-optimal schedules against their certificate, and the
bounds of the paper."""

import gc
import weakref
from math import comb

import numpy as np
import pytest

from membptt.memory import Units
from membptt.schedules import schedule
from membptt.solver import _solver, bounds, forward_steps, strategies


def test_a_long_plan_does_not_wait_for_the_collector():
    """Its tables may be large, and a budget in bytes may be what they are planned for."""
    gc.disable()
    try:
        rule = bounds.NearOptimalRule(3 * bounds.EXACT, 40, 1, 3)
        assert rule.cost(3 * bounds.EXACT) > 0
        gone = weakref.ref(rule)
        del rule
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3), (1, 4), (1, 6), (2, 3), (5, 12)])
def test_the_lower_bound_is_below_every_cost_and_close(a, b):
    A, B = _solver.optimal_tables(300, 60, a, b)
    conjugates = bounds.Conjugates(100_000, 60, a, b)
    t = np.arange(1, 301)
    for held, table in ((False, A), (True, B)):
        for m in range(max(a, b), 61):
            below = -(-conjugates.below(held, m, t) // bounds.PER_UNIT)
            assert (below <= table[m, 1:]).all()
            # Far from the smallest budgets the bound is nearly the cost.
            if m > 4 * b:
                assert (below >= 0.97 * table[m, 1:] - 2).all()
        for m in range(b):  # too few for one internal state
            below = conjugates.below(held, m, np.arange(301))
            assert below[0] == 0 and (below[1:] > bounds.PER_UNIT * 300 * 301).all()


def test_the_conjugate_is_that_of_the_table():
    """Where the table is long enough to hold the maximum, both give the same number."""
    A, B = _solver.optimal_tables(1500, 12, 1, 3)
    conjugates = bounds.Conjugates(200, 12, 1, 3)
    t = np.arange(1, 1501)
    compared = 0
    for number, slope in enumerate(conjugates.slopes.tolist()):
        for table, starred in ((A, conjugates.free), (B, conjugates.held)):
            for m in range(3, 13):
                values = slope * t - bounds.PER_UNIT * table[m, 1:].astype(np.int64)
                if values.argmax() < 1400:
                    assert values.max() == starred[number, m]
                    compared += 1
    assert compared > 300


@pytest.mark.parametrize(
    ("steps", "units", "alpha"), [(2500, 20, 3), (5000, 60, 2), (9000, 100, 5)]
)
def test_near_optimal_against_optimal(steps, units, alpha):
    exact = forward_steps(steps, units, "optimal", alpha)
    made = schedule(steps, Units(units, alpha), "near-optimal")
    assert made.lower_bound <= exact <= made.forward_steps <= 1.01 * made.lower_bound
    assert made._sums.forward_steps == made.forward_steps
    assert made.peak_bytes <= units


@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3), (2, 5)])
def test_a_split_has_the_least_bound_of_all(a, b):
    """Against the recurrence written out, with the bounds in place of A and B."""
    conjugates, per_unit = bounds.Conjugates(500, 70, a, b), bounds.PER_UNIT

    def below(held, m, t):
        return int(conjugates.below(held, m, np.array([t]))[0]) if t else 0

    seen = set()
    for t in (2, 3, 30, bounds.GRID, 40, 41, 200):
        for held in (False, True):
            for free in (*range(0 if held else b, 9 * b), 60):
                m = free + a if held else free
                if m < b:
                    continue
                costs = {y: y * per_unit + below(True, free, t - y) + below(held, m, y)
                         for y in range(1, t)}  # fmt: skip
                if free >= b:
                    costs |= {-y: y * per_unit + below(False, free - b, t - y)
                              + below(held, m, y - 1) for y in range(1, t + 1)}  # fmt: skip
                if held:
                    costs[0] = per_unit + below(False, m - b, t - 1)
                y = conjugates.split(t, free, held)
                assert costs[y] == min(costs.values()), (t, free, held)
                seen.add((np.sign(y), held))
    assert len(seen) == 5


def test_the_least_value_wherever_it_lies():
    for last in (1, 5, bounds.GRID - 1, bounds.GRID, bounds.GRID + 1, 1000, 5001):
        for place in {1, 2, last // 2, last - 1, last} & set(range(1, last + 1)):
            found = bounds._least(lambda y, place=place: (y - place) ** 2, 1, last)
            assert found == (0, place)
    value, place = bounds._least(lambda y: np.maximum(np.abs(y - 3000), 100), 1, 5001)
    assert value == 100 and 2900 <= place <= 3100


@pytest.mark.parametrize("alpha", [2, 3, 7])
def test_what_is_said_to_be_run_is_what_runs(alpha, monkeypatch):
    """With exact tables of few steps, chains that can be counted are split by the bounds."""
    monkeypatch.setattr(bounds, "EXACT", 12)
    monkeypatch.setattr(strategies, "EXACT", 12)
    for steps in (12, 13, 14, 25, 40, 120):
        for units in sorted({alpha, alpha + 1, 2 * alpha + 1, 5 * alpha, alpha * steps // 2,
                             alpha * (steps - 1), alpha * steps}):  # fmt: skip
            if units < alpha:
                continue
            made = schedule(steps, Units(units, alpha), "near-optimal")
            exact = forward_steps(steps, units, "optimal", alpha)
            assert made.replay().forward_steps == made.forward_steps
            assert exact <= made.forward_steps <= 1.05 * exact, (steps, units)
            assert (made.lower_bound is None) == (steps <= 12)
            if steps > 12:
                assert steps <= made.lower_bound <= exact


def test_near_optimal_gives_a_start_back_early_where_memory_abounds():
    made = schedule(3000, Units(2900, 2), "near-optimal")
    assert made.lower_bound == made.forward_steps == made.replay().forward_steps


@pytest.mark.parametrize("units", [20, 300, 3000])
def test_a_million_steps_within_one_percent(units):
    made = schedule(1_000_000, Units(units, 3), "near-optimal")
    assert made.lower_bound <= made.forward_steps <= 1.01 * made.lower_bound


def test_near_optimal_is_optimal_where_the_tables_reach():
    made = schedule(1000, Units(77, 3), "near-optimal")
    assert made.lower_bound is None and made.forward_steps == 1999
    assert schedule(5000, Units(80, 1), "near-optimal").forward_steps == forward_steps(
        5000, 80, "ism"
    )
    near = strategies.find_strategy("near-optimal")
    for sizes in (strategies.Sizes(1, 1), strategies.Sizes(2, 1)):  # no table is of use then
        assert near.plan(3000, 40, sizes).lower_bound is None
        assert near.costs(3000, [7, 40], sizes) == [forward_steps(3000, m, "ism") for m in (7, 40)]
    sizes = strategies.Sizes(1, 3)
    costs = [near.plan(3000, m, sizes).forward_steps for m in (7, 40)]
    assert near.costs(3000, [7, 40], sizes) == costs == [near.cost(3000, m, sizes) for m in (7, 40)]


def test_the_bound_of_the_paper():
    """C(t, m) <= m t^(1 + 1/m) for hsm; Gruslys et al. (2016), section 3.1."""
    for m in range(1, 40):
        for t in [*range(1, 200), 1000, 10_000, 1_000_000]:
            assert forward_steps(t, m, "hsm") <= m * t ** (1 + 1 / m) * (1 + 1e-12)


def test_the_regimes_of_the_paper():
    """Up to binomial(m + r, m) steps, a step runs at most r times before its last one."""
    for m in range(1, 12):
        for r in range(1, 5):
            t = comb(m + r, m)
            # binomial(m + r, m) is where one more step begins to cost r + 2 forward steps.
            if t > 1:
                assert forward_steps(t, m, "hsm") - forward_steps(t - 1, m, "hsm") == r + 1
            assert forward_steps(t + 1, m, "hsm") - forward_steps(t, m, "hsm") == r + 2
