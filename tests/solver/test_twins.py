"""The readable recurrences against their compiled twins, entry by entry."""

from math import inf

import numpy as np
import pytest

from membptt.schedules import schedule
from membptt.schedules.plan import plan
from membptt.solver import STRATEGIES, _expand, _solver, recurrences
from membptt.solver.expand import ExpandCost
from membptt.solver.strategies import Sizes

T, M = 14, 30
PRICES = ExpandCost(0.4, 0.13).prices(6)
SIZES = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 3), (3, 2), (5, 12)]


def closed_form(name):
    table = np.full((M + 1, T + 1), inf)
    for m in range(1, M + 1):
        table[m, 0] = 0
        for t in range(1, T + 1):
            table[m, t] = STRATEGIES[name].plan(t, m, Sizes(1, 1)).forward_steps
    return [table]


def tables(name, a, b):
    """Return the readable tables [t][m] and the compiled ones [m, t]."""
    if name in ("hsm", "ism"):
        return [getattr(recurrences, name)(T, M)], closed_form(name)
    if name == "msm":
        return [recurrences.msm(T, M, a, b)], [_solver.msm_table(T, M, a, b)]
    if name == "expand":
        return recurrences.expand(T, M, a, b, PRICES, 100), _expand.expand_tables(
            T, M, a, b, PRICES
        )
    return recurrences.optimal(T, M, a, b), _solver.optimal_tables(T, M, a, b)


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [("hsm", 1, 1), ("ism", 1, 1)]
    + [
        (name, a, b)
        for name in ("msm", "optimal", "expand")
        for a, b in SIZES
        if name != "expand" or a < b
    ],
)
def test_same_numbers(name, a, b):
    for readable, fast in zip(*tables(name, a, b), strict=True):
        costs = np.where(fast > 100 * T * (T + 1), inf, fast)
        expected = np.array(readable, dtype=float).T
        expected[0, 0] = costs[0, 0]  # no steps, no memory: a matter of convention
        np.testing.assert_array_equal(costs, expected)


@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3), (5, 12)])
def test_costs_alone_are_those_of_the_tables(a, b):
    """Few rows of a table are held where only its last column is asked for."""
    expanded, _ = _expand.expand_tables(T, M, a, b, PRICES)
    assert _expand.expand_costs(T, M, a, b, PRICES).tolist() == expanded[:, -1].tolist()
    best, _ = _solver.optimal_tables(T, M, a, b)
    assert _solver.optimal_costs(T, M, a, b).tolist() == best[:, -1].tolist()
    mixed = _solver.msm_table(T, M, a, b)
    assert _solver.msm_costs(T, M, a, b).tolist() == mixed[:, -1].tolist()


def test_the_smaller_integers_hold_all_costs_that_they_are_used_for():
    longest = _solver.LONGEST32
    assert _solver.cost_type(longest) == np.int32
    assert _solver.cost_type(longest + 1) == np.int64
    narrow = _solver.msm_table(longest, 1, 1, 2)
    wide = _solver.msm_table(longest + 1, 1, 1, 2)
    np.testing.assert_array_equal(narrow, wide[:, :-1])


@pytest.mark.parametrize(("a", "b"), [(1, 2), (1, 3), (5, 12)])
def test_both_integer_types_give_the_same_tables_and_schedules(a, b, monkeypatch):
    def planned():
        msm, optimal = _solver.MixedRule(90, 40, a, b), _solver.OptimalRule(90, 40, a, b)
        columns = STRATEGIES["msm"].costs(90, range(41), Sizes(a, b))
        best = STRATEGIES["optimal"].costs(90, range(b, 41), Sizes(a, b))
        actions = [list(plan(rule, 0, 90, rule.free)) for rule in (msm, optimal)]
        return [msm.table, *optimal.tables], [columns, best, *actions]

    narrow, decided = planned()
    monkeypatch.setattr(_solver, "LONGEST32", 89)
    wide, again = planned()
    assert decided == again
    for small, large in zip(narrow, wide, strict=True):
        assert (small.dtype, large.dtype) == (np.int32, np.int64)
        feasible = small <= 90 * 91 // 2
        np.testing.assert_array_equal(small[feasible], large[feasible])
        assert (large[~feasible] > 2**31).all()


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 1), (3, 2)])
def test_hidden_states_are_of_no_use_where_they_are_not_smaller(a, b):
    """The shortcut of strategy optimal, and of those that build on it, against its own tables."""
    A, _ = _solver.optimal_tables(40, 30, a, b)
    units, sizes = range(b, 31), Sizes(a, b)
    for t in range(1, 41):
        for name in ("optimal", "near-optimal", "expand"):
            costs = STRATEGIES[name].costs(t, units, sizes)
            assert costs == A[b:, t].tolist()
            assert costs == [STRATEGIES[name].plan(t, m, sizes).forward_steps for m in units]


@pytest.mark.parametrize("name", ["optimal", "near-optimal", "expand"])
@pytest.mark.parametrize(("hidden", "internal"), [(4, 4), (6, 4), (8, 4)])
def test_their_schedules_are_legal_where_hidden_states_are_not_smaller(name, hidden, internal):
    class Cell:
        hidden_nbytes = staticmethod(lambda batch: hidden)
        internal_nbytes = staticmethod(lambda batch: internal)

    for memory in (internal, 3 * internal + 1, 5 * internal):
        made = schedule(13, memory, name, Cell())
        assert made.replay().forward_steps == made.forward_steps
        assert made.forward_steps == schedule(13, memory, "ism", Cell()).forward_steps


def plain_optimal(steps, units, a, b):
    """The recurrence of `optimal` over whole rows of m, without any shortcut."""
    A = np.full((steps + 1, units + 1), inf)
    B = np.full((steps + 1, units + 1), inf)
    A[0] = B[0] = 0
    for t in range(1, steps + 1):
        y = np.arange(1, t + 1)[:, None]

        def least(left, right, less, y=y, t=t):
            """Min over y of y + left + right(t - y, m - less)."""
            best = np.full(units + 1, inf)
            if less <= units:
                sums = (
                    y[: len(left)]
                    + left[:, less:]
                    + right[t - y[: len(left), 0], : units + 1 - less]
                )
                best[less:] = sums.min(axis=0, initial=inf)
            return best

        B[t] = np.minimum(least(B[1:t], B, a), least(B[:t], A, a + b))
        B[t, b:] = np.minimum(B[t, b:], 1 + A[t - 1, : units + 1 - b])
        B[t, : max(a, b)] = inf
        A[t] = np.minimum(least(A[1:t], B, 0), least(A[:t], A, b))
    return A, B


@pytest.mark.parametrize(("a", "b"), [(1, alpha) for alpha in range(1, 7)] + [(5, 12)])
def test_the_bound_that_spares_scans_never_changes_an_entry(a, b):
    for fast, plain in zip(
        _solver.optimal_tables(400, 200, a, b), plain_optimal(400, 200, a, b), strict=True
    ):
        np.testing.assert_array_equal(np.where(fast > 400 * 401, inf, fast), plain.T)
