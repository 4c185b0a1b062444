"""The recurrence of `optimal` against all schedules there are."""

import pytest

from membptt.oracle.exhaustive import least_cost
from membptt.solver import forward_steps
from membptt.solver.chains import Chain
from membptt.solver.expand import ExpandCost
from membptt.solver.recurrences import expand
from membptt.solver.strategies import Sizes, find_strategy, plan


def optimal(t, m, a, b):
    sizes = Sizes(a, b)
    return plan(t, m // sizes.unit, find_strategy("optimal"), sizes).forward_steps


@pytest.mark.parametrize("alpha", [1, 2, 3, 4])
@pytest.mark.parametrize("t", range(1, 8))
def test_optimal_is_the_least_of_all(t, alpha):
    for m in range(10 if t < 7 else 7):
        exhaustive = least_cost(Chain.even(t, 1, alpha), m)
        if m < alpha:
            assert exhaustive is None
        else:
            assert forward_steps(t, m, "optimal", alpha) == exhaustive


@pytest.mark.parametrize(("a", "b"), [(5, 12), (3, 7), (2, 3), (3, 2), (2, 1)])
@pytest.mark.parametrize("t", range(1, 7))
def test_optimal_in_bytes_is_the_least_of_all(t, a, b):
    for m in range(b, 3 * b + a):
        assert optimal(t, m, a, b) == least_cost(Chain.even(t, a, b), m)


@pytest.mark.parametrize(("t", "m", "msm", "least"), [(7, 6, 14, 13), (8, 6, 17, 16)])
def test_the_papers_mixed_strategy_is_not(t, m, msm, least):
    """alpha = 3; msm counts its units without the working internal state."""
    assert forward_steps(t, m - 3, "msm", alpha=3) == msm
    assert forward_steps(t, m, "optimal", alpha=3) == least == least_cost(Chain.even(t, 1, 3), m)


def test_nothing_fits():
    assert least_cost(Chain.even(3, 1, 3), 2) is None


@pytest.mark.parametrize("price", [(0, 0), (0, 0.05), (0.3, 0.1), (1, 0.3), (0, 0.6), (1.5, 0.1)])
@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3), (1, 5), (2, 5), (2, 3)])
def test_expansions_are_placed_as_the_best_of_all_schedules_would(a, b, price):
    prices = ExpandCost(*price).prices(4)
    for t in range(1, 7):
        table, _ = expand(6, 3 * b, a, b, prices, forward=100)
        for m in range(b, 3 * b + 1, 1 if t < 6 else 3):
            assert table[t][m] == least_cost(Chain.even(t, a, b, forward=100), m, prices)


def test_without_cheap_expansions_nothing_changes():
    chain = Chain.even(6, 1, 3, forward=100)
    for m in range(3, 10):
        dear = least_cost(chain, m, ExpandCost(0, 1).prices(4))
        assert dear == least_cost(chain, m) == 100 * optimal(6, m, 1, 3)
