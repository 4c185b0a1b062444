"""What the paper says about forward steps, computed: no clock, the same numbers everywhere.

Costs are forward steps, C; a *budget* counts all saved states in units of one hidden state, the
working internal state included, so that strategies are compared at equal memory. alpha is the size
of an internal state, 3 for an LSTM.

A claim is a dict: `claim` in words, `paper` what the paper states (None where no number of it is
known for sure), `ours`, and `holds`.
"""

from functools import cache

import numpy as np

from membptt.memory import Units
from membptt.schedules import schedule, trade_off
from membptt.solver.strategies import (
    STRATEGIES,
    Sizes,
    binomial_cost,
    forward_steps,
)

ALPHA = 3
STEPS = 1000
BUDGETS = (5, 10, 20, 50, 100)
LENGTHS = tuple(np.unique(np.geomspace(5, STEPS, 30).round().astype(int)).tolist())
PAPERS = ("hsm", "ism", "msm")
HEADLINE_UNITS = 77
SMALL = 40  # steps up to which every budget is compared


def all_costs():
    """Return claims, tables and the lines of every figure, as plain values."""
    return {
        "claims": claims(),
        "headline": headline(),
        "at_five_percent": at_five_percent(),
        "chen": chen(),
        "msm_not_optimal": [msm_not_optimal(alpha) for alpha in (1, 2, 3, 4, 5)],
        "figures": figures(),
    }


def claims():
    """Return what is claimed, by the paper or about it, with the verdict."""
    found = headline()
    ratio, cases = bound()
    worse, budgets = mixed_is_best_of_three()
    excess = msm_not_optimal(ALPHA)
    saved, factor = found["saved_fraction"], found["time_factor"]
    return [
        {
            "claim": f"T = {STEPS}: share of the memory saved for one third more time",
            "paper": "95 %",
            "ours": f"{saved:.1%} for {factor - 1:.1%} more",
            "holds": saved >= 0.95 and factor - 1 < 1 / 3,
        },
        {
            "claim": "C(t, m) <= m t^(1 + 1/m) for hsm",
            "paper": "bound",
            "ours": f"holds for all {cases:,} cases with t <= {STEPS}, m <= 50; at most "
            f"{ratio:.3f} of it",
            "holds": ratio <= 1,
        },
        {
            "claim": "msm needs no more than hsm and ism at equal memory",
            "paper": "by construction",
            "ours": f"holds for all {budgets} budgets at T = {STEPS}, α = {ALPHA}",
            "holds": worse == 0,
        },
        {
            "claim": "optimal needs no more than msm, and less in some cases with α >= 2",
            "paper": None,
            "ours": f"α = {ALPHA}: less in {excess['worse']} of {excess['cases']} cases with "
            f"t <= {SMALL}, the first at t = {excess['first']['steps']}; more in none",
            "holds": excess["better"] == 0,
        },
    ]


def headline():
    """Return the numbers at T = 1000: what the paper's abstract is about."""
    planned = schedule(STEPS, Units(HEADLINE_UNITS, ALPHA))
    return {
        "steps": STEPS,
        "alpha": ALPHA,
        "strategy": "optimal",
        "units": HEADLINE_UNITS,
        "full_units": planned.full_bytes,
        "forward_steps": planned.forward_steps,
        "forward_steps_per_step": planned.forward_steps / STEPS,
        "saved_fraction": planned.saved_fraction,
        "time_factor": planned.time_factor(),
        "paper_saved_fraction": 0.95,
        "paper_time_factor": 4 / 3,
    }


def at_five_percent():
    """Return what each strategy costs where 95 % of the memory is saved."""
    budget = STEPS * ALPHA // 20
    rows = []
    for name in (*PAPERS, "optimal"):
        cost = at_budget(name, STEPS, budget)
        factor = (cost / STEPS + 2) / 3
        rows.append({"strategy": name, "forward_steps_per_step": cost / STEPS, "factor": factor})
    return rows


def bound():
    """Return the largest share of the bound that hsm costs, and how many cases were compared."""
    largest, cases = 0.0, 0
    for m in range(1, 51):
        for t in range(1, STEPS + 1):
            largest = max(largest, (t + binomial_cost(t, min(m, t))) / (m * t ** (1 + 1 / m)))
            cases += 1
    return largest, cases


def mixed_is_best_of_three():
    """Return at how many budgets msm costs more than hsm or ism, and how many there are."""
    curve = trade_off(STEPS, alpha=ALPHA, strategies=PAPERS)
    costs = {name: np.nan_to_num(row, nan=np.inf) for name, row in curve.forward_steps.items()}
    worse = costs["msm"] > np.minimum(costs["hsm"], costs["ism"])
    return int(worse.sum()), len(worse)


@cache
def msm_not_optimal(alpha):
    """Return where the paper's msm is above the optimum, over all budgets for short sequences.

    Returns
    -------
    dict
        Cases, in how many msm is worse and better, the first that differs, the worst.
    """
    sizes = Sizes(1, alpha)
    cases = worse = better = 0
    first = worst = None
    for steps in range(1, SMALL + 1):
        budgets = range(alpha, steps * alpha + 1)
        paper = STRATEGIES["msm"].costs(steps, [budget - alpha for budget in budgets], sizes)
        best = STRATEGIES["optimal"].costs(steps, budgets, sizes)
        for budget, mixed, optimal in zip(budgets, paper, best, strict=True):
            cases += 1
            if mixed == optimal:
                continue
            worse += mixed > optimal
            better += mixed < optimal
            case = {"steps": steps, "units": budget, "msm": mixed, "optimal": optimal}
            first = first or case
            if worst is None or mixed * worst["optimal"] > worst["msm"] * optimal:
                worst = case
    return {
        "alpha": alpha,
        "cases": cases,
        "worse": worse,
        "better": better,
        "first": first,
        "worst": worst,
    }


def chen():
    """Return what the two schemes of Chen et al. (2016) need, and `optimal` beside them."""
    sizes = Sizes(1, ALPHA)
    rows = []
    for steps in (100, STEPS, 10_000):
        for name in ("chen", "chen-recursive"):
            budget = STRATEGIES[name].least_budget(steps, sizes)
            cost = STRATEGIES[name].cost(steps, budget, sizes)
            budgets = range(ALPHA, budget + 1)
            costs = STRATEGIES["optimal"].costs(steps, budgets, sizes)
            enough = next(m for m, least in zip(budgets, costs, strict=True) if least <= cost)
            rows.append(
                {
                    "steps": steps,
                    "strategy": name,
                    "units": budget,
                    "forward_steps": cost,
                    "optimal_forward_steps_same_memory": costs[-1],
                    "optimal_units_same_cost": enough,
                }
            )
    return rows


def figures():
    """Return the lines of each figure: x, y by the name of the line."""
    return {
        **{name: against_length(name) for name in PAPERS},
        "equal-memory": equal_memory(),
        "equal-memory-length": equal_memory_length(),
        "bound": bound_lines(),
        "msm-excess": msm_excess(),
    }


def against_length(name):
    """Return forward steps per step against T, one line for each number of units."""
    lines = {}
    for units in BUDGETS:
        costs = [forward_steps(steps, units, name, ALPHA) / steps for steps in LENGTHS]
        lines[f"m = {units}"] = [list(LENGTHS), costs]
    return lines


def equal_memory():
    """Return forward steps per step against memory at T = 1000, one line for each strategy."""
    names = (*PAPERS, "optimal", "chen", "chen-recursive", "uniform")
    curve = trade_off(STEPS, alpha=ALPHA, strategies=names)
    return {
        name: [curve.memory.tolist(), _plain(curve.forward_steps[name] / STEPS)] for name in names
    }


def equal_memory_length(budget=60):
    """Return forward steps per step against T for one budget, one line for each strategy."""
    return {
        name: [
            list(LENGTHS),
            [
                min(at_budget(name, steps, budget), _full(steps, budget)) / steps
                for steps in LENGTHS
            ],
        ]
        for name in (*PAPERS, "optimal", "disk")
    }


def _full(steps, budget):
    return steps if budget >= steps * ALPHA else np.inf


def bound_lines():
    """Return hsm's cost per step and its bound, for a few numbers of units."""
    lines = {}
    for m in (2, 3, 5, 10):
        costs = [(t + binomial_cost(t, min(m, t))) / t for t in LENGTHS]
        lines[f"C(t, {m}) / t"] = [list(LENGTHS), costs]
        lines[f"bound, m = {m}"] = [list(LENGTHS), [m * t ** (1 / m) for t in LENGTHS]]
    return lines


def msm_excess():
    """Return how far msm is above the optimum at T = 1000, in percent, for three alphas."""
    lines = {}
    for alpha in (2, 3, 5):
        curve = trade_off(STEPS, alpha=alpha, strategies=["msm", "optimal"])
        costs = curve.forward_steps
        share = curve.memory / curve.memory[-1]
        excess = 100 * (costs["msm"] / costs["optimal"] - 1)
        lines[f"α = {alpha}"] = [share.tolist(), _plain(excess)]
    return lines


def at_budget(name, steps, budget):
    """Return the forward steps of a strategy that may save `budget` units in all."""
    sizes = Sizes(1, ALPHA)
    strategy = STRATEGIES[name]
    return strategy.cost(steps, strategy.units(steps, budget, sizes), sizes)


def _plain(values):
    return [None if np.isnan(value) else float(value) for value in values]
