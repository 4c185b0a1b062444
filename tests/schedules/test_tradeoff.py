"""The trade-off of time and memory, against single schedules."""

import numpy as np
import pytest

from membptt.memory import Units
from membptt.schedules import cheapest_budget, schedule, trade_off
from membptt.solver import ONE_LANE


class Cell:
    def hidden_nbytes(self, batch):
        return 8 * batch

    def internal_nbytes(self, batch):
        return 24 * batch


def test_every_point_is_the_schedule_of_that_budget():
    curve = trade_off(30, Cell(), batch=2)
    assert curve.unit == "bytes" and curve.memory[0] == 48 and curve.memory[-1] == 30 * 48
    for name, costs in curve.forward_steps.items():
        for memory, cost in zip(curve.memory.tolist(), costs, strict=True):
            if np.isnan(cost):
                with pytest.raises(ValueError, match="needs at least"):
                    schedule(30, memory, name, Cell(), batch=2)
            else:
                assert schedule(30, memory, name, Cell(), batch=2).forward_steps == cost


def test_optimal_is_nowhere_above_another_and_falls_to_full():
    curve = trade_off(200, alpha=3)
    best = curve.forward_steps["optimal"]
    assert best[-1] == 200 and curve.time_factor("optimal")[-1] == 1.0
    assert (np.diff(best) <= 0).all()
    for costs in curve.forward_steps.values():
        assert (best <= np.where(np.isnan(costs), np.inf, costs)).all()


def test_many_budgets_are_thinned():
    curve = trade_off(2000, alpha=3, strategies=["optimal", "ism"], points=50)
    assert list(curve.forward_steps) == ["optimal", "ism"]
    assert len(curve.memory) <= 50 and curve.memory[-1] == 6000


@pytest.mark.parametrize("name", sorted(ONE_LANE))
@pytest.mark.parametrize("slowdown", [1.0, 1.1, 4 / 3, 2.0])
def test_the_cheapest_budget_suffices_and_one_less_does_not(name, slowdown):
    try:
        budget = cheapest_budget(60, slowdown, name, alpha=3)
    except ValueError as error:
        assert "never that fast" in str(error)
        assert name in ("hsm", "revolve", "chen", "chen-recursive")
        return
    assert schedule(60, budget, name).time_factor() <= slowdown + 1e-12
    try:
        less = schedule(60, Units(budget.count - 1, 3), name)
    except ValueError:
        return
    assert less.time_factor() > slowdown


def test_a_budget_in_bytes_can_be_planned_with():
    budget = cheapest_budget(100, 1.5, cell=Cell(), batch=4)
    assert budget % 32 == 0
    assert schedule(100, budget, cell=Cell(), batch=4).time_factor() <= 1.5
    assert cheapest_budget(100, 1.0, "hsm", cell=Cell()) == 2400  # only full BPTT is that fast


@pytest.mark.parametrize("bad", [0.99, float("nan"), float("inf"), -1])
def test_bad_slowdowns(bad):
    with pytest.raises(ValueError, match="max_slowdown is"):
        cheapest_budget(10, bad)
    with pytest.raises(ValueError, match="backward_ratio is"):
        cheapest_budget(10, 2, backward_ratio=-bad if bad > 0 else bad)


def test_what_is_no_number():
    with pytest.raises(TypeError, match="max_slowdown is 'fast'; give a number"):
        cheapest_budget(10, "fast")
    with pytest.raises(TypeError, match="backward_ratio is None; give a number"):
        cheapest_budget(10, 2, backward_ratio=None)
