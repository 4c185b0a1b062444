"""The strategies with a closed form, against what their sources say of them."""

from math import ceil, isqrt, log2

import pytest

from membptt.solver import forward_steps


def test_revolve_is_hsm():
    for t in range(1, 60):
        for m in range(1, 12):
            assert forward_steps(t, m, "revolve") == forward_steps(t, m, "hsm")


def test_revolve_against_the_table_of_its_paper():
    """With s slots and r repetitions, binomial(s + r, s) steps: each runs at most r + 1 times."""
    assert forward_steps(10, 3, "revolve") == 10 + 2 * 10 - 5
    assert forward_steps(1_000_000, 20, "revolve") == 1_000_000 + 8 * 1_000_000 - 1_184_040


def test_uniform_takes_the_best_segment_that_fits():
    for steps in (1, 2, 10, 97):
        for units in range(60, 400, 20):
            costs = {}
            for k in range(1, steps + 1):
                n = ceil(steps / k)
                last = steps - (n - 1) * k
                peak = max(n - 1, max(n - 2, 0) + 3 * last, (max(n - 3, 0) + 3 * k) if n > 1 else 0)
                if peak <= units:
                    costs[k] = 2 * steps - last
            assert forward_steps(steps, units, "uniform", alpha=3) == min(costs.values())


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 10, 99, 100, 101, 10_000])
def test_chen_runs_every_step_at_most_twice(steps):
    cost = forward_steps(steps, 10_000, "chen", alpha=3)
    assert steps <= cost < 2 * steps
    root = isqrt(steps - 1) + 1
    assert cost == 2 * steps - ((steps - 1) % root + 1)


@pytest.mark.parametrize("power", range(1, 15))
def test_chen_recursive_runs_log_t_levels(power):
    steps = 2**power
    cost = forward_steps(steps, 100, "chen-recursive", alpha=3)
    assert cost == steps + steps * log2(steps) / 2
    with pytest.raises(ValueError, match=f"needs at least {power + 2}"):
        forward_steps(steps, 1, "chen-recursive", alpha=3)


@pytest.mark.parametrize("name", ["uniform", "chen", "chen-recursive", "hsm", "ism", "msm"])
def test_none_beats_optimal_at_equal_memory(name):
    from membptt.solver.strategies import STRATEGIES, Sizes

    sizes = Sizes(1, 3)
    for steps in (5, 20, 60):
        for budget in range(3, 3 * steps + 1):
            strategy = STRATEGIES[name]
            if budget < strategy.least_budget(steps, sizes):
                continue
            cost = forward_steps(steps, strategy.units(steps, budget, sizes), name, alpha=3)
            assert forward_steps(steps, budget, "optimal", alpha=3) <= cost
